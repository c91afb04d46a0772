//! The files of a run on disk, written so that a crash at any instant leaves something readable and never a half
//! file under a final name.
//!
//! Everything streams to `NAME.part`. At the end every file is flushed and fsynced, then renamed, `run.json` last, and
//! the directory is fsynced: a directory with a `run.json` is a finished run. An interrupted process leaves the `.part`
//! files, which [`locate`] finds. An existing run is replaced only when that was asked for, and then only files with
//! our names are touched. Symbolic links are never written through (`O_EXCL`, `O_NOFOLLOW`). What the files contain
//! is not decided here.

pub mod trial;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use thiserror::Error;

/// A file that a run may leave behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunFile {
    /// The reference artifact.
    Artifact,
    /// One line per request.
    Requests,
    /// Chunk stamps of every request.
    Events,
    /// The report with plots.
    Html,
    /// The run document: its presence says that the run is complete.
    Run,
}

/// Why the files of a run cannot be written.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The directory is not empty and replacing it was not asked for.
    #[error("{} already holds {what}; give another directory or --overwrite", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
        /// What was found in it.
        what: &'static str,
    },
    /// The path exists and is no directory.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The path exists and is no regular file.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The path is a symbolic link that leads nowhere, or one that would have to be written through.
    #[error("{} is a symbolic link and is not written through; give the path it means", path.display())]
    Symlink {
        /// The link.
        path: PathBuf,
    },
    /// Permission denied, or a read-only file system.
    #[error("cannot write {}: {source}", path.display())]
    NotWritable {
        /// What could not be written.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The disk, or the user's share of it, is full.
    #[error("no space left for {}: {source}", path.display())]
    NoSpace {
        /// What could not be written.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Any other failure of the system.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Bytes collected before a write call: large enough that 100,000 records a second cost few calls, small enough that
/// a killed process loses less than a second of them.
const BUFFER_BYTES: usize = 256 * 1024;

/// The directory of one run, open for writing.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    overwrite: bool,
}

/// A file that is being written under its `.part` name.
#[derive(Debug)]
pub struct PartFile {
    part: PathBuf,
    target: PathBuf,
    writer: BufWriter<File>,
}

/// A file of a run as found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Where it is.
    pub path: PathBuf,
    /// It still carries its `.part` name: the run did not finish writing.
    pub partial: bool,
}

/// Finds a file of a run: under its final name, else its `.part`. `None` when there is neither.
#[must_use]
pub fn locate(dir: &Path, file: RunFile) -> Option<Located> {
    let whole = dir.join(file.name());
    if whole.is_file() {
        return Some(Located { path: whole, partial: false });
    }
    let part = part_name(&whole);
    part.is_file().then_some(Located { path: part, partial: true })
}

/// Whether the records of a run that did not finish stand in a directory.
#[must_use]
pub fn has_part(dir: &Path) -> bool {
    part_name(&dir.join(RunFile::Requests.name())).is_file()
}

impl RunFile {
    /// Every file, `run.json` last: the order of renaming.
    pub const ALL: [Self; 5] = [Self::Artifact, Self::Requests, Self::Events, Self::Html, Self::Run];

    /// The final name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Artifact => "artifact.json",
            Self::Requests => "requests.jsonl",
            Self::Events => "events.bin",
            Self::Html => "report.html",
            Self::Run => "run.json",
        }
    }
}

impl RunDir {
    /// Makes the directory (and its parents) or takes an empty one. With `overwrite`, a directory with an older run is
    /// taken too, and the older run stays until [`RunDir::finish`].
    ///
    /// # Errors
    /// [`FilesError::Exists`], [`FilesError::NotADirectory`], [`FilesError::Symlink`] for a link that leads nowhere,
    /// [`FilesError::NotWritable`] and the system's other reasons. Nothing was changed then, except that missing
    /// parents may have been made.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, FilesError> {
        match fs::metadata(path) {
            Ok(meta) if !meta.is_dir() => return Err(FilesError::NotADirectory { path: path.to_owned() }),
            Ok(_) if !overwrite => refuse_unless_empty(path)?,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => make_dir(path)?,
            Err(e) => return Err(FilesError::of("open", path, e)),
        }
        Ok(Self { path: path.to_owned(), overwrite })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens one file of the run for writing.
    ///
    /// # Errors
    /// [`FilesError::Exists`] when another process writes into the same directory, else the system's reasons.
    pub fn part(&self, file: RunFile) -> Result<PartFile, FilesError> {
        let target = self.path.join(file.name());
        let part = part_name(&target);
        if self.overwrite {
            remove_if_there(&part)?;
        }
        // `create_new` is O_EXCL: it neither follows a link nor truncates what somebody else made.
        let opened = OpenOptions::new().write(true).create_new(true).open(&part);
        let handle = opened.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => {
                FilesError::Exists { path: self.path.clone(), what: "a run that is being written" }
            }
            _ => FilesError::of("create", &part, e),
        })?;
        Ok(PartFile::new(part, target, handle))
    }

    /// Makes `parts` durable and gives them their final names. Files of an older run that this one did not write are
    /// removed, its `run.json` first, so that at no instant a `run.json` stands beside files of another run.
    ///
    /// # Errors
    /// The system's reasons. What was not renamed keeps its `.part` name.
    pub fn finish(self, parts: Vec<PartFile>) -> Result<(), FilesError> {
        let mut parts: Vec<_> = parts.into_iter().map(PartFile::settle).collect::<Result<_, _>>()?;
        if self.overwrite {
            for file in RunFile::ALL.iter().rev() {
                remove_if_there(&self.path.join(file.name()))?;
            }
            sync_dir(&self.path)?;
        }
        let run = self.path.join(RunFile::Run.name());
        parts.sort_by_key(|p| p.target == run);
        for settled in parts {
            settled.rename()?;
        }
        sync_dir(&self.path)
    }
}

impl PartFile {
    /// Opens a file outside the run's directory (`--json-out FILE`); an existing regular file will be replaced by
    /// [`PartFile::commit`] and is untouched until then.
    ///
    /// # Errors
    /// [`FilesError::Symlink`], [`FilesError::NotAFile`], and the system's reasons.
    pub fn beside(target: &Path) -> Result<Self, FilesError> {
        let part = Self::name_beside(target)?;
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&part)
            .map_err(|e| FilesError::of("create", &part, e))?;
        Ok(Self::new(part, target.to_owned(), opened))
    }

    /// Where a file outside the run's directory grows; nothing is there.
    fn name_beside(target: &Path) -> Result<PathBuf, FilesError> {
        match fs::symlink_metadata(target) {
            Ok(meta) if meta.is_symlink() => return Err(FilesError::Symlink { path: target.to_owned() }),
            Ok(meta) if !meta.is_file() => return Err(FilesError::NotAFile { path: target.to_owned() }),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(FilesError::of("open", target, e)),
        }
        // Its own name, so that two processes with the same target never write into one file.
        let mut own = target.as_os_str().to_owned();
        own.push(format!(".{}", std::process::id()));
        let part = part_name(Path::new(&own));
        // What a process of the same number left behind; a link is removed, not followed.
        remove_if_there(&part)?;
        Ok(part)
    }

    /// The final path.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Opens what was flushed so far for reading.
    ///
    /// # Errors
    /// The system's reasons.
    pub fn reopen(&self) -> io::Result<File> {
        File::open(&self.part)
    }

    /// Makes a file outside the run's directory durable under its final name.
    ///
    /// # Errors
    /// The system's reasons; the `.part` stays then.
    pub fn commit(self) -> Result<(), FilesError> {
        let dir = parent_of(&self.target).to_owned();
        self.settle()?.rename()?;
        sync_dir(&dir)
    }

    fn new(part: PathBuf, target: PathBuf, handle: File) -> Self {
        Self { part, target, writer: BufWriter::with_capacity(BUFFER_BYTES, handle) }
    }

    fn settle(mut self) -> Result<Settled, FilesError> {
        let synced = self.writer.flush().and_then(|()| self.writer.get_ref().sync_all());
        synced.map_err(|e| FilesError::of("write", &self.part, e))?;
        Ok(Settled { part: self.part, target: self.target })
    }
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl FilesError {
    /// The variant that fits a failure of the system.
    #[must_use]
    pub fn of(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path, source }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::NoSpace { path, source }
            }
            io::ErrorKind::NotADirectory => Self::NotADirectory { path },
            // ELOOP has no stable `ErrorKind`; `O_NOFOLLOW` answers with it.
            _ if source.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) => Self::Symlink { path },
            _ => Self::Io { action, path, source },
        }
    }
}

/// A file whose bytes are on disk under its `.part` name.
struct Settled {
    part: PathBuf,
    target: PathBuf,
}

impl Settled {
    fn rename(self) -> Result<(), FilesError> {
        fs::rename(&self.part, &self.target).map_err(|e| FilesError::of("rename to", &self.target, e))
    }
}

fn refuse_unless_empty(dir: &Path) -> Result<(), FilesError> {
    let mut entries = fs::read_dir(dir).map_err(|e| FilesError::of("read", dir, e))?;
    if entries.next().is_none() {
        return Ok(());
    }
    let what = match RunFile::ALL.iter().filter_map(|f| locate(dir, *f)).map(|l| l.partial).min() {
        Some(false) => "a run",
        Some(true) => "a run that did not finish",
        None => "files",
    };
    Err(FilesError::Exists { path: dir.to_owned(), what })
}

fn make_dir(path: &Path) -> Result<(), FilesError> {
    // `metadata` said that nothing is there; a link that leads nowhere is still something.
    if fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink()) {
        return Err(FilesError::Symlink { path: path.to_owned() });
    }
    fs::create_dir_all(path).map_err(|e| FilesError::of("make directory", path, e))?;
    sync_dir(parent_of(path))
}

fn part_name(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

fn remove_if_there(path: &Path) -> Result<(), FilesError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FilesError::of("remove", path, e)),
        _ => Ok(()),
    }
}

fn sync_dir(dir: &Path) -> Result<(), FilesError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| FilesError::of("sync", dir, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_all(dir: &RunDir, files: &[(RunFile, &str)]) -> Vec<PartFile> {
        let parts = files.iter().map(|(file, text)| {
            let mut part = dir.part(*file).unwrap();
            part.write_all(text.as_bytes()).unwrap();
            part
        });
        parts.collect()
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_stream_as_parts_and_get_their_names_at_the_end() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("deep/er/run");
        let dir = RunDir::create(&path, false).unwrap();
        let mut parts = write_all(&dir, &[(RunFile::Run, "{}"), (RunFile::Requests, "a\n")]);
        parts[1].flush().unwrap();
        assert_eq!(names(&path), ["requests.jsonl.part", "run.json.part"]);
        assert_eq!(fs::read_to_string(path.join("requests.jsonl.part")).unwrap(), "a\n");
        assert_eq!(
            locate(&path, RunFile::Requests),
            Some(Located { path: path.join("requests.jsonl.part"), partial: true })
        );
        dir.finish(parts).unwrap();
        assert_eq!(names(&path), ["requests.jsonl", "run.json"]);
        assert_eq!(
            locate(&path, RunFile::Run),
            Some(Located { path: path.join("run.json"), partial: false })
        );
        assert_eq!(locate(&path, RunFile::Html), None);
    }

    #[test]
    fn an_existing_run_is_refused_and_stays_as_it_was() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = RunDir::create(tmp.path(), false).expect("an empty directory is taken");
        let parts = write_all(&dir, &[(RunFile::Run, "first"), (RunFile::Html, "plot")]);
        assert!(matches!(
            RunDir::create(tmp.path(), false),
            Err(FilesError::Exists { what: "a run that did not finish", .. })
        ));
        dir.finish(parts).unwrap();
        let refused = RunDir::create(tmp.path(), false).unwrap_err();
        assert!(matches!(&refused, FilesError::Exists { what: "a run", .. }));
        assert!(refused.to_string().contains("--overwrite"), "{refused}");
        assert!(refused.to_string().contains(&*tmp.path().to_string_lossy()), "{refused}");
        assert_eq!(fs::read_to_string(tmp.path().join("run.json")).unwrap(), "first");
    }

    #[test]
    fn overwriting_keeps_the_old_run_until_the_new_one_is_complete() {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("notes.txt"), "mine").unwrap();
        assert!(matches!(RunDir::create(tmp.path(), false), Err(FilesError::Exists { what: "files", .. })));
        let dir = RunDir::create(tmp.path(), true).unwrap();
        let parts = write_all(&dir, &[(RunFile::Run, "first"), (RunFile::Html, "plot")]);
        dir.finish(parts).unwrap();
        fs::write(tmp.path().join("events.bin.part"), "left over").unwrap();

        let dir = RunDir::create(tmp.path(), true).unwrap();
        let parts = write_all(&dir, &[(RunFile::Run, "second"), (RunFile::Events, "stamps")]);
        assert_eq!(fs::read_to_string(tmp.path().join("run.json")).unwrap(), "first");
        dir.finish(parts).unwrap();
        assert_eq!(names(tmp.path()), ["events.bin", "notes.txt", "run.json"]);
        assert_eq!(fs::read_to_string(tmp.path().join("run.json")).unwrap(), "second");
        assert_eq!(fs::read_to_string(tmp.path().join("events.bin")).unwrap(), "stamps");
    }

    #[test]
    fn two_runs_cannot_write_into_one_directory() {
        let tmp = tempfile::tempdir().unwrap();
        let one = RunDir::create(tmp.path(), false).unwrap();
        let two = RunDir::create(tmp.path(), false).unwrap();
        let _held = one.part(RunFile::Requests).unwrap();
        assert!(matches!(two.part(RunFile::Requests), Err(FilesError::Exists { .. })));
    }

    #[test]
    fn links_are_not_written_through() {
        let tmp = tempfile::tempdir().unwrap();
        let nowhere = tmp.path().join("nowhere");
        std::os::unix::fs::symlink(tmp.path().join("absent"), &nowhere).unwrap();
        let refused = RunDir::create(&nowhere, true).unwrap_err();
        assert!(matches!(&refused, FilesError::Symlink { path } if *path == nowhere), "{refused}");

        let victim = tmp.path().join("victim");
        fs::write(&victim, "keep").unwrap();
        let run = tmp.path().join("run");
        let dir = RunDir::create(&run, true).unwrap();
        std::os::unix::fs::symlink(&victim, run.join("run.json.part")).unwrap();
        std::os::unix::fs::symlink(&victim, run.join("run.json")).unwrap();
        let parts = write_all(&dir, &[(RunFile::Run, "new")]);
        dir.finish(parts).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "keep");
        assert_eq!(fs::read_to_string(run.join("run.json")).unwrap(), "new");

        let link = tmp.path().join("out.json");
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(matches!(PartFile::beside(&link), Err(FilesError::Symlink { .. })));
        let plain = tmp.path().join("plain.json");
        let own = format!("plain.json.{}.part", std::process::id());
        std::os::unix::fs::symlink(&victim, tmp.path().join(own)).unwrap();
        let mut part = PartFile::beside(&plain).unwrap();
        part.write_all(b"new").unwrap();
        part.commit().unwrap();
        assert_eq!(fs::read_to_string(&plain).unwrap(), "new");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "keep");
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("file");
        fs::write(&file, "").unwrap();
        for (path, overwrite) in [(file.clone(), true), (file.join("below"), false)] {
            let refused = RunDir::create(&path, overwrite).unwrap_err();
            assert!(matches!(refused, FilesError::NotADirectory { .. }), "{refused:?}");
            assert!(refused.to_string().contains(&*path.to_string_lossy()), "{refused}");
        }
        assert!(matches!(PartFile::beside(tmp.path()), Err(FilesError::NotAFile { .. })));

        let denied = FilesError::of("create", &file, io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(matches!(denied, FilesError::NotWritable { .. }));
        let full = FilesError::of("write", &file, io::Error::from(io::ErrorKind::StorageFull));
        assert!(matches!(full, FilesError::NoSpace { .. }));
    }

    /// The kernel's own directories refuse new entries even to the administrator.
    #[test]
    fn an_unwritable_directory_is_refused_before_anything_is_made() {
        let path = Path::new("/sys/kernel/hammerscale-run");
        let refused = RunDir::create(path, false).unwrap_err();
        assert!(matches!(&refused, FilesError::NotWritable { path: p, .. } if p == path), "{refused:?}");
    }

    #[test]
    fn a_file_beside_replaces_the_old_one_only_at_the_end() {
        let tmp = tempfile::tempdir().unwrap();
        let target = tmp.path().join("out.json");
        fs::write(&target, "old").unwrap();
        let own = format!("out.json.{}.part", std::process::id());
        fs::write(tmp.path().join(own), "left over from before").unwrap();
        let mut part = PartFile::beside(&target).unwrap();
        part.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        part.commit().unwrap();
        assert_eq!(names(tmp.path()), ["out.json"]);
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
    }

    #[test]
    fn a_relative_name_without_a_directory_has_the_current_one_as_parent() {
        assert_eq!(parent_of(Path::new("run")), Path::new("."));
        assert_eq!(parent_of(Path::new("a/run")), Path::new("a"));
    }
}
