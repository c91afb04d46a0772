//! Walking the objects and arrays of a JSON text with a cursor, whatever else the walker carries.

use super::cursor::Cursor;

/// Something that walks a text with a cursor. As with the cursor itself, `None` means "not certain".
pub(super) trait Walk<'a>: Sized {
    /// Where it is.
    fn cursor(&mut self) -> &mut Cursor<'a>;

    /// Walks the members of an object that begins at the cursor.
    #[inline(always)]
    fn object(&mut self, mut member: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.cursor().eat(b'{')?;
        if !self.cursor().first(b'}') {
            return Some(());
        }
        loop {
            member(self)?;
            if !self.cursor().next(b'}')? {
                return Some(());
            }
        }
    }

    /// Walks the elements of an array that begins at the cursor; says how many there were.
    #[inline(always)]
    fn array(&mut self, mut element: impl FnMut(&mut Self, u32) -> Option<()>) -> Option<u32> {
        self.cursor().eat(b'[')?;
        let mut count = 0_u32;
        if !self.cursor().first(b']') {
            return Some(count);
        }
        loop {
            element(self, count)?;
            count = count.checked_add(1)?;
            if !self.cursor().next(b']')? {
                return Some(count);
            }
        }
    }

    /// A string, or empty for null.
    #[inline]
    fn text_or_null(&mut self) -> Option<&'a [u8]> {
        if self.cursor().null() { Some(b"") } else { self.cursor().string() }
    }

    /// Nothing but null is certain here.
    #[inline]
    fn only_null(&mut self) -> Option<()> {
        self.cursor().null().then_some(())
    }
}

impl<'a> Walk<'a> for Cursor<'a> {
    #[inline(always)]
    fn cursor(&mut self) -> &mut Self {
        self
    }
}
