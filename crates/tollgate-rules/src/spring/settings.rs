//! Keeps what the file says, before it is put together for each route.
//! It is read in `reader.rs`, and put together in `writer.rs`.

use std::collections::HashMap;

use super::values::Values;
use crate::{RuleErrorKind, document::Node, error::Position};

/// The settings of the active documents.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) routes: Vec<Route>,
    pub(super) default_filters: Vec<Filter>,
    /// The buckets under `redis-rate-limiter.config`, by route.
    pub(super) config: HashMap<String, Bucket>,
    pub(super) deny_empty_key: Option<bool>,
    pub(super) empty_key_status: Option<String>,
}

pub(super) struct Route {
    pub(super) id: Option<String>,
    pub(super) at: Position,
    pub(super) field: String,
    pub(super) filters: Vec<Filter>,
}

/// A filter `RequestRateLimiter`.
pub(super) struct Filter {
    pub(super) at: Position,
    pub(super) field: String,
    /// `None` when the filter has no numbers of its own.
    pub(super) bucket: Option<Bucket>,
    pub(super) key_resolver: Option<String>,
    pub(super) deny_empty_key: Option<bool>,
    pub(super) empty_key_status: Option<String>,
    pub(super) status: Option<String>,
}

/// Three checked numbers, or `None` when a mistake in them was reported.
pub(super) type Bucket = Option<Numbers>;

#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub(super) replenish_rate: u64,
    pub(super) burst_capacity: u64,
    pub(super) requested_tokens: u64,
}

/// The three numbers while they are read.
#[derive(Default)]
pub(super) struct NumberReader {
    is_present: bool,
    is_broken: bool,
    replenish_rate: Option<u64>,
    burst_capacity: Option<(u64, Position)>,
    requested_tokens: Option<u64>,
}

/// The greatest `int` of Java.
const MAX_INT: u64 = i32::MAX as u64;
/// The greatest `burst-capacity` that the gateway accepts.
const MAX_BURST: u64 = (1 << 53) - 1;

pub(super) const NUMBERS: [&str; 3] = ["replenish-rate", "burst-capacity", "requested-tokens"];

impl NumberReader {
    /// Reads the number at this index of [`NUMBERS`].
    pub(super) fn read(
        &mut self,
        number: usize,
        node: &Node,
        field: &str,
        values: &mut Values<'_>,
    ) {
        if node.is_null() {
            return;
        }
        let (least, most) = [(1, MAX_INT), (0, MAX_BURST), (1, MAX_INT)][number];
        let value = values.number(node, field, least, most);
        self.is_present = true;
        self.is_broken |= value.is_none();
        match number {
            0 => self.replenish_rate = value,
            1 => self.burst_capacity = value.map(|value| (value, node.at)),
            _ => self.requested_tokens = value,
        }
    }

    /// Checks the numbers together. `None` when there are none.
    pub(super) fn finish(
        self,
        field: &str,
        at: Position,
        values: &mut Values<'_>,
    ) -> Option<Bucket> {
        if !self.is_present || self.is_broken {
            return self.is_present.then_some(None);
        }
        let mut refuse = |number: &str, at, message: String| {
            let field = format!("{field}.{number}");
            values.refuse(RuleErrorKind::Value, &field, at, message);
            Some(None)
        };
        let Some(replenish_rate) = self.replenish_rate else {
            let message = format!("is missing, expected an integer from 1 to {MAX_INT}");
            return refuse("replenish-rate", at, message);
        };
        if let Some((burst, at)) = self.burst_capacity
            && burst != 0
            && burst < replenish_rate
        {
            let message =
                format!("must be 0 or at least replenish-rate ({replenish_rate}), got {burst}");
            return refuse("burst-capacity", at, message);
        }
        // The gateway stores a bucket for 2 × burst / rate seconds, rounded down to 0 here: then it
        // forgets every request.
        if self.burst_capacity.is_none() && replenish_rate > 2 {
            let message = "is missing, and its default of 1 makes the gateway limit nothing at this replenish-rate";
            return refuse("burst-capacity", at, message.to_owned());
        }
        Some(Some(Numbers {
            replenish_rate,
            burst_capacity: self.burst_capacity.map_or(1, |(burst, _)| burst),
            requested_tokens: self.requested_tokens.unwrap_or(1),
        }))
    }
}
