//! Which server has which slot at one moment, and which slots are being moved. It is exchanged as a
//! whole.
//! When to ask for it, and whom, is decided in `topology.rs`; calls are sent in `routing.rs`.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{connect::Address, dispatch::Sender, protocol::hash_slot::SLOTS};
use tollgate_core::{Error, ErrorKind};

/// Maps each slot to its server.
#[derive(Clone)]
pub(super) struct SlotMap {
    /// For each slot the index of its server among the members.
    slots: Box<[u16]>,
    pub(super) members: Vec<Member>,
    /// The slots that are being moved, as far as calls were refused for it.
    open: BTreeMap<u16, OpenSlot>,
}

/// A slot in the middle of a move.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSlot {
    /// The time of the first refusal.
    pub(super) since: Instant,
    /// The time until which the move is assumed to go on.
    pub(super) until: Instant,
}

/// A server whose address is known.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) address: Address,
    pub(super) sender: Arc<Sender>,
    /// The time until which it is kept without a slot.
    kept_until: Instant,
}

/// The reply of a server to `CLUSTER SLOTS`: masters and their slots.
pub(super) type View = Vec<(RangeInclusive<u16>, Address)>;

const NO_MEMBER: u16 = u16::MAX;

/// The time for which it is remembered since when a slot was in the middle of a move.
const KEPT_OPEN: Duration = Duration::from_secs(10);

impl SlotMap {
    pub(super) fn empty() -> Self {
        Self {
            slots: vec![NO_MEMBER; SLOTS].into(),
            members: Vec::new(),
            open: BTreeMap::new(),
        }
    }

    /// Returns the server of a slot.
    pub(super) fn by_slot(&self, slot: u16) -> Option<&Arc<Sender>> {
        self.members
            .get(usize::from(self.slots[usize::from(slot)]))
            .map(|member| &member.sender)
    }

    /// Returns the server at an address.
    pub(super) fn by_address(&self, address: &Address) -> Option<&Arc<Sender>> {
        self.members
            .iter()
            .find(|member| member.address == *address)
            .map(|member| &member.sender)
    }

    /// Returns the servers that have slots, each with its first slot.
    pub(super) fn masters(&self) -> impl Iterator<Item = (u16, &Arc<Sender>)> {
        self.members.iter().enumerate().filter_map(|(at, member)| {
            let first = self
                .slots
                .iter()
                .position(|&owner| usize::from(owner) == at)?;
            Some((first as u16, &member.sender))
        })
    }

    /// Returns the index of the server at this address, and adds it if it is new. It is kept
    /// without a slot until the given time.
    pub(super) fn insert(
        &mut self,
        address: &Address,
        kept_until: Instant,
        new: impl FnOnce() -> Result<Arc<Sender>, Error>,
    ) -> Result<usize, Error> {
        if let Some(at) = self
            .members
            .iter()
            .position(|member| member.address == *address)
        {
            // The server keeps its sender. Another one would be a second connection, with a queue
            // and a breaker that know nothing of the first.
            let member = &mut self.members[at];
            // A view inserts until now only, which must not shorten what a redirect has asked for.
            member.kept_until = member.kept_until.max(kept_until);
            return Ok(at);
        }
        self.members.push(Member {
            address: address.clone(),
            sender: new()?,
            kept_until,
        });
        Ok(self.members.len() - 1)
    }

    /// Gives a slot to a member.
    pub(super) fn assign(&mut self, slot: u16, member: usize) {
        self.slots[usize::from(slot)] = member as u16;
        // The new server has the whole slot, so its checks need not leave apart.
        self.open.remove(&slot);
    }

    /// Returns what is known of the move of a slot.
    pub(super) fn move_of(&self, slot: u16) -> Option<OpenSlot> {
        self.open.get(&slot).copied()
    }

    /// Notes that a slot is in the middle of a move, and forgets slots that nothing was heard of
    /// for a while.
    pub(super) fn open(&mut self, slot: u16, now: Instant, until: Instant) {
        self.open.retain(|_, open| open.until + KEPT_OPEN > now);
        self.open
            .entry(slot)
            // The time of the first refusal stays. By it, a move that nobody ends is found to be
            // stuck.
            .or_insert(OpenSlot { since: now, until })
            .until = until;
    }

    /// Returns the map that a server's view describes. Members that it does not name are removed,
    /// unless a redirect named them a short time ago.
    pub(super) fn with_view(
        &self,
        view: &View,
        now: Instant,
        mut new: impl FnMut(&Address) -> Result<Arc<Sender>, Error>,
    ) -> Result<Self, Error> {
        let is_named = |address: &Address| view.iter().any(|(_, owner)| owner == address);
        // A server that a redirect named may be newer than this view, which another server gave.
        let stays = |member: &&Member| member.kept_until > now || is_named(&member.address);
        let members = self.members.iter().filter(stays).cloned().collect();
        // No slot keeps its server by default: a slot that the view leaves out has none.
        let mut map = Self {
            members,
            ..Self::empty()
        };
        for (range, address) in view {
            let at = map.insert(address, now, || new(address))?;
            map.slots[usize::from(*range.start())..=usize::from(*range.end())].fill(at as u16);
        }
        // A view names the old server until a move has ended. When it names another one, the move
        // is over.
        let stays = |slot: u16| {
            self.by_slot(slot)
                .zip(map.by_slot(slot))
                .is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        };
        map.open = self
            .open
            .iter()
            .filter(|(slot, _)| stays(**slot))
            .map(|(slot, open)| (*slot, *open))
            .collect();
        Ok(map)
    }
}

/// Reads the reply of `CLUSTER SLOTS`: ranges, each with its master first. A server that does not
/// know its own host leaves it empty. The host is then the server that was `asked`.
pub(super) fn view(reply: &Value, asked: &str) -> Result<View, Error> {
    let invalid = || {
        Error::new(
            ErrorKind::Protocol,
            "redis did not reply with a list of slots",
        )
    };
    let Value::Array(ranges) = reply else {
        return Err(invalid());
    };
    let mut view = View::new();
    for range in ranges {
        let Value::Array(range) = range else {
            return Err(invalid());
        };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            ..,
        ] = range.as_slice()
        else {
            return Err(invalid());
        };
        let [host, Value::Int(port), ..] = master.as_slice() else {
            return Err(invalid());
        };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::SimpleString(host) => host.clone(),
            Value::Nil => String::new(),
            _ => return Err(invalid()),
        };
        let slot = |slot: i64| {
            // The slot becomes an index: one that is out of range is refused here, and does not
            // panic later.
            u16::try_from(slot)
                .ok()
                .filter(|&slot| usize::from(slot) < SLOTS)
        };
        let (Some(first), Some(last), Ok(port)) = (slot(*first), slot(*last), u16::try_from(*port))
        else {
            return Err(invalid());
        };
        if first > last {
            return Err(invalid());
        }
        // The server does not know this host yet.
        if host != "?" {
            let host = if host.is_empty() {
                asked.to_owned()
            } else {
                host
            };
            view.push((first..=last, (host, port)));
        }
    }
    // An error and not an empty map: a server that has lost its cluster must not wipe out what the
    // others have shown.
    match view.is_empty() {
        true => Err(Error::new(
            ErrorKind::ClusterDown,
            "the redis cluster has no server with slots",
        )),
        false => Ok(view),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let master = Value::Array(vec![
            host,
            Value::Int(port),
            bulk("id"),
            Value::Array(vec![]),
        ]);
        let replica = Value::Array(vec![bulk("10.0.0.9"), Value::Int(9), bulk("other id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    #[test]
    fn masters_are_read_and_replicas_are_not() {
        let reply = Value::Array(vec![
            range(0, 100, bulk("10.0.0.1"), 6379),
            range(101, 101, Value::Nil, 6380),
            range(102, 200, bulk(""), 6381),
            range(201, 16_383, bulk("?"), 6382),
        ]);
        let expected = [
            (0..=100, "10.0.0.1", 6379),
            (101..=101, "asked", 6380),
            (102..=200, "asked", 6381),
        ];
        let expected: View = expected
            .map(|(range, host, port)| (range, (host.to_owned(), port)))
            .into();
        assert_eq!(view(&reply, "asked").expect("a view"), expected);
    }

    #[test]
    fn replies_of_another_form_are_refused() {
        let host = || bulk("h");
        let wrong = [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Array(vec![Value::Int(1), Value::Int(2)])]),
            Value::Array(vec![range(0, 16_384, host(), 1)]),
            Value::Array(vec![range(-1, 5, host(), 1)]),
            Value::Array(vec![range(7, 5, host(), 1)]),
            Value::Array(vec![range(0, 5, host(), 65_536)]),
            Value::Array(vec![range(0, 5, Value::Int(5), 1)]),
            Value::Array(vec![Value::Array(vec![
                Value::Int(1),
                Value::Int(2),
                Value::Array(vec![]),
            ])]),
        ];
        for reply in wrong {
            assert_eq!(
                view(&reply, "asked").expect_err("an invalid reply").kind(),
                ErrorKind::Protocol,
                "{reply:?}"
            );
        }
        let error = view(&Value::Array(vec![]), "asked").expect_err("no server");
        assert_eq!(error.kind(), ErrorKind::ClusterDown);
    }
}
