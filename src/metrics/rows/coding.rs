//! The two directions of a packed row: bits for what is there and for small values, and behind them the values as
//! variable-length integers. What is zero or missing takes one bit.

use crate::metrics::varint::{put_signed, put_unsigned, take_signed, take_unsigned};
use crate::units::Nanos;

/// Makes the bytes of one row.
#[derive(Debug, Clone, Default)]
pub(super) struct Packer {
    bits: u128,
    width: u32,
    values: Vec<u8>,
}

/// Takes the bytes of one row apart, in the order in which they were put together. `None` for bytes that no
/// [`Packer`] made.
#[derive(Debug)]
pub(super) struct Unpacker<'a> {
    bits: u128,
    values: &'a [u8],
}

/// The lower half of the bits has a fixed width, because it is always full; the upper half is short.
const LOW_BYTES: usize = 8;

impl Packer {
    pub(super) fn clear(&mut self) {
        (self.bits, self.width) = (0, 0);
        self.values.clear();
    }

    /// Bytes of the row at most.
    pub(super) fn size(&self) -> usize {
        const HIGH_BYTES: usize = 10;
        LOW_BYTES + HIGH_BYTES + self.values.len()
    }

    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        let [low @ .., _, _, _, _, _, _, _, _] = self.bits.to_le_bytes();
        out.extend_from_slice(&low);
        put_unsigned(out, u64::try_from(self.bits >> (8 * LOW_BYTES)).unwrap_or_default());
        out.extend_from_slice(&self.values);
    }

    pub(super) fn bits(&mut self, value: u32, width: u32) {
        self.bits |= u128::from(value) << self.width;
        self.width += width;
    }

    pub(super) fn bit(&mut self, value: bool) {
        self.bits(u32::from(value), 1);
    }

    pub(super) fn unsigned(&mut self, value: impl Into<u64>) {
        put_unsigned(&mut self.values, value.into());
    }

    pub(super) fn signed(&mut self, value: i64) {
        put_signed(&mut self.values, value);
    }

    /// A number that is often zero.
    pub(super) fn count(&mut self, value: impl Into<u64>) {
        let value = value.into();
        self.maybe((value != 0).then_some(value));
    }

    pub(super) fn maybe(&mut self, value: Option<impl Into<u64>>) {
        self.bit(value.is_some());
        if let Some(value) = value {
            self.unsigned(value);
        }
    }

    /// An instant as its distance from another one; every instant survives, because the distance wraps.
    pub(super) fn instant(&mut self, at: Option<Nanos>, from: Nanos) {
        self.bit(at.is_some());
        if let Some(at) = at {
            self.signed(at.0.wrapping_sub(from.0));
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.unsigned(bytes.len() as u64);
        self.values.extend_from_slice(bytes);
    }

    pub(super) fn maybe_text(&mut self, text: Option<&str>) {
        // Rare ones stand among the values, whose number is not bounded as that of the bits is.
        self.unsigned(u8::from(text.is_some()));
        if let Some(text) = text {
            self.bytes(text.as_bytes());
        }
    }
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(mut bytes: &'a [u8]) -> Option<Self> {
        let (low, rest) = bytes.split_first_chunk::<LOW_BYTES>()?;
        bytes = rest;
        let high = take_unsigned(&mut bytes)?;
        let bits = u128::from(u64::from_le_bytes(*low)) | (u128::from(high) << (8 * LOW_BYTES));
        Some(Self { bits, values: bytes })
    }

    /// What follows the row.
    pub(super) fn rest(self) -> &'a [u8] {
        self.values
    }

    #[expect(clippy::cast_possible_truncation, reason = "the mask keeps fewer than 32 bits")]
    pub(super) fn bits(&mut self, width: u32) -> u32 {
        let value = (self.bits & ((1 << width) - 1)) as u32;
        self.bits >>= width;
        value
    }

    pub(super) fn bit(&mut self) -> bool {
        self.bits(1) != 0
    }

    pub(super) fn unsigned<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(take_unsigned(&mut self.values)?).ok()
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        take_signed(&mut self.values)
    }

    pub(super) fn count<T: TryFrom<u64> + Default>(&mut self) -> Option<T> {
        Some(self.maybe()?.unwrap_or_default())
    }

    /// The outer `None` is for damaged bytes.
    #[expect(clippy::option_option, reason = "a missing value and missing bytes are two things")]
    pub(super) fn maybe<T: TryFrom<u64>>(&mut self) -> Option<Option<T>> {
        if self.bit() { Some(Some(self.unsigned()?)) } else { Some(None) }
    }

    /// The outer `None` is for damaged bytes.
    #[expect(clippy::option_option, reason = "a missing value and missing bytes are two things")]
    pub(super) fn instant(&mut self, from: Nanos) -> Option<Option<Nanos>> {
        if self.bit() { Some(Some(Nanos(from.0.wrapping_add(self.signed()?)))) } else { Some(None) }
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.unsigned()?;
        let (bytes, rest) = self.values.split_at_checked(length)?;
        self.values = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.bytes()?).ok().map(str::to_owned)
    }

    /// The outer `None` is for damaged bytes.
    #[expect(clippy::option_option, reason = "a missing value and missing bytes are two things")]
    pub(super) fn maybe_text(&mut self) -> Option<Option<String>> {
        match self.unsigned::<u8>()? {
            0 => Some(None),
            _ => Some(Some(self.text()?)),
        }
    }
}
