//! The embedded simulator: a child process of the same binary, with its own descriptors, its own clock and no shared
//! fate. It ends when its standard input does, so that no simulator outlives the run.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use crate::exit::Exit;

/// What a child that did not start may say about it: one line, and bounded because it is not this process that speaks.
const MAX_COMPLAINT_BYTES: u64 = 4_096;

/// The child could not be started, or said nothing that could be understood.
#[derive(Debug, thiserror::Error)]
pub enum SimChildError {
    /// This program's own file is not known.
    #[error("the simulator cannot be started: this program's own file is not known: {0}")]
    OwnFile(std::io::Error),
    /// The process could not be made.
    #[error("the simulator cannot be started: {0}")]
    Spawn(std::io::Error),
    /// It refused its settings; the reason is its own.
    #[error("--sim cannot be used: {0}")]
    Refused(String),
    /// It ended, or printed something else than its address.
    #[error("the simulator did not say where it listens{}", if .0.is_empty() { String::new() } else { format!(": {}", .0) })]
    NoAddress(String),
}

/// A running simulator. Dropping it ends it.
#[derive(Debug)]
pub struct SimChild {
    child: Child,
    /// Passes on what it says on stderr.
    speaker: Option<JoinHandle<()>>,
    /// Its base URL, `http://127.0.0.1:PORT/v1`.
    pub base_url: String,
}

impl SimChild {
    /// Starts a simulator with the given arguments (the sub-command first) and waits for its first line.
    ///
    /// # Errors
    /// See [`SimChildError`].
    pub fn start(arguments: &[String], cores: &[usize]) -> Result<Self, SimChildError> {
        let program: PathBuf = std::env::current_exe().map_err(SimChildError::OwnFile)?;
        let mut command = Command::new(program);
        command.args(arguments);
        let named = arguments.iter().any(|argument| argument.starts_with("--cores"));
        if !cores.is_empty() && !named {
            let list: Vec<String> = cores.iter().map(ToString::to_string).collect();
            command.args(["--cores", &list.join(",")]);
        }
        // A terminal sends Ctrl-C to the whole group: the run must end first and the simulator by it, or its death would
        // be told as the server's failures.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(SimChildError::Spawn)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // A failed read leaves the line empty, which is reported below.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        let stderr = child.stderr.take();
        match line.trim().strip_prefix("listening ") {
            Some(base_url) => {
                Ok(Self { base_url: base_url.to_owned(), child, speaker: stderr.and_then(pass_on) })
            }
            None => {
                let _ = child.kill();
                Err(refusal(child.wait().ok(), line.trim(), stderr))
            }
        }
    }
}

/// What a child that is still to be understood says goes where this process says it. Without a thread it is not told.
fn pass_on(mut from: ChildStderr) -> Option<JoinHandle<()>> {
    let speak = move || {
        let _ = std::io::copy(&mut from, &mut std::io::stderr());
    };
    std::thread::Builder::new().name("sim stderr".to_owned()).spawn(speak).ok()
}

/// Why a child did not start. One that refused what it was given has said so, in one line that begins with the program's
/// name.
fn refusal(status: Option<ExitStatus>, line: &str, stderr: Option<ChildStderr>) -> SimChildError {
    let mut said = Vec::new();
    if let Some(stderr) = stderr {
        let _ = stderr.take(MAX_COMPLAINT_BYTES).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    let reason = said.lines().next().unwrap_or_default();
    let reason = reason.strip_prefix("hammerscale: ").unwrap_or(reason);
    if status.and_then(|status| status.code()) == Some(i32::from(Exit::Usage.code())) && !reason.is_empty() {
        return SimChildError::Refused(reason.trim_start_matches("--").to_owned());
    }
    SimChildError::NoAddress(if line.is_empty() { reason } else { line }.to_owned())
}

impl Drop for SimChild {
    fn drop(&mut self) {
        // Closing its standard input asks it to end and to write its ledger; waiting leaves no zombie.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        if let Some(speaker) = self.speaker.take() {
            let _ = speaker.join();
        }
    }
}
