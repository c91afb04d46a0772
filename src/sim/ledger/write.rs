//! Writing the ledger without slowing the sender: rows go into a block in memory, full blocks to a thread of their
//! own that writes them to the file.
//!
//! On the send path a row costs one copy of 48 bytes. Blocks are recycled, so nothing is allocated once the first
//! few exist. A disk that stalls costs memory up to [`MAX_WAITING_BLOCKS`], then time: the sender waits, and what it
//! sends late is in the ledger as late. Nothing is ever dropped.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::codec::{self, EVENT_BYTES, MAX_RECORD_BYTES};
use super::{EventSent, Header, MAGIC, Record, Totals};

/// Bytes of a block: about 680 events. One write of this size takes some 10 µs, which is the longest the writer can
/// hold up a sender on the same core; a quarter would double the number of wake-ups for no shorter tail.
const BLOCK_BYTES: usize = 32 * 1024;

/// Blocks that may wait for the disk: 64 MiB, about seven seconds at 200,000 events a second.
const MAX_WAITING_BLOCKS: usize = 2048;

/// The ledger, or none: the server writes into this without asking whether a ledger is kept.
#[derive(Debug, Default)]
pub(crate) struct Book {
    writer: Option<LedgerWriter>,
    totals: Totals,
}

/// Writes one ledger.
#[derive(Debug)]
pub(crate) struct LedgerWriter {
    block: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    failed: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl Book {
    /// A book that is kept by `writer`, or by nobody.
    pub(crate) fn new(writer: Option<LedgerWriter>) -> Self {
        Self { writer, totals: Totals::default() }
    }

    /// Enters an event.
    pub(crate) fn event(&mut self, event: &EventSent) {
        self.totals.events += 1;
        if let Some(writer) = &mut self.writer {
            writer.make_room(EVENT_BYTES);
            codec::put_event(event, &mut writer.block);
        }
    }

    /// Enters any other record.
    pub(crate) fn enter(&mut self, record: &Record) {
        match record {
            Record::ConnectionOpened(_) => self.totals.connections += 1,
            Record::RequestArrived(_) => self.totals.requests += 1,
            Record::EventSent(_) => self.totals.events += 1,
            _ => {}
        }
        if let Some(writer) = &mut self.writer {
            writer.make_room(MAX_RECORD_BYTES);
            codec::put(record, &mut writer.block);
        }
    }

    /// Whether rows are waiting in the current block.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.writer.as_ref().is_some_and(|w| !w.block.is_empty())
    }

    /// Hands the current block to the writer thread, so that a kill loses little.
    pub(crate) fn flush(&mut self) {
        if let Some(writer) = &mut self.writer
            && !writer.block.is_empty()
        {
            writer.hand_over();
        }
    }

    /// Whether the file could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.writer.as_ref().is_some_and(|w| w.failed.load(Ordering::Relaxed))
    }

    /// Writes the last record and waits until everything is in the file.
    ///
    /// # Errors
    /// Whatever writing gave.
    pub(crate) fn finish(mut self) -> io::Result<Totals> {
        let totals = self.totals;
        self.enter(&Record::End(totals));
        if let Some(mut writer) = self.writer {
            writer.hand_over();
            drop(writer.full);
            writer.thread.join().map_err(|_| io::Error::other("the ledger's writer thread panicked"))??;
        }
        Ok(totals)
    }
}

impl LedgerWriter {
    /// Creates the file (an existing ledger is replaced) and starts the thread that writes it, on the cores of the
    /// caller.
    ///
    /// # Errors
    /// When the file is there and no ledger, cannot be created or written, or the thread not be started.
    pub(crate) fn create(path: &Path, header: &Header) -> io::Result<Self> {
        refuse_other_file(path)?;
        let mut file = File::create(path)?;
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        codec::put_header(header, &mut block);
        file.write_all(&block)?;
        block.clear();
        let (full, blocks) = sync_channel::<Vec<u8>>(MAX_WAITING_BLOCKS);
        let (give_back, empty) = sync_channel::<Vec<u8>>(MAX_WAITING_BLOCKS);
        let failed = Arc::new(AtomicBool::new(false));
        let seen_failed = Arc::clone(&failed);
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(move || {
            let result = write_blocks(file, &blocks, &give_back);
            seen_failed.store(result.is_err(), Ordering::Relaxed);
            result
        })?;
        Ok(Self { block, full, empty, failed, thread })
    }

    fn make_room(&mut self, bytes: usize) {
        if self.block.len() + bytes > BLOCK_BYTES {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BLOCK_BYTES));
        let block = std::mem::replace(&mut self.block, next);
        if self.full.send(block).is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
    }
}

/// A mistyped name must not cost somebody's results. An empty file holds none, and what is no regular file (a device)
/// keeps none.
fn refuse_other_file(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() > 0 => {}
        _ => return Ok(()),
    }
    let mut start = [0; MAGIC.len()];
    match File::open(path)?.read_exact(&mut start) {
        Ok(()) if start == MAGIC => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file that is no ledger, and it is kept",
        )),
    }
}

fn write_blocks(
    mut file: File,
    blocks: &Receiver<Vec<u8>>,
    give_back: &SyncSender<Vec<u8>>,
) -> io::Result<()> {
    while let Ok(mut block) = blocks.recv() {
        file.write_all(&block)?;
        block.clear();
        // A full channel only means that enough empty blocks are there.
        let _ = give_back.try_send(block);
    }
    file.sync_data()
}
