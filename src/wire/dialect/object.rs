//! Looking into a parsed object.

use serde_json::{Map, Value};

pub(super) type Object = Map<String, Value>;

/// A string that is not empty.
pub(super) fn text_of<'v>(object: &'v Object, key: &str) -> Option<&'v str> {
    object.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The elements of an array; none when there is no array.
pub(super) fn elements_of<'v>(object: &'v Object, key: &str) -> &'v [Value] {
    object.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The count at the end of a path of keys; `None` for everything that is no unsigned integer.
pub(super) fn count_at(value: &Value, path: &[&str]) -> Option<u64> {
    path.iter().try_fold(value, |value, key| value.get(key))?.as_u64()
}
