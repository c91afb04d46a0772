//! `hammerscale report` as a process: published artifacts and saved runs are computed again, byte for byte, and whatever
//! somebody changed in them is named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod artifact;
mod events;
mod kinds;
mod leaves;
mod run;
mod saved;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// Processes at a time.
const WORKERS: usize = 4;

/// `hammerscale report PATH --format FORMAT`.
fn report(path: &Path, format: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    command.arg("report").arg(path).args(["--format", format]).output().expect("the binary starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Calls `judge` for every item, several at a time; the complaints.
fn complaints<T: Sync>(items: &[T], judge: impl Fn(usize, &T) -> Result<(), String> + Sync) -> Vec<String> {
    let found = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    found.lock().unwrap().extend(judge(at, item).err());
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// The paths of everything below a value that is no object and no list with something in it, keys joined by `/`.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                leaves(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (i, value) in items.iter().enumerate() {
                leaves(value, &format!("{path}/{i}"), found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

/// Another value of the same kind, as near as can be; `relative` for doubles that have a tolerance.
fn changed(value: &Value, relative: Option<f64>) -> Value {
    match value {
        Value::Null => 0.into(),
        Value::Bool(b) => (!b).into(),
        Value::Number(n) => match n.as_i64() {
            Some(n) => (n + 1).into(),
            None => {
                let x = n.as_f64().unwrap();
                relative.map_or_else(|| x.next_up(), |by| if x == 0.0 { 1.0 } else { x * (1.0 + by) }).into()
            }
        },
        Value::String(text) => format!("{text}x").into(),
        Value::Array(_) => vec![Value::Null].into(),
        Value::Object(_) => serde_json::json!({"x": 1}),
    }
}
