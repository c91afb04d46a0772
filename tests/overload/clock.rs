//! The clock: a wall clock that is set while a run goes on moves no latency, and a run of a busy machine has its axis
//! right.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::STAMP_MEDIAN_US;
use crate::load::{Hogs, Load, alone, cores};

/// The promise for the axis against CLOCK_MONOTONIC, in parts per million of the run.
const CLOCK_ERROR_PPM: f64 = 0.1;

/// How long the run under full load is, in seconds; unset, three.
const SECONDS: &str = "HAMMERSCALE_CLOCK_SECONDS";

/// A stamp that moved with the wall clock would be off by an hour. What a stamp may be off by on a machine that stops for
/// a while is far below.
const MOVED_US: f64 = 1e6;

/// Builds the library that sets the wall clock of one program: of its readings and of its receive stamps alike.
fn shim(folder: &Path) -> PathBuf {
    let library = folder.join("shim.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/replay/shim.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .status();
    assert!(built.expect("this test needs cc").success());
    library
}

#[test]
fn a_wall_clock_that_is_set_moves_no_latency() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let library = shim(folder.path());
    // An hour forward, then two hours back, both while the streams run: a busy machine takes a second or two to start a
    // run, and the last events come after five.
    let env = [("LD_PRELOAD", library.to_str().unwrap()), ("WALL_STEPS", "2.5:3600,4:-7200")];
    let seen = Load { streams: 20, events: 260, gap: "20ms" }.run(&[], &env, |_| ());
    let instrument = seen.instrument();
    assert_eq!(instrument.clock.wall_steps, 2);
    assert!(instrument.notes.iter().any(|note| note.contains("was set 2 times")), "{:?}", instrument.notes);
    assert_ne!(instrument.verdict, "invalid", "{:?}", instrument.reasons);
    assert_eq!((instrument.inverted_requests, instrument.kernel_stamps_missing), (0, 0));
    seen.assert_median(STAMP_MEDIAN_US);
    for errors in [&seen.budget.kernel, &seen.budget.user, &seen.budget.gaps.error, &seen.budget.first_output]
    {
        let worst = errors.magnitude.percentiles_us.unwrap().max;
        assert!(worst < MOVED_US, "a stamp that is off by {worst} µs");
    }
}

#[test]
fn the_axis_of_a_run_on_a_busy_machine_is_right() {
    let _alone = alone();
    let seconds: usize = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let every_core = cores();
    let seen = {
        let _hogs = Hogs::on(&[every_core.clone(), every_core].concat());
        Load { streams: 4, events: seconds * 50, gap: "20ms" }.run(&[], &[], |_| ())
    };
    let clock = &seen.instrument().clock;
    let (error, over) = (clock.error_us.unwrap(), clock.compared_over_s.unwrap());
    assert!(over >= seconds as f64, "{over} s");
    // A reading is good to its bracket, and so are the two anchors around it.
    let noise = 2.0 * clock.bracket_us.unwrap();
    let allowed = CLOCK_ERROR_PPM * over + noise;
    assert!(error <= allowed, "the axis is off by {error} µs, allowed are {allowed} in {over} s: {clock:?}");
    eprintln!("clock error {error} µs in {over} s, brackets {:?} µs", clock.bracket_us);
}
