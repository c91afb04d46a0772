//! The writer of artifacts against Python's `json.dumps(indent=2, sort_keys=True)`, run as a subprocess.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Map, Number, Value};

use hammerscale::report::anvil::encode;

const ORACLE: &str = r#"
import json, sys
for line in sys.stdin.buffer:
    value = json.loads(line)
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + '\n')
"#;

#[test]
fn any_document_is_written_as_python_writes_it() {
    let mut random = Random(3);
    let documents: Vec<Value> =
        (0..1000).map(|_| (0..12).map(|_| random.document(0)).collect::<Vec<_>>().into()).collect();
    let input: String = documents.iter().map(|document| document.to_string() + "\n").collect();
    let ours: String = documents.iter().map(|document| encode::to_string(document).unwrap()).collect();
    let mut child = Command::new("python3")
        .args(["-I", "-c", ORACLE])
        .env("PYTHONIOENCODING", "utf-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let theirs = String::from_utf8(output.stdout).unwrap();
    for (n, (a, b)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(a, b, "line {n}");
    }
    assert!(ours == theirs);
    assert!(ours.len() > 300_000, "{}", ours.len());
}

/// SplitMix64 (Steele, Lea & Flood 2014): the same documents in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn document(&mut self, depth: u32) -> Value {
        let kinds = if depth < 4 { 9 } else { 7 };
        match self.below(kinds) {
            0 => Value::Null,
            1 => (self.below(2) == 0).into(),
            2 => self.next().into(),
            3 => self.next().cast_signed().into(),
            4 => self.double().into(),
            5 | 6 => self.text().into(),
            7 => (0..self.below(6)).map(|_| self.document(depth + 1)).collect::<Vec<_>>().into(),
            _ => (0..self.below(6))
                .map(|_| (self.text(), self.document(depth + 1)))
                .collect::<Map<_, _>>()
                .into(),
        }
    }

    fn double(&mut self) -> Number {
        loop {
            let value = match self.below(4) {
                0 => f64::from_bits(self.next()),
                1 => self.below(1 << 20) as f64,
                2 => 10_f64.powi(i32::try_from(self.below(44)).unwrap() - 22),
                _ => self.below(1 << 40) as f64 / 1e6,
            };
            if let Some(number) = Number::from_f64(value) {
                return number;
            }
        }
    }

    fn text(&mut self) -> String {
        (0..self.below(12))
            .filter_map(|_| {
                let code = match self.below(5) {
                    0 => self.below(0x80),
                    1 => self.below(0x800),
                    2 => self.below(0x11_0000),
                    3 => b"\"\\/\n\r\t\x08\x0c\x7f\0"[usize::try_from(self.below(10)).unwrap()].into(),
                    _ => 0x20 + self.below(0x5f),
                };
                char::from_u32(u32::try_from(code).unwrap())
            })
            .collect()
    }
}
