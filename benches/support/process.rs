//! The processes of one measurement, and what they tell each other, a line at a time.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::Load;

/// What a process says at its end: names and numbers.
pub type Told = HashMap<String, f64>;

/// Lets a reader of this kind read the load from a sender of its own; what the reader and the sender tell.
///
/// `wrapper` runs the reader under another program.
pub fn measure(load: Load, kind: &str, wrapper: &[&str]) -> (Told, Told) {
    let load = load.to_argument();
    let mut sender = Process::start(&[], &["sender", &load]);
    let address = sender.line();
    let mut reader = Process::start(wrapper, &[kind, &load, &address]);
    // Every request is at the sender: nothing but the stream is measured from here on.
    assert_eq!(sender.line(), "asked");
    reader.tell("begin");
    // It says which thread reads.
    let thread = reader.line();
    sender.tell(&format!("{} {thread}", reader.child.id()));
    let told = (numbers(&reader.line()), numbers(&sender.line()));
    // A wrapper writes what it has found when the reader has ended.
    assert!(reader.child.wait().unwrap().success());
    told
}

/// Waits for a line on stdin, which the parent sends.
pub fn await_parent() -> String {
    let mut line = String::new();
    assert!(std::io::stdin().read_line(&mut line).unwrap() > 0, "the parent is gone");
    line
}

fn numbers(line: &str) -> Told {
    let pair = |part: &str| {
        let (name, number) = part.split_once('=').unwrap();
        (name.to_owned(), number.parse().unwrap())
    };
    line.split(' ').map(pair).collect()
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(wrapper: &[&str], arguments: &[&str]) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut command = match wrapper {
            [] => Command::new(own),
            [program, rest @ ..] => {
                let mut command = Command::new(program);
                command.args(rest).arg(own);
                command
            }
        };
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "a process of the bench ended early");
        line.trim_end().to_owned()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
