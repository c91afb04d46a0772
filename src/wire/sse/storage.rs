//! Buffers that grow up to a ceiling: the limits bound what is allocated and not only what is held.

use super::RETAINED_BYTES;

/// Empties a buffer between two streams; of its storage at most [`RETAINED_BYTES`] stay.
pub(super) fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(RETAINED_BYTES);
}

/// Puts `value` in the place of what the buffer holds.
pub(super) fn replace_within(buffer: &mut Vec<u8>, value: &[u8], ceiling_bytes: usize) {
    buffer.clear();
    reserve_within(buffer, value.len(), ceiling_bytes);
    buffer.extend_from_slice(value);
}

/// Makes room for `additional` bytes. Doubles the storage as `Vec` does, so that growth stays linear, but stops the
/// doubling at `ceiling_bytes`.
pub(super) fn reserve_within(buffer: &mut Vec<u8>, additional: usize, ceiling_bytes: usize) {
    let needed = buffer.len() + additional;
    if needed > buffer.capacity() {
        let target = buffer.capacity().saturating_mul(2).min(ceiling_bytes).max(needed);
        buffer.reserve_exact(target - buffer.len());
    }
}
