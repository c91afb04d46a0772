//! What only shows when the binary looks at the machine: refused in one sentence that names the flag, with nothing sent
//! and nothing left behind.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// None of these runs may wait for anything: 20 s.
const MOST_LOOKS: u32 = 4_000;
const LOOK: Duration = Duration::from_millis(5);

fn run_in(dir: &Path, argv: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    command.arg("run").args(argv).current_dir(dir).env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut looks = 0;
    while child.try_wait().unwrap().is_none() {
        looks += 1;
        if looks == MOST_LOOKS {
            child.kill().unwrap();
        }
        std::thread::sleep(LOOK);
    }
    child.wait_with_output().unwrap()
}

/// Every name below a directory.
fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

#[track_caller]
fn assert_refused(dir: &Path, argv: &[&str], start: &str) -> String {
    let output = run_in(dir, argv);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{argv:?}: {said}");
    assert!(said.starts_with(&format!("hammerscale: {start}")), "{argv:?}: {said}");
    assert!(said.lines().count() == 1 && output.stdout.is_empty(), "{argv:?}: {said}");
    said
}

#[test]
fn a_place_for_results_that_cannot_be_made_is_refused_before_the_target_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let base = format!("--base-url=http://{}/v1", listener.local_addr().unwrap());
    let tmp = tempfile::tempdir().unwrap();
    std::fs::write(tmp.path().join("afile"), "x").unwrap();
    std::os::unix::fs::symlink("gone", tmp.path().join("dangling")).unwrap();
    std::fs::create_dir(tmp.path().join("old")).unwrap();
    let long = "x".repeat(300);
    let before = names(tmp.path());
    for out in ["/proc/x", "/sys/x", "afile/x", "dangling", &long, &format!("new/er/{long}")] {
        assert_refused(tmp.path(), &[&base, &format!("--out={out}")], "--out cannot be made: ");
        assert_eq!(names(tmp.path()), before, "{out}");
    }
    for (out, inside) in [("old", "old/run.json"), ("old", "./old/artifact.json"), ("new", "new/run.json")] {
        let argv = [&base, &format!("--out={out}"), "--overwrite", &format!("--json-out={inside}")];
        assert_refused(tmp.path(), &argv, "--json-out lies in the run's own directory");
        assert_eq!(names(tmp.path()), before, "{inside}");
    }
    for beside in ["/proc/x.json", &format!("{long}.json")] {
        let start = "--json-out ";
        assert_refused(tmp.path(), &[&base, "--out=new", &format!("--json-out={beside}")], start);
        assert_eq!(names(tmp.path()), before, "{beside}");
    }
    assert!(names(&tmp.path().join("old")).is_empty());
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nothing was sent");
}

#[test]
fn what_the_simulator_refuses_is_told_as_its_setting() {
    let tmp = tempfile::tempdir().unwrap();
    let document = tmp.path().join("run.json");
    std::fs::write(&document, "{}").unwrap();
    for (settings, why) in [
        ("cores=1000", "cores"),
        ("ledger=/nonexist/x", "ledger /nonexist/x: No such file or directory"),
        ("ledger=run.json", "no ledger"),
    ] {
        let sim = format!("--sim={settings}");
        let said = assert_refused(tmp.path(), &[&sim], "--sim cannot be used: ");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(
        (names(tmp.path()), std::fs::read_to_string(document).unwrap()),
        (vec!["run.json".to_owned()], "{}".to_owned())
    );
}

#[test]
fn more_workers_than_cores_are_refused() {
    let tmp = tempfile::tempdir().unwrap();
    assert_refused(tmp.path(), &["--sim", "--workers=1024"], "--workers must be at most ");
    assert!(names(tmp.path()).is_empty());
}

#[test]
fn a_pipe_is_not_waited_for() {
    let tmp = tempfile::tempdir().unwrap();
    let pipe = tmp.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let base = "--base-url=http://127.0.0.1:9/v1";
    assert_refused(tmp.path(), &[base, "--config=pipe"], "pipe: it is a pipe");
    assert_refused(tmp.path(), &[base, "--api-key-file=pipe"], "--api-key-file cannot be read: it is a pipe");
    assert_refused(
        tmp.path(),
        &["--sim=ttft=trace:pipe"],
        "--sim cannot be read: ttft: 'trace:pipe': pipe: it is a pipe",
    );
    let body = [base, "--endpoint=http", "--method=PUT", "--body=pipe"];
    assert_refused(tmp.path(), &body, "--body cannot be read: it is a pipe");
}
