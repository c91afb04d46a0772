//! A JSON object whose keys keep the order in which they were put in.
//!
//! Why: documents show metrics in catalog order and outcomes in the order of their declaration, so that two documents
//! can be compared line by line. A key appears once; single lookups are linear, for maps of tens of entries, but
//! reading and collecting are not: a file may hold any number of keys.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An insertion-ordered object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedMap<V>(Vec<(String, V)>);

impl<V> OrderedMap<V> {
    /// An empty object.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Puts a value at the end, or in the place of an older one with the same key.
    pub fn set(&mut self, key: impl Into<String>, value: V) {
        let key = key.into();
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&V> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Whether there is no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many keys there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }
}

impl<V> Default for OrderedMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Into<String>, V> FromIterator<(K, V)> for OrderedMap<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut out: Vec<(String, V)> = Vec::new();
        for (key, value) in pairs {
            let key = key.into();
            let place = *places.entry(key.clone()).or_insert(out.len());
            match out.get_mut(place) {
                Some((_, old)) => *old = value,
                None => out.push((key, value)),
            }
        }
        Self(out)
    }
}

impl<V: Serialize> Serialize for OrderedMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for OrderedMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Pairs<V> {
            type Value = OrderedMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let pairs = std::iter::from_fn(|| map.next_entry::<String, V>().transpose());
                pairs.collect()
            }
        }
        deserializer.deserialize_map(Pairs(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_a_round_trip_and_a_key_stands_once() {
        let mut map: OrderedMap<u32> = [("z", 1), ("a", 2)].into_iter().collect();
        map.set("m", 3);
        map.set("z", 4);
        let text = serde_json::to_string(&map).unwrap();
        assert_eq!(text, r#"{"z":4,"a":2,"m":3}"#);
        assert_eq!(serde_json::from_str::<OrderedMap<u32>>(&text).unwrap(), map);
        assert_eq!((map.get("a"), map.get("b"), map.len(), map.is_empty()), (Some(&2), None, 3, false));
        let twice: OrderedMap<u32> = serde_json::from_str(r#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(twice.len(), 1);
        assert_eq!(twice.get("a"), Some(&2));
        assert!(serde_json::from_str::<OrderedMap<u32>>(r#"{"a":-1}"#).is_err());
    }
}
