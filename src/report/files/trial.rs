//! Whether the files of a run could be written, found out before anything is sent: by making and taking away, because no
//! look at permissions knows every file system. Everything is left as it was.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use super::{FilesError, PartFile, RunDir, remove_if_there};

/// The file that is made in a run's directory. Its name is longer than those of the run's own files.
const NAME: &str = ".hammerscale-trial.part";

/// Tries whether [`RunDir::create`] and a file in the directory would succeed.
///
/// # Errors
/// As [`RunDir::create`].
pub fn run_dir(path: &Path, overwrite: bool) -> Result<(), FilesError> {
    let is_missing =
        |path: &&Path| fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    // The last first.
    let missing = path.ancestors().take_while(|p| !p.as_os_str().is_empty()).take_while(is_missing);
    let missing: Vec<&Path> = missing.collect();
    let tried = RunDir::create(path, overwrite).and_then(|dir| file(&dir.path.join(NAME)));
    for made in missing {
        // Only what is empty goes, so that what somebody else puts there meanwhile stays.
        let _ = fs::remove_dir(made);
    }
    tried
}

/// Tries whether [`PartFile::beside`] would succeed.
///
/// # Errors
/// As [`PartFile::beside`].
pub fn beside(target: &Path) -> Result<(), FilesError> {
    file(&PartFile::name_beside(target)?)
}

fn file(path: &Path) -> Result<(), FilesError> {
    let opened = OpenOptions::new().write(true).create_new(true).open(path);
    opened.map_err(|e| FilesError::of("create", path, e))?;
    remove_if_there(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_trial_tells_what_creating_would_and_leaves_nothing() {
        let tmp = tempfile::tempdir().unwrap();
        let deep = tmp.path().join("deep/er/run");
        run_dir(&deep, false).unwrap();
        assert_eq!(names(tmp.path()), Vec::<String>::new());
        run_dir(tmp.path(), false).unwrap();
        fs::write(tmp.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("gone", tmp.path().join("link")).unwrap();
        let before = names(tmp.path());
        for name in
            ["file", "file/x", "link", "new/\0", &"x".repeat(300), &format!("new/{}", "x".repeat(300))]
        {
            let path = tmp.path().join(name);
            let want = run_dir(&path, true).unwrap_err();
            assert_eq!(names(tmp.path()), before, "{name}");
            let got = RunDir::create(&path, true).unwrap_err();
            assert_eq!(got.to_string(), want.to_string());
            let _ = fs::remove_dir(tmp.path().join("new"));
        }
        for path in ["/proc/x", "/sys/x", "/proc/x/y"] {
            assert!(run_dir(Path::new(path), false).is_err(), "{path}");
        }
        run_dir(tmp.path(), true).unwrap();
        assert!(matches!(run_dir(tmp.path(), false), Err(FilesError::Exists { .. })));
        beside(&tmp.path().join("artifact.json")).unwrap();
        beside(&tmp.path().join("file")).unwrap();
        assert!(beside(&tmp.path().join("x".repeat(300))).is_err());
        assert!(beside(Path::new("/proc/x")).is_err());
        assert_eq!(names(tmp.path()), before);
    }
}
