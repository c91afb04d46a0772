//! The files that grow while a run goes on: `requests.jsonl` and `events.bin`, fed by the collector.

use std::io;

use crate::aggregate::collector::RowSink;
use crate::aggregate::rows::Scaled;
use crate::record::RunId;
use crate::report::events::{EventsWriter, RequestKey};
use crate::report::files::{FilesError, PartFile, RunDir, RunFile};
use crate::report::requests::RequestsWriter;

/// Writes rows and chunks as they come.
#[derive(Debug)]
pub struct FileSink {
    requests: RequestsWriter<PartFile>,
    events: EventsWriter<PartFile>,
}

impl FileSink {
    /// Opens both files in the run's directory.
    ///
    /// # Errors
    /// When one of them cannot be made.
    pub fn create(dir: &RunDir, run_id: RunId) -> Result<Self, FilesError> {
        let requests = RequestsWriter::new(dir.part(RunFile::Requests)?, run_id);
        let events = EventsWriter::new(dir.part(RunFile::Events)?)
            .map_err(|e| FilesError::of("write", &dir.path().join(RunFile::Events.name()), e))?;
        Ok(Self { requests, events })
    }

    /// Ends both files and hands everything to the system, so that they can be read back; they keep their `.part`
    /// names.
    ///
    /// # Errors
    /// The system's reason.
    pub fn close(self) -> io::Result<Vec<PartFile>> {
        let mut requests = self.requests;
        requests.flush()?;
        let mut events = self.events.finish()?;
        io::Write::flush(&mut events)?;
        Ok(vec![requests.into_inner(), events])
    }
}

impl RowSink for FileSink {
    type Error = io::Error;

    fn row(&mut self, scaled: &Scaled) -> Result<(), io::Error> {
        self.requests.write(&scaled.row)?;
        self.events.write(RequestKey::of(&scaled.row), &scaled.chunks)
    }
}
