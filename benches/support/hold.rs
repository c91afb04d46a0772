//! Stops the reading thread while the sender fills every stream, and sees when it has read them all.
//!
//! On two cores a sender is slower than a reader: a send call also does the receiver's part of the kernel's work. So that
//! the reader is what limits, and still finds one send in each stream, the two take turns. What the reader then costs is
//! its CPU time, and its rate at the limit is the reciprocal.

use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A reader that can be stopped.
pub struct Hold {
    process: Pid,
    state_file: PathBuf,
}

impl Hold {
    /// By the numbers of its process and of its thread.
    pub fn new(process: i32, thread: i32) -> Self {
        let state_file = format!("/proc/{process}/task/{thread}/stat").into();
        Self { process: Pid::from_raw(process), state_file }
    }

    /// Stops it; returns when it stands still.
    pub fn stop(&self) {
        kill(self.process, Signal::SIGSTOP).unwrap();
        self.await_state('T');
    }

    /// Lets it run until it waits for more.
    pub fn run(&self) {
        kill(self.process, Signal::SIGCONT).unwrap();
        self.await_state('S');
    }

    fn await_state(&self, wanted: char) {
        // A thread that has ended has no file any more, and the first of its process is a zombie until it is waited for.
        while let Ok(text) = std::fs::read_to_string(&self.state_file) {
            // The name before it is in parentheses, and may hold anything.
            let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            if state.is_some_and(|state| state == wanted || state == 'Z') {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// The number of the thread of this process that has a name.
pub fn thread_named(name: &str) -> i32 {
    let all = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|n| n.trim() == name);
    let found = all.into_iter().find(is_it).expect("a thread of that name");
    found.file_name().unwrap().to_str().unwrap().parse().unwrap()
}
