//! Reading the files that a user names: bounded, and never waiting for somebody to write.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// Reads at most `limit` bytes.
///
/// # Errors
/// The system's reasons, and what is no file: a pipe or a socket would be waited for without an end. A device or a file of
/// the kernel's is taken.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    let wrong = if kind.is_fifo() {
        Some("is a pipe")
    } else if kind.is_socket() {
        Some("is a socket")
    } else {
        kind.is_dir().then_some("is a directory")
    };
    if let Some(wrong) = wrong {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it {wrong} and no regular file")));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
