//! The embedded simulator: a child process of the same binary, with its own descriptors, its own clock and no shared
//! fate. It ends when its standard input does, so that no simulator outlives the run.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The child could not be started, or said nothing that could be understood.
#[derive(Debug, thiserror::Error)]
pub enum SimChildError {
    /// This program's own file is not known.
    #[error("the simulator cannot be started: this program's own file is not known: {0}")]
    OwnFile(std::io::Error),
    /// The process could not be made.
    #[error("the simulator cannot be started: {0}")]
    Spawn(std::io::Error),
    /// It ended, or printed something else than its address.
    #[error("the simulator did not say where it listens{}", if .0.is_empty() { String::new() } else { format!(": {}", .0) })]
    NoAddress(String),
}

/// A running simulator. Dropping it ends it.
#[derive(Debug)]
pub struct SimChild {
    child: Child,
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
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().map_err(SimChildError::Spawn)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // A failed read leaves the line empty, which is reported below.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        match line.trim().strip_prefix("listening ") {
            Some(base_url) => Ok(Self { base_url: base_url.to_owned(), child }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(SimChildError::NoAddress(line.trim().to_owned()))
            }
        }
    }
}

impl Drop for SimChild {
    fn drop(&mut self) {
        // Closing its standard input asks it to end and to write its ledger; waiting leaves no zombie.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
