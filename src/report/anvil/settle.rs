//! One stored value against what follows from the file: kept when they agree, replaced and named when not.

use serde::Serialize;
use serde_json::Value;

/// A stored value that does not follow from the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Disagreement {
    /// Where it stands, keys joined by dots.
    pub path: String,
    /// What the file says.
    pub stored: Value,
    /// What follows.
    pub recomputed: Value,
}

/// Collects what does not agree.
#[derive(Default)]
pub(super) struct Check {
    pub(super) copied: Vec<String>,
    pub(super) disagreements: Vec<Disagreement>,
}

impl Check {
    /// Keeps a stored value that is the same (type and digits), or that `agree` accepts; replaces and names any other.
    /// A field that is not there stays so.
    pub(super) fn settle(
        &mut self,
        path: impl FnOnce() -> String,
        stored: Option<&mut Value>,
        recomputed: Value,
        agree: impl Fn(f64, f64) -> bool,
    ) {
        let Some(stored) = stored else { return };
        let close = match (double(stored), double(&recomputed)) {
            (Some(a), Some(b)) => a.to_bits() == b.to_bits() || agree(a, b),
            _ => *stored == recomputed,
        };
        if !close {
            let stored = std::mem::replace(stored, recomputed.clone());
            self.disagreements.push(Disagreement { path: path(), stored, recomputed });
        }
    }

    /// Settles every field of an object that is there.
    pub(super) fn settle_all(&mut self, path: &str, stored: &mut Value, computed: &impl Serialize) {
        if let (Some(stored), Ok(Value::Object(computed))) =
            (stored.as_object_mut(), serde_json::to_value(computed))
        {
            for (key, value) in computed {
                self.settle(|| format!("{path}.{key}"), stored.get_mut(&key), value, exactly);
            }
        }
    }
}

/// No tolerance beyond being the same.
pub(super) const fn exactly(_: f64, _: f64) -> bool {
    false
}

/// The number, when it is written as a double and not as a whole number.
fn double(value: &Value) -> Option<f64> {
    value.as_number().filter(|number| number.is_f64()).and_then(serde_json::Number::as_f64)
}
