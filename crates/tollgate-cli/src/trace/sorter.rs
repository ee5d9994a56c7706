//! Puts requests into the order of their times, in bounded memory.

use std::{cmp::Ordering, collections::BinaryHeap, io};

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
    held: BinaryHeap<Held>,
    read: u64,
    last_us: u64,
    late: u64,
}

struct Held {
    request: Request,
    number: u64,
}

impl<I: Iterator<Item = io::Result<Request>>> Sorter<I> {
    pub(crate) fn new(source: I) -> Self {
        Self {
            source,
            held: BinaryHeap::new(),
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
                    self.held.push(Held {
                        request,
                        number: self.read,
                    });
                    self.read += 1;
                }
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        let mut request = self.held.pop()?.request;
        if request.time_us < self.last_us {
            request.time_us = self.last_us;
            self.late += 1;
        }
        self.last_us = request.time_us;
        Some(Ok(request))
    }
}

impl Ord for Held {
    /// Compares so that the heap yields the earliest request first, and equal ones in the order of
    /// the trace.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.request.time_us, other.number).cmp(&(self.request.time_us, self.number))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Held {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Fields;

    fn sorted(times: impl IntoIterator<Item = u64>) -> (Vec<u64>, u64) {
        let request = |time_us| {
            Ok(Request {
                time_us,
                ip: None,
                fields: Fields::default(),
            })
        };
        let mut sorter = Sorter::new(times.into_iter().map(request));
        let times = sorter
            .by_ref()
            .map(|request| request.unwrap().time_us)
            .collect();
        (times, sorter.late())
    }

    #[test]
    fn requests_are_put_in_order() {
        assert_eq!(sorted([3, 1, 2, 2]), (vec![1, 2, 2, 3], 0));
    }

    #[test]
    fn a_request_that_is_much_too_late_has_the_time_of_the_one_before() {
        let (times, late) = sorted((1..=10_000).chain([5]));
        assert!(times.is_sorted());
        assert_eq!((times.len(), late), (10_001, 1));
    }
}
