//! The places of a worker's connections. Storage for a connection is made when its place is first used: most slots
//! never need their second one, and ten thousand slots would pay for it.

use crate::client::connection::{Connection, State};
use crate::wire::response::AnswerRule;

/// Connections by place. A place that was never used is a closed connection.
#[derive(Debug)]
pub(crate) struct Connections {
    places: Vec<Option<Box<Connection>>>,
    rule: AnswerRule,
}

impl Connections {
    /// So many places, all empty.
    pub(crate) fn new(places: usize, rule: AnswerRule) -> Self {
        Self { places: std::iter::repeat_with(|| None).take(places).collect(), rule }
    }

    /// How many places there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds an empty place; its number.
    pub(crate) fn add(&mut self) -> usize {
        self.places.push(None);
        self.places.len() - 1
    }

    /// The connection of a place; `None` where there never was one.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Connection> {
        self.places.get_mut(place)?.as_deref_mut()
    }

    /// The same, to look at.
    pub(crate) fn get(&self, place: usize) -> Option<&Connection> {
        self.places.get(place)?.as_deref()
    }

    /// What the connection of a place is doing.
    pub(crate) fn state(&self, place: usize) -> State {
        self.get(place).map_or(State::Closed, |connection| connection.state)
    }

    /// The connection of a place, made when there was none; `None` when there is no such place.
    pub(crate) fn make(&mut self, place: usize) -> Option<&mut Connection> {
        let rule = self.rule;
        let place = self.places.get_mut(place)?;
        Some(&mut **place.get_or_insert_with(|| Box::new(Connection::new(rule))))
    }

    /// Every connection there ever was, with its place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.places.iter().enumerate().filter_map(|(place, c)| Some((place, c.as_deref()?)))
    }
}
