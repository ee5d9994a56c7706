//! Puts requests into the order of their times, in bounded memory.
//! Times are read in `time.rs`.

use std::{collections::BTreeMap, io};

use super::reader::Request;

/// The requests that are held back. A server writes a request when it ends, so that lines are a
/// little out of order.
const HELD: usize = 4_096;

/// Yields requests in the order of their times.
///
/// A request that comes more than [`HELD`] requests too late is yielded at the time of the one
/// before it.
pub(crate) struct Sorter<I> {
    source: I,
    /// The requests by their times, and equal ones in the order of the trace.
    held: BTreeMap<(u64, u64), Request>,
    read: u64,
    last_us: u64,
    late: u64,
}

impl<I: Iterator<Item = io::Result<Request>>> Sorter<I> {
    pub(crate) fn new(source: I) -> Self {
        Self {
            source,
            held: BTreeMap::new(),
            read: 0,
            last_us: 0,
            late: 0,
        }
    }

    /// Returns the number of requests whose time was changed.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    pub(crate) fn source(&self) -> &I {
        &self.source
    }
}

impl<I: Iterator<Item = io::Result<Request>>> Iterator for Sorter<I> {
    type Item = io::Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.held.len() < HELD {
            match self.source.next() {
                Some(Ok(request)) => {
                    self.held.insert((request.time_us, self.read), request);
                    self.read += 1;
                }
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        let mut request = self.held.pop_first()?.1;
        if request.time_us < self.last_us {
            request.time_us = self.last_us;
            self.late += 1;
        }
        self.last_us = request.time_us;
        Some(Ok(request))
    }
}
