//! Exact statistics against a second implementation: CPython's `math.fsum`, `statistics` and `fractions`, run as a
//! subprocess on thousands of random vectors and compared bit by bit.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use hammerscale::metrics::quantile::Quantile;
use hammerscale::metrics::{exact, interval, observe};
use hammerscale::record::CapturedText;

/// Reads one vector of doubles (16 hex digits each) a line; answers with the bits of fsum, fmean, mean and stdev.
/// The deviation is computed twice, by `statistics.stdev` where it rounds correctly and by whole-number square root.
const ORACLE: &str = r#"
import math, statistics, struct, sys
from fractions import Fraction
def bits(x): return struct.pack('>d', x).hex()
def attempt(f):
    try: return bits(f())
    except (OverflowError, ZeroDivisionError, statistics.StatisticsError): return 'none'
def fsum(xs):
    try: return math.fsum(xs)
    except OverflowError: return float(sum(Fraction(x) for x in xs))  # fsum gives up on partial sums that overflow
def stdev(xs):
    f = [Fraction(x) for x in xs]
    n = len(f)
    if n < 2: raise statistics.StatisticsError
    v = (n * sum(x * x for x in f) - sum(f) ** 2) / (n * (n - 1))
    shift = max(0, 2200 + v.denominator.bit_length() - v.numerator.bit_length())
    shift += shift % 2
    scaled = (v.numerator << shift) // v.denominator
    exact = scaled * v.denominator == v.numerator << shift
    root = math.isqrt(scaled)
    exact = exact and root * root == scaled
    # One more bit below stands for everything that was cut off.
    return ((root << 1) | (not exact)) / (1 << (shift // 2 + 1))
for line in sys.stdin:
    xs = [struct.unpack('>d', bytes.fromhex(w))[0] for w in line.split()]
    own = attempt(lambda: stdev(xs))
    if sys.version_info >= (3, 11):
        assert own == attempt(lambda: statistics.stdev(xs)), xs
    mean = attempt(lambda: float(sum(Fraction(x) for x in xs) / len(xs)))
    assert mean == attempt(lambda: statistics.mean(xs)) or mean == '8000000000000000', xs
    print(attempt(lambda: fsum(xs)), attempt(lambda: fsum(xs) / len(xs)), mean, own)
"#;

#[test]
fn sums_means_and_deviations_are_pythons_to_the_last_bit() {
    let vectors = vectors();
    let mut input = String::new();
    for vector in &vectors {
        for value in vector {
            write!(input, "{:016x} ", value.to_bits()).unwrap();
        }
        input.push('\n');
    }
    let output = python(ORACLE, input);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), vectors.len());
    let mut naive_sums_differ = 0;
    let mut naive_deviations_differ = 0;
    for (vector, line) in vectors.iter().zip(lines) {
        let bits = |x: Option<f64>| x.map_or("none".to_owned(), |x| format!("{:016x}", x.to_bits()));
        let ours = [exact::sum(vector), exact::fmean(vector), exact::mean(vector), exact::stdev(vector)];
        assert_eq!(ours.map(bits).join(" "), line, "{vector:?}");
        naive_sums_differ += u32::from(exact::sum(vector) != Some(vector.iter().sum()));
        naive_deviations_differ += u32::from(vector.len() > 1 && exact::stdev(vector) != Some(naive(vector)));
        let mut reversed = vector.clone();
        reversed.reverse();
        assert_eq!(exact::sum(&reversed), ours[0]);
        assert_eq!(exact::stdev(&reversed), ours[3]);
    }
    // The check can fail: the usual ways to compute these are wrong somewhere.
    println!("{} vectors, naive sum wrong in {naive_sums_differ}", vectors.len());
    println!("naive two-pass deviation wrong in {naive_deviations_differ}");
    assert!(naive_sums_differ > 100 && naive_deviations_differ > 100);
}

/// The same regular expression and the same `str` methods as the reference's runner.
const TEXT_ORACLE: &str = r#"
import json, re, sys
for line in sys.stdin:
    text, own = json.loads(line)
    at_start = text.startswith(own) and (len(text) == len(own) or text[len(own)].isspace())
    found = re.findall(r'ANVIL_REQ_-?[0-9]+_[0-9]{5}\b', text)
    words = (text[len(own):].lstrip() if at_start else text).split()
    code = words.count('code')
    print(int(at_start), len(found), sum(m != own for m in found), code, len(words) - code)
"#;

#[test]
fn observations_are_pythons() {
    let pieces = [
        "ANVIL_REQ_0_00001",
        "ANVIL_REQ_0_00002",
        "ANVIL_REQ_-5_00001",
        "ANVIL_REQ_",
        "ANVIL_REQ_0_0000",
        "code",
        "codes",
        "Code",
        "1",
        "_",
        "-",
        ".",
        ":",
        " ",
        "\n",
        "\r\n",
        "\t",
        "\u{b}",
        "\u{c}",
        "\u{1c}",
        "\u{1d}",
        "\u{1e}",
        "\u{1f}",
        "\u{85}",
        "\u{a0}",
        "\u{1680}",
        "\u{2003}",
        "\u{200b}",
        "\u{2028}",
        "\u{202f}",
        "\u{3000}",
        "\u{feff}",
        "é",
        "ß",
        "中",
        "٣",
        "²",
        "😀",
        "\0",
    ];
    let mut random = Random(7);
    let mut texts = Vec::new();
    for i in 0..4000 {
        let mut text = String::new();
        if i % 2 == 0 {
            text.push_str("ANVIL_REQ_0_00001");
        }
        for _ in 0..random.below(8) {
            text.push_str(pieces[usize::try_from(random.below(pieces.len() as u64)).unwrap()]);
        }
        texts.push(text);
    }
    let own = observe::marker(0, 1);
    let input: String = texts.iter().map(|t| serde_json::json!([t, own]).to_string() + "\n").collect();
    let output = python(TEXT_ORACLE, input);
    assert_eq!(output.lines().count(), texts.len());
    for (text, line) in texts.iter().zip(output.lines()) {
        let captured = CapturedText { text: text.clone(), truncated: false };
        let canary = observe::canary(&captured, &own);
        let words = observe::controlled_output(&captured, Some(&own), 2, true);
        let ours = [
            u64::from(canary.marker_at_start),
            canary.observed_marker_count,
            canary.foreign_marker_count,
            words.observed_code_words,
            words.observed_extra_words,
        ];
        assert_eq!(ours.map(|n| n.to_string()).join(" "), line, "{text:?}");
    }
}

/// Ranks (from 0) that bound a quantile at 95%, by whole-number binomial probabilities.
const INTERVAL_ORACLE: &str = r#"
import sys
from math import comb
for line in sys.stdin:
    n, q = map(int, line.split())
    # Whole-number probabilities out of 1000**n.
    p = [comb(n, k) * q**k * (1000 - q)**(n - k) for k in range(n + 1)]
    low, below = 0, 0
    while 40 * (below + p[low]) <= 1000**n: below += p[low]; low += 1
    high, above = n + 1, 0
    while 40 * (above + p[high - 1]) <= 1000**n: high -= 1; above += p[high]
    print(low - 1, high - 1) if low >= 1 and high <= n else print('none')
"#;

#[test]
fn intervals_of_quantiles_are_exact_binomial_ones() {
    let sizes: Vec<u16> = (1..=150).chain([200, 367, 368, 400, 500, 777, 1000, 1500]).collect();
    let quantiles = [(500, Quantile::P50), (900, Quantile::P90), (950, Quantile::P95), (990, Quantile::P99)];
    let cases = || sizes.iter().flat_map(|n| quantiles.map(|(thousandths, q)| (*n, thousandths, q)));
    let input = cases().map(|(n, thousandths, _)| format!("{n} {thousandths}\n")).collect();
    let output = python(INTERVAL_ORACLE, input);
    assert_eq!(output.lines().count(), cases().count());
    for ((n, thousandths, q), line) in cases().zip(output.lines()) {
        let ranks: Vec<f64> = (0..n).map(f64::from).collect();
        let ours =
            interval::quantile_ci95(&ranks, q).map_or("none".to_owned(), |i| format!("{} {}", i.low, i.high));
        assert_eq!(ours, line, "{thousandths} of {n}");
    }
}

fn python(script: &str, input: String) -> String {
    let mut child = Command::new("python3")
        .args(["-I", "-c", script])
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
    String::from_utf8(output.stdout).unwrap()
}

fn naive(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0)).sqrt()
}

fn vectors() -> Vec<Vec<f64>> {
    let mut random = Random(1);
    let mut vectors = vec![
        vec![],
        vec![0.0],
        vec![-0.0],
        vec![-0.0, -0.0],
        vec![5e-324],
        vec![0.0, 5e-324],
        vec![5e-324, -5e-324],
        vec![5e-324, 1.5e-323, 2e-323],
        // Means and deviations of a half, just above, and far below the smallest double.
        vec![5e-324, 0.0],
        vec![5e-324, 5e-324, 0.0],
        vec![5e-324, 1e-323, 0.0, 0.0, 0.0],
        vec![5e-324, 0.0, 0.0, 0.0],
        vec![5e-324, 0.0, 0.0, 0.0, 0.0],
        std::iter::once(5e-324).chain([0.0; 400]).collect(),
        vec![2.2250738585072014e-308, 0.0],
        vec![2.2250738585072014e-308, 2.225073858507201e-308],
        vec![f64::MAX],
        vec![f64::MAX, f64::MAX],
        vec![f64::MAX, f64::MAX, -f64::MAX],
        vec![f64::MAX, -f64::MAX],
        vec![f64::MAX, 5e-324],
        vec![1e16, 1.0, -1e16],
        vec![1e100, 1.0, -1e100, 1e-100],
        // Halfway between two doubles, and just above and below.
        vec![1.0, f64::EPSILON / 2.0],
        vec![1.0, f64::EPSILON / 2.0, 5e-324],
        vec![1.0, f64::EPSILON / 2.0, -5e-324],
        vec![1.0 + f64::EPSILON, f64::EPSILON / 2.0],
        vec![0.1; 10],
        vec![0.1; 1000],
    ];
    for _ in 0..3000 {
        let n = 1 + random.below(40);
        let kind = random.below(6);
        vectors.push((0..n).map(|_| random.value(kind)).collect());
    }
    vectors.push((0..20_000).map(|_| random.value(0)).collect());
    vectors
}

/// SplitMix64 (Steele, Lea & Flood 2014): the same vectors in every run.
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

    fn value(&mut self, kind: u64) -> f64 {
        let ns = self.below(30_000_000_000);
        match kind {
            // Latencies in milliseconds from whole nanoseconds.
            0 => ns as f64 / 1e6,
            // Token counts.
            1 => (ns % 1000) as f64,
            // Latencies that hardly differ.
            2 => 20_000.0 + (ns % 7) as f64 / 1e6,
            // Any finite double.
            3 => loop {
                let value = f64::from_bits(self.next());
                if value.is_finite() {
                    break value;
                }
            },
            // Subnormal doubles and the smallest normal ones.
            4 => f64::from_bits(self.next() >> 11),
            // Both signs over forty powers of ten.
            _ => {
                let size = (ns as f64) * 10_f64.powi(i32::try_from(self.below(40)).unwrap() - 20);
                if self.below(2) == 0 { size } else { -size }
            }
        }
    }
}
