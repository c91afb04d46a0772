//! The connections of the event loop, each in a slot that is used again, named by one word that no later connection of
//! the slot has.

use nix::sys::epoll::EpollFlags;

use crate::sim::connection::Connection;
use crate::units::Nanos;

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// How many there have been.
    pub(crate) opened: u64,
}

/// The place of one connection.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Tells a slot's connections apart in stale events and deadlines.
    generation: u32,
    /// The connection.
    pub(crate) connection: Option<Connection>,
    /// The deadline that stands in the timers.
    armed: Option<Nanos>,
    /// What epoll was told to look for.
    pub(crate) interest: EpollFlags,
}

impl Connections {
    /// Puts the connection that is made for an owner word into a free slot, and returns the word.
    pub(crate) fn insert(&mut self, connect: impl FnOnce(u64) -> Connection) -> u64 {
        self.opened += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            let slot = Slot { generation: 0, connection: None, armed: None, interest: EpollFlags::empty() };
            self.slots.push(slot);
            // Slots are at most as many as descriptors, which are ints.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let Some(slot) = usize::try_from(place).ok().and_then(|i| self.slots.get_mut(i)) else {
            return u64::from(place);
        };
        let owner = u64::from(slot.generation) << 32 | u64::from(place);
        slot.connection = Some(connect(owner));
        slot.armed = None;
        slot.interest = EpollFlags::EPOLLIN;
        owner
    }

    /// How many there are now.
    pub(crate) fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes all connections out.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Connection> {
        self.slots.iter_mut().filter_map(|slot| slot.connection.take())
    }

    /// Takes a connection out, with whether it has a deadline.
    pub(crate) fn remove(&mut self, owner: u64) -> Option<(Connection, bool)> {
        let slot = self.slot_mut(owner)?;
        let connection = slot.connection.take()?;
        let was_armed = slot.armed.take().is_some();
        // The highest generations would make owner words that look like the loop's own tokens.
        slot.generation = (slot.generation + 1) % (u32::MAX - 1);
        self.free.push(place_of(owner));
        Some((connection, was_armed))
    }

    /// A connection and its deadline in the timers.
    pub(crate) fn get_mut(&mut self, owner: u64) -> Option<(&mut Option<Nanos>, &mut Connection)> {
        let slot = self.slot_mut(owner)?;
        Some((&mut slot.armed, slot.connection.as_mut()?))
    }

    /// A connection's deadline in the timers.
    pub(crate) fn armed(&self, owner: u64) -> Option<Nanos> {
        let slot = self.slots.get(usize::try_from(place_of(owner)).ok()?)?;
        if u64::from(slot.generation) == owner >> 32 { slot.armed } else { None }
    }

    /// A connection's slot.
    pub(crate) fn slot_mut(&mut self, owner: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(usize::try_from(place_of(owner)).ok()?)?;
        (u64::from(slot.generation) == owner >> 32).then_some(slot)
    }
}

/// The low half of an owner word.
fn place_of(owner: u64) -> u32 {
    u32::try_from(owner & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}
