//! The raw record of a run as it happens: `requests.jsonl` and `events.bin` grow while requests end, and the documents
//! made from them join at the end under one [`RunDir::finish`].
//!
//! Chunks are not kept in memory: the summary reads them back from the file ([`Recorded::chunk_facts`]), which is
//! also the proof that the file holds what the document says.

use std::io::{self, BufReader, Write};
use std::path::Path;

use crate::aggregate::chunk::OutputChunk;
use crate::aggregate::chunk_facts::ChunkFacts;
use crate::aggregate::sink::RowSink;
use crate::aggregate::summary::Facts;
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::RunId;
use crate::report::events::{Ending, EventsError, EventsReader, EventsWriter, RequestKey, Walk};
use crate::report::files::{FilesError, PartFile, RunDir, RunFile};
use crate::report::requests::RequestsWriter;

/// The growing record of one run.
#[derive(Debug)]
pub struct RunRecorder {
    dir: RunDir,
    requests: RequestsWriter<PartFile>,
    events: EventsWriter<PartFile>,
}

/// A run whose last request has been recorded.
#[derive(Debug)]
pub struct Recorded {
    dir: RunDir,
    requests: PartFile,
    events: PartFile,
}

impl RunRecorder {
    /// Opens the directory and both files, so that what cannot be written is known before anything is sent.
    ///
    /// # Errors
    /// [`FilesError`].
    pub fn open(path: &Path, overwrite: bool, run_id: RunId) -> Result<Self, FilesError> {
        let dir = RunDir::create(path, overwrite)?;
        let requests = RequestsWriter::new(dir.part(RunFile::Requests)?, run_id);
        let events = dir.part(RunFile::Events)?;
        let events = EventsWriter::new(events).map_err(|e| FilesError::of("write", path, e))?;
        Ok(Self { dir, requests, events })
    }

    /// Writes the end of the record.
    ///
    /// # Errors
    /// [`FilesError`].
    pub fn close(self) -> Result<Recorded, FilesError> {
        let Self { dir, requests, events } = self;
        let failed = |e| FilesError::of("write", dir.path(), e);
        let mut requests = requests.into_inner();
        let mut events = events.finish().map_err(failed)?;
        requests.flush().and_then(|()| events.flush()).map_err(failed)?;
        Ok(Recorded { dir, requests, events })
    }
}

impl RowSink for RunRecorder {
    fn chunks(&mut self, row: &RequestRow, chunks: &[OutputChunk]) -> io::Result<()> {
        self.events.write(RequestKey::of(row), chunks)
    }

    fn row(&mut self, row: &RequestRow) -> io::Result<()> {
        self.requests.write(row)
    }

    /// The chunks of a row first: a row without them would be of a request that lost some.
    fn flush(&mut self) -> io::Result<()> {
        self.events.flush()?;
        self.requests.flush()
    }
}

impl Recorded {
    /// Reads the chunks of all requests back, several times.
    ///
    /// # Errors
    /// [`EventsError`]; a record that does not read back whole is [`io::ErrorKind::InvalidData`].
    pub fn chunk_facts(&self, rows: impl RowSource, facts: &Facts) -> Result<ChunkFacts, EventsError> {
        let open = || EventsReader::new(BufReader::new(self.events.reopen()?));
        let chunks = Walk::new(rows, open)?;
        match chunks.ending() {
            Ending::Complete => ChunkFacts::gather(rows, facts, |visit| chunks.each(visit)),
            other => {
                let text = format!("the file just written does not read back: {other:?}");
                Err(io::Error::new(io::ErrorKind::InvalidData, text).into())
            }
        }
    }

    /// Adds documents and gives every file its final name.
    ///
    /// # Errors
    /// [`FilesError`]; the record keeps its `.part` names then.
    pub fn finish(self, documents: &[(RunFile, &[u8])]) -> Result<(), FilesError> {
        let mut parts = vec![self.requests, self.events];
        for (file, bytes) in documents {
            let mut part = self.dir.part(*file)?;
            part.write_all(bytes).map_err(|e| FilesError::of("write", part.target(), e))?;
            parts.push(part);
        }
        self.dir.finish(parts)
    }
}
