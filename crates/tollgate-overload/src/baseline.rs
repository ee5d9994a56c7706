//! The latency of a service without a queue.
//! What a limit makes of it is decided by each algorithm, in `algorithm/`.

use std::time::Duration;

use crate::window::SampleWindow;

/// Estimates the latency that the service has when no request waits in it.
///
/// A mean over all windows is no such estimate: a service that is always saturated has a queue in
/// all of them, the mean follows the queue, and the limit grows without an end. So the baseline
/// rises only with windows in which the limit keeps the queue away: those that used less than half
/// of the limit, those at the lowest limit, and those of a probe. It falls with every window that
/// shows it to be far too high.
///
/// To distinguish a slow service from a queue, fewer requests are admitted for one window. Only a
/// queue gets shorter, and the latency with it. When a third fewer requests in flight leave the
/// latency as it is, the service itself is slow.
#[derive(Clone, Debug)]
pub(crate) struct Baseline {
    /// The weight of one window.
    weight: f64,
    /// The factor of the limit after a window in which the service was overloaded.
    backoff: f64,
    /// Windows without a measurement after which a probe begins.
    probe_after: u32,
    /// The estimate in seconds. `None` before the first window.
    seconds: Option<f64>,
    /// The mean of the last windows, about ten, in seconds.
    recent: f64,
    /// Windows since the last measurement.
    unmeasured: u32,
    /// Probes that followed each other soon.
    row: u32,
    probe: Option<Probe>,
    reference: Reference,
}

/// Stores the window with which later ones are compared.
#[derive(Clone, Debug)]
struct Reference {
    in_flight: u32,
    /// In seconds.
    latency: f64,
}

/// Lowers the limit to a third for a short time.
#[derive(Clone, Debug)]
struct Probe {
    /// The limit before the probe.
    limit: f64,
    windows_left: u32,
}

/// Says how a window compares with the baseline.
enum Measured {
    /// The window belongs to a probe. The next window has this limit.
    Probe(f64),
    /// The latency of the window without a queue and with it, in seconds.
    Latency { baseline: f64, latency: f64 },
}

/// The windows over which the baseline is averaged, and those without a measurement after which a
/// probe begins: a minute at the default length.
const WINDOWS: u32 = 600;

/// The shortest latency in seconds. A division by it is finite.
const SHORTEST: f64 = 1e-6;

/// The weight of one window in the mean of the last ones.
const RECENT: f64 = 0.2;

/// The weight of the one window that a probe measures, when its latency is above the baseline.
const PROBED: f64 = 0.5;

/// A probe that moves the baseline by more than this share is followed by another one soon. A third
/// of a limit that is far too high still has a queue, and a service that has changed since the last
/// probe is measured in a state of change.
const SURPRISE: f64 = 0.1;

/// Windows between two such probes, in which the limit settles.
const SETTLING: u32 = 20;

/// Bounds the probes in a row, for a service whose latencies surprise every time.
const ROW: u32 = 16;

/// Bounds a probe. The requests that were admitted before it have to end first.
const PROBE_WINDOWS: u32 = 10;

impl Baseline {
    pub(crate) const fn new() -> Self {
        Self {
            weight: weight(WINDOWS),
            backoff: 0.9,
            probe_after: WINDOWS,
            seconds: None,
            recent: 0.0,
            unmeasured: 0,
            row: 0,
            probe: None,
            reference: Reference::of(0, 0.0),
        }
    }

    pub(crate) const fn backoff(mut self, factor: f64) -> Self {
        self.backoff = factor;
        self
    }

    pub(crate) const fn windows(mut self, windows: u32) -> Self {
        self.weight = weight(windows);
        self
    }

    pub(crate) const fn probe_after(mut self, windows: u32) -> Self {
        self.probe_after = windows;
        self
    }

    /// Adds a window, and returns the limit for the next one.
    ///
    /// `step` computes it from two latencies in seconds: without a queue, and of the window.
    /// It is called for a window that used at least half of the limit. A window in which the
    /// service was overloaded multiplies the limit by the backoff.
    pub(crate) fn next_limit(
        &mut self,
        window: &SampleWindow,
        step: impl FnOnce(f64, f64) -> f64,
    ) -> f64 {
        let limit = window.limit();
        let Some(latency) = window.latency() else {
            return limit * self.backoff;
        };
        let (baseline, latency) = match self.measure(window, latency) {
            Measured::Probe(limit) => return limit,
            Measured::Latency { baseline, latency } => (baseline, latency),
        };
        if window.is_overloaded() {
            return limit * self.backoff;
        }
        if !window.is_limited() {
            return limit;
        }
        self.probed(step(baseline, latency), window)
    }

    /// Adds a window to the estimate.
    fn measure(&mut self, window: &SampleWindow, latency: Duration) -> Measured {
        let latency = latency.as_secs_f64().max(SHORTEST);
        let baseline = *self.seconds.get_or_insert(latency);
        self.recent = if self.recent == 0.0 {
            latency
        } else {
            moved(self.recent, latency, RECENT)
        };
        if let Some(probe) = &mut self.probe {
            probe.windows_left -= 1;
            let is_measured = f64::from(window.in_flight()) <= window.limit();
            if !is_measured && probe.windows_left > 0 {
                return Measured::Probe(window.limit());
            }
            let limit = probe.limit;
            (self.probe, self.unmeasured) = (None, 0);
            if is_measured {
                self.seconds = Some(if latency < baseline {
                    latency
                } else {
                    moved(baseline, latency, PROBED)
                });
                let is_surprise = (latency - baseline).abs() > SURPRISE * baseline;
                self.row = if is_surprise && self.row < ROW {
                    self.row + 1
                } else {
                    0
                };
                if self.row > 0 {
                    self.unmeasured = self.probe_after.saturating_sub(SETTLING);
                }
            }
            return Measured::Probe(limit);
        }
        let is_at_floor = window.limit() < f64::from(window.lowest_limit()) + 1.0;
        let mut next = baseline;
        if !window.is_limited() || is_at_floor {
            next = moved(baseline, latency, self.weight);
            self.unmeasured = 0;
        } else {
            self.unmeasured = self.unmeasured.saturating_add(1);
        }
        if self.reference.keeps_latency(window, latency) && latency > SLOWER * next {
            // While the latency still rises, this may be wrong, and a probe will find out.
            next = latency;
            self.unmeasured = self.unmeasured.max(self.probe_after.saturating_sub(DOUBT));
        }
        // The service is much faster than the baseline says: it was slow for some time.
        if next > 2.0 * self.recent {
            next = (0.9 * next).max(self.recent);
        }
        self.seconds = Some(next);
        Measured::Latency {
            baseline: next,
            latency,
        }
    }

    /// Returns the limit for the next window: `limit`, or a third of it when a probe is due.
    fn probed(&mut self, limit: f64, window: &SampleWindow) -> f64 {
        if self.unmeasured < self.probe_after {
            return limit;
        }
        self.probe = Some(Probe {
            limit,
            windows_left: PROBE_WINDOWS,
        });
        (limit / 3.0).max(f64::from(window.lowest_limit()))
    }
}

/// The share of the requests in flight of the reference at which a window is compared with it.
const FEWER: f64 = 2.0 / 3.0;

/// The share of the latency of the reference that a service without a queue keeps.
const KEPT: f64 = 0.85;

/// The multiple of the baseline from which on a service has become slow.
const SLOWER: f64 = 1.5;

/// Windows after which a probe checks the baseline of a service that has become slow. A probe costs
/// such a service much.
const DOUBT: u32 = 100;

impl Reference {
    const fn of(in_flight: u32, latency: f64) -> Self {
        Self { in_flight, latency }
    }

    /// Returns whether fewer requests in flight have left the latency as it was.
    fn keeps_latency(&mut self, window: &SampleWindow, latency: f64) -> bool {
        let in_flight = window.in_flight();
        let is_fewer = f64::from(in_flight) <= FEWER * f64::from(self.in_flight);
        if !is_fewer && in_flight < self.in_flight {
            return false;
        }
        let before = std::mem::replace(self, Self::of(in_flight, latency)).latency;
        is_fewer && latency >= KEPT * before
    }
}

/// Moves a mean towards a value.
fn moved(mean: f64, value: f64, weight: f64) -> f64 {
    mean + weight * (value - mean)
}

/// Returns the weight of one window in an exponential mean of about this number.
const fn weight(windows: u32) -> f64 {
    2.0 / (windows as f64 + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_windows_of_a_baseline_are_the_weight_of_each_in_its_mean() {
        let mut baseline = Baseline::new().probe_after(500).windows(3);
        let mut after = |millis| {
            let window = SampleWindow {
                in_flight: 1,
                ..SampleWindow::new(10.0, 1)
            };
            match baseline.measure(&window, Duration::from_millis(millis)) {
                Measured::Latency { baseline, .. } => (baseline * 1e3).round() as u64,
                Measured::Probe(_) => panic!("no probe is due"),
            }
        };
        assert_eq!([100, 200, 200].map(&mut after), [100, 150, 175]);
    }
}
