//! `hammerscale sim`: serve until told to stop, or print a ledger.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use crate::cli::fail;
use crate::config::sim_args::SimArgs;
use crate::exit::Exit;
use crate::sim::ledger::{LedgerError, dump_json_lines};
use crate::sim::{Server, SimError};

/// Runs the sub-command. Says where it listens in the first line on stdout and what went wrong in one line on stderr.
/// A SIGINT, a SIGTERM and (with `--exit-with-stdin`) the end of standard input are its regular end.
#[must_use]
pub fn run(args: SimArgs) -> Exit {
    if let Some(path) = &args.dump_ledger {
        return dump(path);
    }
    let server = match args.resolve() {
        Ok(options) => Server::bind(options),
        Err(error) => return fail(&error, Exit::Usage),
    };
    let server = match server {
        Ok(server) => server,
        Err(error @ SimError::System(_)) => return fail(&error, Exit::Internal),
        Err(error) => return fail(&error, Exit::Usage),
    };
    let mut stdout = io::stdout().lock();
    // Nobody reading is no reason not to serve: the port may be a known one.
    let _ = writeln!(stdout, "listening http://{}/v1", server.address()).and_then(|()| stdout.flush());
    drop(stdout);
    match server.run() {
        Ok(_) => Exit::Ok,
        Err(error) => fail(&error, Exit::Internal),
    }
}

fn dump(path: &Path) -> Exit {
    let file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(source) => return fail(&LedgerError::File { path: path.to_owned(), source }, Exit::Usage),
    };
    match dump_json_lines(file, &mut BufWriter::new(io::stdout().lock())) {
        Ok(true) => Exit::Ok,
        Ok(false) => fail(&"the ledger was cut short; everything before the cut is printed", Exit::Ok),
        // The reader of a pipe has seen enough.
        Err(LedgerError::Read(e)) if e.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(error) => fail(&error, Exit::Usage),
    }
}
