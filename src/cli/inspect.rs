//! `hammerscale inspect`: captured bytes, as the client reads them.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::Path;

use crate::cli::fail;
use crate::config::inspect_args::{CapturedForm, InspectArgs};
use crate::exit::Exit;
use crate::inspect::{Capture, Form};
use crate::report::inspect::Reader;
use crate::wire::dialect::Dialect;

/// Most bytes that are read: the whole capture is held, and a pipe may never end. No answer is a tenth of it.
const MAX_INPUT_BYTES: u64 = 1 << 28;

/// Runs the sub-command. The bytes' own faults are a result, with exit code 0.
#[must_use]
pub fn run(args: &InspectArgs) -> Exit {
    if let Err(error) = args.check() {
        return fail(&error, Exit::Usage);
    }
    let bytes = match read(&args.file) {
        Ok(bytes) => bytes,
        Err(error) => return fail(&format!("{}: {error}", args.file.display()), Exit::Usage),
    };
    let form = match args.form {
        CapturedForm::Sse => Form::Sse,
        CapturedForm::Http => Form::Http,
        CapturedForm::Chat => Form::Answer(Dialect::Chat),
        CapturedForm::Completions => Form::Answer(Dialect::Completions),
        CapturedForm::Responses => Form::Answer(Dialect::Responses),
        CapturedForm::Messages => Form::Answer(Dialect::Messages),
        CapturedForm::Embeddings => Form::Answer(Dialect::Embeddings),
    };
    // Embeddings are never streamed.
    let streamed = !args.no_stream && form != Form::Answer(Dialect::Embeddings);
    let capture = Capture { bytes: &bytes, cut: args.cut, method: args.method, closed: args.eof, streamed };
    let reader = if args.json { Reader::Program } else { Reader::Person };
    match capture.print(form, BufWriter::new(io::stdout().lock()), reader) {
        // The reader of a pipe has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write to standard output: {error}"), Exit::Internal)
        }
        _ => Exit::Ok,
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = MAX_INPUT_BYTES + 1;
    if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 256 MiB, which no answer is"));
    }
    Ok(bytes)
}
