//! `events.bin` as others read it: a reader that was written from `docs/EVENTS.md` alone, against `--format events`.

use std::path::Path;
use std::process::{Command, Output};

use hammerscale::aggregate::chunk::OutputChunk;
use hammerscale::record::OutputKind;
use hammerscale::report::events::{EventsWriter, RequestKey};
use hammerscale::units::Nanos;
use serde_json::Value;

use crate::kinds::start;
use crate::run::Finished;
use crate::{report, stderr, stdout};

fn python(run: &Path) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/report_command/read_events.py");
    Command::new("python3").args(["-I", script]).arg(run).output().expect("python3 is there")
}

fn lines(text: &[u8]) -> Vec<Value> {
    text.split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect()
}

#[test]
fn a_reader_written_from_the_page_gets_the_same_stamps() {
    let run = Finished::new();
    let ours = report(&run.path(), "events");
    assert_eq!(ours.status.code(), Some(0), "{}", stderr(&ours));
    let theirs = python(&run.path());
    assert!(theirs.status.success(), "{}", stderr(&theirs));
    let (ours, theirs) = (lines(&ours.stdout), lines(&theirs.stdout));
    assert_eq!(ours, theirs);
    let stamps: usize = ours.iter().map(|line| line["at_ns"].as_array().unwrap().len()).sum();
    assert!(ours.len() == crate::run::REQUESTS && stamps > 30, "{} lines, {stamps} stamps", ours.len());
    assert!(ours.iter().any(|line| line["at_ns"] == serde_json::json!([])), "a request without output");
}

/// A server that counts as it goes: the tokens stand in the lines, and only then.
#[test]
fn tokens_of_chunks_are_shown_where_they_are_known() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run");
    let args = ["--sim=ttft=2ms;itl=1ms", "--continuous-usage", "--model", "m", "--requests", "6"];
    let args = [&args[..], &["--ctx-tokens", "64", "--max-tokens", "8"]].concat();
    assert_eq!(start(&dir, &args).wait().unwrap().code(), Some(0));
    let (ours, theirs) = (lines(&report(&dir, "events").stdout), lines(&python(&dir).stdout));
    assert_eq!(ours, theirs);
    for line in ours {
        let tokens = line["tokens"].as_array().unwrap();
        assert_eq!(tokens.len(), line["at_ns"].as_array().unwrap().len());
        assert_eq!(tokens.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), 8, "{line}");
    }
    let plain = report(&Finished::new().path(), "events");
    assert!(!stdout(&plain).contains("tokens"));
}

/// Everything that the layout can hold: every flag, extreme numbers, several blocks of one request.
#[test]
fn the_other_reader_gets_every_field_of_any_chunk() {
    let mut random = Random(11);
    let mut written = Vec::new();
    let mut writer = EventsWriter::new(Vec::new()).unwrap();
    for (request_index, count) in [(0, 20_000), (u64::MAX, 3), (7, 500), (300, 0), (8, 1)] {
        for warmup in [true, false] {
            let chunks: Vec<OutputChunk> = (0..count).map(|_| random.chunk()).collect();
            writer.write(RequestKey { request_index, warmup }, &chunks).unwrap();
            for chunk in chunks {
                let tokens = chunk.tokens.map_or("None".to_owned(), |tokens| tokens.to_string());
                let kernel = chunk.kernel.map_or("None".to_owned(), |kernel| kernel.0.to_string());
                written.push(format!(
                    "{request_index} {} {} {} {} {kernel} {} {} {tokens}",
                    u8::from(warmup),
                    chunk.kind.name(),
                    chunk.choice,
                    chunk.user.0,
                    chunk.not_before.0,
                    u8::from(chunk.ends_read)
                ));
            }
        }
    }
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("events.bin");
    std::fs::write(&file, writer.finish().unwrap()).unwrap();
    let output = python(&file);
    assert!(output.status.success(), "{}", stderr(&output));
    let read: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(read.len(), written.len());
    for (n, (read, written)) in read.iter().zip(&written).enumerate() {
        assert_eq!(read, written, "line {n}");
    }
}

/// SplitMix64 (Steele, Lea & Flood 2014): the same chunks in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Mostly usual, sometimes anything.
    fn stamp(&mut self) -> Nanos {
        let any = self.next().cast_signed();
        Nanos(if self.next().is_multiple_of(8) { any } else { any.rem_euclid(1_000_000_000_000) })
    }

    fn chunk(&mut self) -> OutputChunk {
        const KINDS: [OutputKind; 4] =
            [OutputKind::Reasoning, OutputKind::Content, OutputKind::ToolCall, OutputKind::Refusal];
        let flags = self.next();
        OutputChunk {
            choice: if flags & 4 == 0 { 0 } else { u32::try_from(self.next() >> 32).unwrap() },
            kind: KINDS[usize::try_from(flags % 4).unwrap()],
            kernel: (flags & 8 == 0).then(|| self.stamp()),
            user: self.stamp(),
            not_before: self.stamp(),
            ends_read: flags & 16 == 0,
            tokens: (flags & 32 == 0).then(|| u32::try_from(self.next() >> (32 + flags % 32)).unwrap()),
        }
    }
}

/// The other reader is no friend of ours: it sees what is wrong with a file.
#[test]
fn the_other_reader_refuses_a_damaged_file() {
    let run = Finished::new();
    let tmp = tempfile::tempdir().unwrap();
    let bytes = run.read("events.bin");
    for at in [0, 8, 16, 20, 24, 30, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        run.copy_with(tmp.path(), "events.bin", &damaged);
        assert!(!python(tmp.path()).status.success(), "byte {at}");
        let ours = report(tmp.path(), "md");
        let noticed = ours.status.code() == Some(2) || stderr(&ours).contains("events.bin");
        assert!(noticed, "byte {at}: {} {}", stderr(&ours), stdout(&ours));
    }
}
