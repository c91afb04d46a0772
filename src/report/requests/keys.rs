//! The names of a struct's fields in a document, from the very code that reads them.

use std::fmt::{self, Display};

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// The keys of `T`, a struct, in their order; none for anything else.
pub(super) fn of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(Asked) {
        Err(Answer(keys)) => keys,
        Ok(_) => &[],
    }
}

/// Gives no value, and takes down which fields it was asked for.
struct Asked;

#[derive(Debug)]
struct Answer(&'static [&'static str]);

impl<'de> Deserializer<'de> for Asked {
    type Error = Answer;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Answer> {
        Err(Answer(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Answer> {
        Err(Answer(fields))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl de::Error for Answer {
    fn custom<T: Display>(_: T) -> Self {
        Self(&[])
    }
}

impl std::error::Error for Answer {}

impl Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "asked for {:?}", self.0)
    }
}
