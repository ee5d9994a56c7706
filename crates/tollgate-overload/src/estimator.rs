//! The estimate of a limit from windows of samples. Pure: time is an argument.
//! Counts of requests in flight, which all threads share, are in `limiter.rs`.

use std::{ops::RangeInclusive, time::Duration};

use crate::{
    algorithm::LimitAlgorithm,
    signal::Signal,
    window::{Sample, SampleWindow},
};

/// Collects samples, and computes a limit from each window.
#[derive(Debug)]
pub(crate) struct Estimator {
    algorithm: Box<dyn LimitAlgorithm>,
    bounds: RangeInclusive<u32>,
    length_us: u64,
    min_samples: u64,
    window: SampleWindow,
    /// The time at which the window may close. `None` before the first sample.
    closes_at_us: Option<u64>,
}

/// Says what a closed window has led to.
#[derive(Debug)]
pub(crate) struct Estimate {
    pub(crate) limit: u32,
    /// The mean latency of the window in microseconds.
    pub(crate) latency_us: Option<u64>,
    pub(crate) in_flight: u32,
}

impl Estimator {
    pub(crate) fn new(
        algorithm: Box<dyn LimitAlgorithm>,
        bounds: RangeInclusive<u32>,
        limit: u32,
        length: Duration,
        min_samples: u32,
    ) -> Self {
        let limit = limit.clamp(*bounds.start(), *bounds.end());
        let window = SampleWindow::new(limit.into(), *bounds.start());
        let length_us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        Self {
            algorithm,
            bounds,
            length_us,
            min_samples: min_samples.into(),
            window,
            closes_at_us: None,
        }
    }

    /// Returns the limit in force.
    pub(crate) fn limit(&self) -> u32 {
        self.window.limit as u32
    }

    /// Adds a sample. Returns an estimate when it closes the window.
    pub(crate) fn add(&mut self, now_us: u64, sample: Sample) -> Option<Estimate> {
        let window = &mut self.window;
        match sample.signal {
            Signal::Success => {
                window.samples += 1;
                window.latency_sum_us = window.latency_sum_us.saturating_add(sample.latency_us);
            }
            Signal::Overload => window.overloads += 1,
            Signal::Ignore => return None,
        }
        window.in_flight = window.in_flight.max(sample.in_flight);
        let closes_at_us = *self
            .closes_at_us
            .get_or_insert(now_us.saturating_add(self.length_us));
        if now_us < closes_at_us || window.samples + window.overloads < self.min_samples {
            return None;
        }
        Some(self.close(now_us))
    }

    /// Notes that requests were shed.
    pub(crate) fn add_shed(&mut self) {
        self.window.has_shed = true;
    }

    /// Adds overloads that another thread could not add.
    pub(crate) fn add_overloads(&mut self, count: u32) {
        self.window.overloads += u64::from(count);
    }

    fn close(&mut self, now_us: u64) -> Estimate {
        let window = &mut self.window;
        let (latency, in_flight) = (window.latency(), window.in_flight);
        let next = self.algorithm.next_limit(window);
        if !next.is_nan() {
            window.limit = next;
        }
        window.limit = window
            .limit
            .clamp((*self.bounds.start()).into(), (*self.bounds.end()).into());
        let (limit, lowest_limit) = (window.limit, window.lowest_limit);
        *window = SampleWindow::new(limit, lowest_limit);
        self.closes_at_us = Some(now_us.saturating_add(self.length_us));
        let latency_us =
            latency.map(|latency| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        Estimate {
            limit: self.limit(),
            latency_us,
            in_flight,
        }
    }
}
