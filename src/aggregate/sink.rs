//! Where finished requests go while the run is still going on. The collector calls it off the worker cores; `report`
//! implements it over files, because only that room knows serialized forms.

use std::io;

use crate::aggregate::chunk::OutputChunk;
use crate::metrics::row::RequestRow;

/// A consumer of finished requests.
pub trait RowSink {
    /// Takes all output chunks of one request in order of arrival, once, when it has ended: they are kept nowhere else.
    ///
    /// # Errors
    /// Those of writing; the run goes on measuring and says so at its end.
    fn chunks(&mut self, row: &RequestRow, chunks: &[OutputChunk]) -> io::Result<()>;

    /// Takes a row, once, after its chunks and in the same order. A row is some hundred pieces of text, so that this may
    /// come later, when there is time.
    ///
    /// # Errors
    /// As for [`RowSink::chunks`].
    fn row(&mut self, row: &RequestRow) -> io::Result<()>;

    /// Hands everything taken so far to the system, so that a killed process loses little. Meant to be called about once
    /// a second.
    ///
    /// # Errors
    /// Those of writing.
    fn flush(&mut self) -> io::Result<()>;
}
