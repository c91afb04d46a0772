//! Where finished requests go while the run is still going on. The collector calls it off the worker cores; `report`
//! implements it over files, because only that room knows serialized forms.

use std::io;

use crate::aggregate::chunk::OutputChunk;
use crate::metrics::row::RequestRow;

/// A consumer of finished requests.
pub trait RowSink {
    /// Takes one request with all its output chunks in order of arrival, once, when it has ended.
    ///
    /// # Errors
    /// Those of writing; the run goes on measuring and says so at its end.
    fn finished(&mut self, row: &RequestRow, chunks: &[OutputChunk]) -> io::Result<()>;

    /// Hands everything taken so far to the system, so that a killed process loses little. Meant to be called about once
    /// a second.
    ///
    /// # Errors
    /// Those of writing.
    fn flush(&mut self) -> io::Result<()>;
}
