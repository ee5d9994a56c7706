//! The place of one request in flight: it measures the latency, and ends the request exactly once.
//! Whether there is a free place is decided in `limiter.rs`.

use http::HeaderMap;
use tollgate_tower::{
    body::{BodyEnd, BodyGuard},
    rejection::Overload,
};

use crate::{class::Class, limiter::AdaptiveLimiter, signal::Signal, window::Sample};

/// A slot of an [`AdaptiveLimiter`]: a request counts as in flight until its slot is dropped.
///
/// [`AdaptiveLimiter::try_acquire`] returns it. A slot that is dropped without a signal belongs to
/// a request that was cancelled or has panicked: its time counts as a latency only if it is longer
/// than the mean latency of the last window.
///
/// As a [`BodyGuard`], the slot is given back when the body of the response ends.
#[must_use = "dropping the slot ends the request"]
pub struct Slot {
    limiter: AdaptiveLimiter,
    started_us: u64,
    in_flight: u32,
    /// The request has been counted as a sample.
    is_recorded: bool,
}

impl AdaptiveLimiter {
    /// Takes a slot for a request.
    ///
    /// # Errors
    ///
    /// Returns an [`Overload`] when the requests in flight have used up the share of the limit that
    /// `class` has.
    pub fn try_acquire(&self, class: Class) -> Result<Slot, Overload> {
        let in_flight = self.admit(class)?;
        Ok(Slot::new(self.clone(), self.now_us(), in_flight))
    }
}

impl Slot {
    pub(crate) fn new(limiter: AdaptiveLimiter, started_us: u64, in_flight: u32) -> Self {
        Self {
            limiter,
            started_us,
            in_flight,
            is_recorded: false,
        }
    }

    /// Ends the request, and reports its signal to the limiter.
    pub fn finish(mut self, signal: Signal) {
        self.record(signal);
    }

    /// Counts the latency up to now, and keeps the request in flight. Only the first call has an
    /// effect.
    ///
    /// Use it when the work of a request goes on after its latency is known: while a stream is
    /// sent, for example.
    pub fn record(&mut self, signal: Signal) {
        if self.is_recorded {
            return;
        }
        self.is_recorded = true;
        if signal != Signal::Ignore {
            self.add(self.limiter.now_us(), signal);
        }
    }

    fn add(&self, now_us: u64, signal: Signal) {
        let latency_us = now_us.saturating_sub(self.started_us);
        self.limiter.record(
            now_us,
            Sample {
                signal,
                latency_us,
                in_flight: self.in_flight,
            },
        );
    }

    fn cancel(&mut self) {
        if self.is_recorded {
            return;
        }
        self.is_recorded = true;
        let now_us = self.limiter.now_us();
        let latency_us = u128::from(now_us.saturating_sub(self.started_us));
        if self
            .limiter
            .latency()
            .is_some_and(|mean| latency_us > mean.as_micros())
        {
            self.add(now_us, Signal::Success);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.cancel();
        self.limiter.release();
    }
}

impl BodyGuard for Slot {
    fn on_trailers(&mut self, trailers: &HeaderMap) {
        match Signal::of_grpc_status(trailers) {
            // The head of a gRPC stream says nothing about its success: the overload counts beside
            // the latency.
            Signal::Overload => {
                self.is_recorded = true;
                self.add(self.limiter.now_us(), Signal::Overload);
            }
            signal => self.record(signal),
        }
    }

    fn on_end(&mut self, end: BodyEnd) {
        match end {
            BodyEnd::Complete => self.record(Signal::Success),
            BodyEnd::Dropped => self.cancel(),
            // A body that failed, and what is not known here.
            _ => self.record(Signal::Ignore),
        }
    }
}

tollgate_core::debug_fields! { Slot: limiter, in_flight, .. }
