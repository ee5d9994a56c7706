use std::{ops::RangeInclusive, sync::Arc, time::Instant};

use redis::Value;

use super::{Node, slot::SLOTS};
use crate::{Error, ErrorKind, reason::Reason, redis::lane::Lane};

/// Which server has which slot.
#[derive(Clone)]
pub(super) struct Table {
    /// For each slot the place of its server among the members.
    slots: Box<[u16]>,
    pub(super) members: Vec<Member>,
}

/// A server that was named.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) node: Node,
    pub(super) lane: Arc<Lane>,
    /// How long it stays without a slot.
    kept_until: Instant,
}

/// What a server says of the cluster: masters and their slots.
pub(super) type View = Vec<(RangeInclusive<u16>, Node)>;

const NOBODY: u16 = u16::MAX;

impl Table {
    pub(super) fn empty() -> Self {
        Self { slots: vec![NOBODY; SLOTS].into(), members: Vec::new() }
    }

    /// The server that has the slot.
    pub(super) fn lane(&self, slot: u16) -> Option<&Arc<Lane>> {
        self.members.get(usize::from(self.slots[usize::from(slot)])).map(|member| &member.lane)
    }

    pub(super) fn lane_at(&self, node: &Node) -> Option<&Arc<Lane>> {
        self.members.iter().find(|member| member.node == *node).map(|member| &member.lane)
    }

    /// The servers that have slots, each with the first of them.
    pub(super) fn masters(&self) -> impl Iterator<Item = (u16, &Arc<Lane>)> {
        self.members.iter().enumerate().filter_map(|(at, member)| {
            let first = self.slots.iter().position(|&owner| usize::from(owner) == at)?;
            Some((first as u16, &member.lane))
        })
    }

    /// The server at this address, which stays without a slot until the time given.
    pub(super) fn named(
        &mut self,
        node: &Node,
        until: Instant,
        new: impl FnOnce() -> Result<Lane, Error>,
    ) -> Result<usize, Error> {
        if let Some(at) = self.members.iter().position(|member| member.node == *node) {
            let member = &mut self.members[at];
            member.kept_until = member.kept_until.max(until);
            return Ok(at);
        }
        self.members.push(Member { node: node.clone(), lane: Arc::new(new()?), kept_until: until });
        Ok(self.members.len() - 1)
    }

    pub(super) fn give(&mut self, slot: u16, member: usize) {
        self.slots[usize::from(slot)] = member as u16;
    }

    /// Takes over what a server says. Servers that it does not name go, unless they were named
    /// elsewhere a moment ago.
    pub(super) fn adopt(
        &self,
        view: &View,
        now: Instant,
        mut new: impl FnMut(&Node) -> Result<Lane, Error>,
    ) -> Result<Self, Error> {
        let named = |node: &Node| view.iter().any(|(_, owner)| owner == node);
        let stays = |member: &&Member| member.kept_until > now || named(&member.node);
        let members = self.members.iter().filter(stays).cloned().collect();
        let mut table = Self { members, ..Self::empty() };
        for (range, node) in view {
            let at = table.named(node, now, || new(node))?;
            table.slots[usize::from(*range.start())..=usize::from(*range.end())].fill(at as u16);
        }
        Ok(table)
    }
}

/// Reads the reply of `CLUSTER SLOTS`: ranges, each with its master first. A server that does not
/// know its own host leaves it out: it is the one that was asked.
pub(super) fn view(reply: &Value, asked: &str) -> Result<View, Error> {
    let nonsense = || Error::new(ErrorKind::Protocol, "redis told no list of slots");
    let Value::Array(ranges) = reply else { return Err(nonsense()) };
    let mut view = View::new();
    for range in ranges {
        let Value::Array(range) = range else { return Err(nonsense()) };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
            return Err(nonsense());
        };
        let [host, Value::Int(port), ..] = master.as_slice() else { return Err(nonsense()) };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::SimpleString(host) => host.clone(),
            Value::Nil => String::new(),
            _ => return Err(nonsense()),
        };
        let slot = |slot: i64| u16::try_from(slot).ok().filter(|&slot| usize::from(slot) < SLOTS);
        let (Some(first), Some(last), Ok(port)) = (slot(*first), slot(*last), u16::try_from(*port)) else {
            return Err(nonsense());
        };
        if first > last {
            return Err(nonsense());
        }
        // A host that is to be announced and is not known yet.
        if host != "?" {
            let host = if host.is_empty() { asked.to_owned() } else { host };
            view.push((first..=last, (host, port)));
        }
    }
    match view.is_empty() {
        true => Err(Error::new(Reason::ClusterDown, "the redis cluster has no server with slots")),
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
        let master = Value::Array(vec![host, Value::Int(port), bulk("id"), Value::Array(vec![])]);
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
        let expected = [(0..=100, "10.0.0.1", 6379), (101..=101, "asked", 6380), (102..=200, "asked", 6381)];
        let expected: View = expected.map(|(range, host, port)| (range, (host.to_owned(), port))).into();
        assert_eq!(view(&reply, "asked").expect("a view"), expected);
    }

    #[test]
    fn nonsense_is_refused() {
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
            Value::Array(vec![Value::Array(vec![Value::Int(1), Value::Int(2), Value::Array(vec![])])]),
        ];
        for reply in wrong {
            assert_eq!(view(&reply, "asked").expect_err("nonsense").kind(), ErrorKind::Protocol, "{reply:?}");
        }
        let error = view(&Value::Array(vec![]), "asked").expect_err("nobody");
        assert_eq!(error.reason(), "clusterdown");
    }
}
