//! How the keys of an object that matter are found among those that do not, and that none of them stands twice.

/// Keys seen so far in one object, so that a second one of the same name is noticed.
#[derive(Default)]
pub(super) struct Seen(u32);

impl Seen {
    /// `None` when `key` stood before.
    #[inline]
    pub(super) fn once(&mut self, key: u32) -> Option<()> {
        let bit = 1_u32.wrapping_shl(key);
        if self.0 & bit != 0 {
            return None;
        }
        self.0 |= bit;
        Some(())
    }
}

/// Declares the keys of one object that matter (the rest is skipped) as an enum with a reader: first the usual
/// spelling `"key":` by one comparison each, then whatever white space allows. A key with escapes is not certain.
macro_rules! keys {
    ($name:ident { $($key:ident = $text:literal,)+ } skipped { $($skipped:literal,)* }) => {
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($key,)+ Other }

        impl $name {
            /// Goes past the key and its colon, up to the value.
            #[inline(always)]
            pub(super) fn read(cursor: &mut $crate::wire::dialect::cursor::Cursor<'_>) -> Option<Self> {
                let key = Self::usual(cursor).or_else(|| Self::unusual(cursor))?;
                cursor.skip_space();
                Some(key)
            }

            #[inline(always)]
            fn usual(cursor: &mut $crate::wire::dialect::cursor::Cursor<'_>) -> Option<Self> {
                let window = cursor.window()?;
                $({
                    const KEY: &[u8] = concat!("\"", $text, "\":").as_bytes();
                    if cursor.eat_key(window, KEY, const { $crate::wire::dialect::word::Prefix::of(KEY) }) {
                        return Some(Self::$key);
                    }
                })+
                $({
                    const KEY: &[u8] = concat!("\"", $skipped, "\":").as_bytes();
                    if cursor.eat_key(window, KEY, const { $crate::wire::dialect::word::Prefix::of(KEY) }) {
                        return Some(Self::Other);
                    }
                })*
                None
            }

            fn unusual(cursor: &mut $crate::wire::dialect::cursor::Cursor<'_>) -> Option<Self> {
                let text = cursor.plain_string()?;
                cursor.colon()?;
                $(if text == $text.as_bytes() { return Some(Self::$key); })+
                Some(Self::Other)
            }
        }
    };
}

pub(super) use keys;
