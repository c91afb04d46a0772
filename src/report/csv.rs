//! The requests of a run as a table: comma-separated values after RFC 4180, except that lines end in LF as they do in
//! every other file of a run.
//!
//! The columns are the keys of `requests.jsonl` in their order; those of `user` stand apart as `user.…`, other objects
//! and lists are JSON text in one cell. What is null is an empty cell, and an empty text is `""`.

use std::io::{self, BufRead, Write};

use serde_json::Value;

use super::ordered::OrderedMap;

/// Writes one line of names, and one line per request. A last line that is cut is left out; without requests nothing is
/// written, because the names are those of the lines.
///
/// # Errors
/// Those of both sides, and a line that is no JSON object.
pub fn write(lines: impl BufRead, mut out: impl Write) -> io::Result<()> {
    let mut columns: Option<Vec<String>> = None;
    let mut lines = lines.split(b'\n').peekable();
    while let Some(line) = lines.next() {
        let line = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let row = match serde_json::from_slice::<OrderedMap<Value>>(&line) {
            Ok(row) => flat(&row),
            Err(_) if lines.peek().is_none() => break,
            Err(error) => return Err(error.into()),
        };
        let columns = match &mut columns {
            Some(columns) => columns,
            none => {
                let names: Vec<String> = row.iter().map(|(name, _)| name.to_owned()).collect();
                record(&mut out, names.iter().map(|name| Some(name.as_str().into())))?;
                none.insert(names)
            }
        };
        record(&mut out, columns.iter().map(|name| row.get(name).and_then(cell)))?;
    }
    out.flush()
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

    fn table(lines: &str) -> io::Result<String> {
        let mut out = Vec::new();
        write(lines.as_bytes(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let lines = r#"{"b":1,"user":{"x":null,"a":-2},"text":"a,\"b\"\nc","none":null,"empty":"","list":[1,2]}
{"b":2.5,"user":{"a":3,"x":4},"text":"plain","none":true,"empty":"x","list":{"k":"v"},"later":1}
{"b":3,"us"#;
        let want = "b,user.a,user.x,text,none,empty,list\n1,-2,,\"a,\"\"b\"\"\nc\",,\"\",\"[1,2]\"\n2.5,3,4,plain,true,x,\"{\"\"k\"\":\"\"v\"\"}\"\n";
        assert_eq!(table(lines).unwrap(), want);
        assert_eq!(table("\n").unwrap(), "");
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error() {
        assert!(table("{\"a\":1}\n{\n{\"a\":2}\n").is_err());
    }
}
