//! The requests of a run as a table: comma-separated values after RFC 4180, except that lines end in LF as they do in
//! every other file of a run.
//!
//! The columns are the keys of `requests.jsonl` in their order; those of `user` stand apart as `user.…`, other objects
//! and lists are JSON text in one cell. Behind them stand the latencies of the request in milliseconds, each under its
//! metric's name; a request that failed has none. What is null is an empty cell, and an empty text is `""`. Rows are in
//! the order of the plan, warm-up requests first.

use std::borrow::Borrow;
use std::io::{self, BufRead, Write};

use serde_json::Value;

use super::ordered::OrderedMap;
use super::requests;
use crate::metrics::catalog::{CATALOG, Metric, Scope, Unit};
use crate::metrics::formula;
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::Phase;

/// Writes one line of names, also without requests, and one line per request. `rows` are those of the lines, in the same
/// order; what is behind the last of them is left out.
///
/// # Errors
/// Those of both sides, and a line that is no JSON object.
pub fn write(lines: impl BufRead, rows: impl RowSource, mut out: impl Write) -> io::Result<()> {
    let mut pairs = Vec::new();
    let mut left = rows.rows();
    for line in lines.split(b'\n') {
        let line = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let Some(row) = left.next() else { break };
        pairs.push((line, row));
    }
    pairs.sort_by_key(|(_, row)| {
        let row: &RequestRow = row.borrow();
        (row.phase != Phase::Warmup, row.request_index)
    });
    let parsed = |line: &[u8]| serde_json::from_slice::<OrderedMap<Value>>(line).map(|row| flat(&row));
    let columns: Vec<String> = match pairs.first() {
        Some((line, _)) => parsed(line)?.iter().map(|(name, _)| name.to_owned()).collect(),
        None => columns_of_any(),
    };
    let text = |name: &str| Some(name.to_owned());
    record(&mut out, columns.iter().map(|name| text(name)).chain(derived().map(|metric| text(metric.name))))?;
    for (line, row) in pairs {
        let cells = parsed(&line)?;
        let raw = columns.iter().map(|name| cells.get(name).and_then(cell));
        let values = derived().map(|metric| formula::value(metric.id, row.borrow()).map(|ms| ms.to_string()));
        record(&mut out, raw.chain(values))?;
    }
    out.flush()
}

/// The latencies of a request.
fn derived() -> impl Iterator<Item = &'static Metric> {
    CATALOG.iter().filter(|metric| metric.scope == Scope::Request && metric.unit == Unit::Milliseconds)
}

/// The columns of lines that this version writes. An object is read sorted by its keys.
fn columns_of_any() -> Vec<String> {
    let mut user: Vec<String> = requests::user_keys().iter().map(|name| format!("{NESTED}.{name}")).collect();
    user.sort_unstable();
    let names = requests::keys().iter().flat_map(|key| match *key {
        NESTED => user.clone(),
        key => vec![key.to_owned()],
    });
    names.collect()
}

/// The object whose stamps by the other clock are taken apart.
const NESTED: &str = "user";

fn flat(row: &OrderedMap<Value>) -> OrderedMap<Value> {
    let columns = row.iter().flat_map(|(key, value)| match value {
        Value::Object(inner) if key == NESTED => {
            inner.iter().map(|(name, value)| (format!("{key}.{name}"), value.clone())).collect()
        }
        _ => vec![(key.to_owned(), value.clone())],
    });
    columns.collect()
}

/// The text of a value; `None` for null.
fn cell(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn record(out: &mut impl Write, cells: impl Iterator<Item = Option<String>>) -> io::Result<()> {
    for (i, cell) in cells.enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        match cell {
            None => {}
            Some(text) if text.is_empty() || text.contains([',', '"', '\n', '\r']) => {
                write!(out, "\"{}\"", text.replace('"', "\"\""))?;
            }
            Some(text) => out.write_all(text.as_bytes())?,
        }
    }
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::metrics::testing::row;
    use crate::record::Outcome;

    fn table(lines: &str, rows: &[RequestRow]) -> io::Result<Vec<String>> {
        let mut out = Vec::new();
        write(lines.as_bytes(), rows, &mut out)?;
        let text = String::from_utf8(out).unwrap();
        Ok(text.split_inclusive('\n').map(str::to_owned).collect())
    }

    #[test]
    fn cells_are_quoted_where_they_must_be_and_rows_are_in_the_plans_order() {
        let lines = r#"{"b":2.5,"user":{"a":3,"x":4},"text":"plain","none":true,"empty":"x","list":{"k":"v"},"later":1}
{"b":1,"user":{"x":null,"a":-2},"text":"a,\"b\"c","none":null,"empty":"","list":[1,2]}
{"b":3,"us"#;
        let mut failed = row(2);
        failed.outcome = Outcome::TimeoutIdle;
        let table = table(lines, &[failed, row(1)]).unwrap();
        assert_eq!(table.len(), 3);
        assert!(
            table[0].starts_with("b,user.a,user.x,text,none,empty,list,time_to_first_byte_ms,"),
            "{table:?}"
        );
        assert!(table[0].ends_with(",send_lag_ms,request_write_ms,connect_ms\n"), "{table:?}");
        // Values of the row of `metrics::testing`.
        assert!(table[1].starts_with("1,-2,,\"a,\"\"b\"\"c\",,\"\",\"[1,2]\",9,10,10,11,"), "{table:?}");
        assert!(table[2].starts_with("2.5,3,4,plain,true,x,\"{\"\"k\"\":\"\"v\"\"}\",,,"), "{table:?}");
        let columns = table[0].matches(',').count();
        assert_eq!(table[2].matches(',').count(), columns);
    }

    #[test]
    fn without_requests_there_are_names_all_the_same() {
        let mut line = Vec::new();
        let run_id = crate::record::RunId::new(crate::units::UnixNanos::new(1).unwrap(), 1);
        requests::RequestsWriter::new(&mut line, run_id).write(&row(0)).unwrap();
        let one = table(std::str::from_utf8(&line).unwrap(), &[row(0)]).unwrap();
        assert_eq!(table("", &[]).unwrap(), one[..1]);
    }

    #[test]
    fn a_line_that_is_no_object_is_an_error() {
        assert!(table("{\"a\":1}\n{\n{\"a\":2}\n", &[row(0), row(1), row(2)]).is_err());
    }
}
