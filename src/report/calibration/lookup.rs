//! Where a machine's latest calibration stands, and what a run takes over from it.
//!
//! One file per machine below the user's data directory, named by a [mark](crate::report::host::mark) of the machine, so
//! that a home directory that several machines share holds one for each. A calibration is of use only on the machine it
//! was made on: processor, number of cores and kernel are compared once more. A file that cannot be read is no
//! calibration, and no reason to fail a run.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{BiasDoc, CalibrationDoc, RowDoc, SCHEMA};
use crate::report::document::family;
use crate::report::document::provenance::HostDoc;
use crate::report::files::{FilesError, PartFile};
use crate::report::host::Host;
use crate::units::display;

/// Longest file that is read: a row takes about a kilobyte.
const MAX_BYTES: u64 = 1 << 20;

/// What a run says about the calibration of its machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationNote {
    /// The file.
    pub path: String,
    /// When the calibration was made, in UTC.
    pub date: String,
    /// Streams of the row that is next above the run's concurrency, or of the largest.
    pub streams: u64,
    /// That row's error of kernel stamps.
    pub kernel_us: NoteError,
    /// That row's error of user-space stamps.
    pub user_us: NoteError,
    /// That row's error of the time to first output, with its sign.
    pub ttft_bias_us: BiasDoc,
    /// That row's error of gaps, with its sign.
    pub gap_bias_us: BiasDoc,
}

/// The size of an error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoteError {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// The file of the machine with this mark: below `XDG_DATA_HOME`, else below `.local/share` of `HOME` (XDG Base
/// Directory Specification 0.8, which says that a relative path is to be ignored). `None` where the environment names
/// neither.
#[must_use]
pub fn place(mark: &str, env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("hammerscale").join(format!("calibration-{mark}.json")))
}

/// Writes a calibration to a file whose directory is made where it is missing. The file is there whole or not at all.
///
/// # Errors
/// [`FilesError`].
pub fn save(text: &str, path: &Path) -> Result<(), FilesError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(|e| FilesError::of("create", parent, e))?;
    }
    let mut file = PartFile::beside(path)?;
    file.write_all(text.as_bytes()).map_err(|e| FilesError::of("write", path, e))?;
    file.commit()
}

/// What a run with this many streams takes over from a file; `None` where there is no calibration of this machine.
#[must_use]
pub fn find(path: &Path, host: &Host, streams: f64) -> Option<CalibrationNote> {
    let calibration = read(path).ok()?;
    if !is_same(&calibration.host, &HostDoc::of(host)) {
        return None;
    }
    Some(CalibrationNote::of(path, &calibration.created_at, calibration.row_for(streams)?))
}

fn read(path: &Path) -> io::Result<CalibrationDoc> {
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    let calibration: CalibrationDoc = serde_json::from_str(&text)?;
    if family(&calibration.schema) == family(SCHEMA) {
        return Ok(calibration);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "another document"))
}

fn is_same(a: &HostDoc, b: &HostDoc) -> bool {
    (&a.cpu, a.cores, &a.kernel) == (&b.cpu, b.cores, &b.kernel)
}

impl CalibrationNote {
    /// What it says, for the summary of a run.
    #[must_use]
    pub fn sentence(&self) -> String {
        let shown = |us: Option<f64>| display::span_ms(us.unwrap_or(f64::NAN) / 1e3);
        let day = self.date.split('T').next().unwrap_or_default();
        let streams = display::counted(self.streams, "stream");
        let [kernel, user] =
            [self.kernel_us, self.user_us].map(|e| format!("p50 {}, p99 {}", shown(e.p50), shown(e.p99)));
        format!("calibrated {day} at {streams}: kernel stamps off by {kernel}; user stamps {user}")
    }

    fn of(path: &Path, date: &str, row: &RowDoc) -> Self {
        let RowDoc { streams, kernel_us, user_us, ttft_bias_us, gap_bias_us, .. } = row;
        Self {
            path: path.display().to_string(),
            date: date.to_owned(),
            streams: *streams,
            kernel_us: NoteError { p50: kernel_us.p50, p99: kernel_us.p99 },
            user_us: NoteError { p50: user_us.p50, p99: user_us.p99 },
            ttft_bias_us: *ttft_bias_us,
            gap_bias_us: *gap_bias_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::calibration::testing::{calibration, row};

    #[test]
    fn the_place_follows_the_environment() {
        let with = |data: Option<&'static str>, home: Option<&'static str>| {
            place("ab", &move |name| match name {
                "XDG_DATA_HOME" => data.map(OsString::from),
                "HOME" => home.map(OsString::from),
                _ => None,
            })
        };
        let below = |dir: &str| Some(PathBuf::from(dir).join("hammerscale/calibration-ab.json"));
        assert_eq!(with(Some("/data"), Some("/home/u")), below("/data"));
        assert_eq!(with(None, Some("/home/u")), below("/home/u/.local/share"));
        assert_eq!(with(Some("relative"), Some("/home/u")), below("/home/u/.local/share"));
        assert_eq!(with(Some(""), None), None);
    }

    #[test]
    fn what_was_saved_is_found_on_this_machine_and_on_no_other() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("not/there/yet.json");
        let host = Host { kernel: Some("6.1".to_owned()), cores: Some(2), ..Host::default() };
        let mut calibration = calibration(vec![row(1), row(100)]);
        calibration.host = HostDoc::of(&host);
        save(&calibration.to_json().unwrap(), &path).unwrap();
        let note = find(&path, &host, 20.0).unwrap();
        assert_eq!((note.streams, note.date), (100, calibration.created_at.clone()));
        assert_eq!((note.kernel_us.p50, note.kernel_us.p99), (Some(1.7), Some(2.6)));
        for other in [
            Host { kernel: Some("6.2".to_owned()), ..host.clone() },
            Host { cores: Some(3), ..host.clone() },
            Host { cpu: Some("another".to_owned()), ..host.clone() },
        ] {
            assert_eq!(find(&path, &other, 20.0), None, "{other:?}");
        }
        // A governor comes and goes.
        assert!(
            find(&path, &Host { governor: Some("powersave".to_owned()), ..host.clone() }, 20.0).is_some()
        );
        calibration.schema = "hammerscale.calibration/2.0".to_owned();
        save(&calibration.to_json().unwrap(), &path).unwrap();
        assert_eq!(find(&path, &host, 20.0), None);
        fs::write(&path, "{").unwrap();
        assert_eq!(find(&path, &host, 20.0), None);
        assert_eq!(find(scratch.path(), &host, 20.0), None);
    }
}
