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
    /// To be read back.
    events: PartFile,
    /// The other files, written to their ends.
    parts: Vec<PartFile>,
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
        Ok(Recorded { dir, events, parts: vec![requests] })
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

    /// Adds a document as it is made: what grows with the number of requests need not be in memory as text.
    ///
    /// # Errors
    /// [`FilesError`].
    pub fn add(
        &mut self,
        file: RunFile,
        write: impl FnOnce(&mut PartFile) -> io::Result<()>,
    ) -> Result<(), FilesError> {
        let mut part = self.dir.part(file)?;
        write(&mut part).map_err(|e| FilesError::of("write", part.target(), e))?;
        self.parts.push(part);
        Ok(())
    }

    /// Adds documents and gives every file its final name.
    ///
    /// # Errors
    /// [`FilesError`]; the record keeps its `.part` names then.
    pub fn finish(mut self, documents: &[(RunFile, &[u8])]) -> Result<(), FilesError> {
        for (file, bytes) in documents {
            self.add(*file, |part| part.write_all(bytes))?;
        }
        self.parts.push(self.events);
        self.dir.finish(self.parts)
    }
}
