//! Offers requests at a rate that does not depend on the answers: an open loop.
//!
//! The times between two arrivals are exponential, as with many independent clients. Each arrival
//! is a task of its own. Latency counts from the time at which the request was due, so a client
//! that falls behind does not look fast.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::{runtime::Runtime, sync::mpsc};

use crate::{
    keys::Random,
    load::{Answer, Decide, percentile},
    machine,
};

/// Describes the arrivals.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// The arrivals per second of the burst, and of the time after it.
    pub(crate) burst: f64,
    pub(crate) after: f64,
    /// The length of the burst, and of the time after it.
    pub(crate) burst_time: Duration,
    pub(crate) after_time: Duration,
    /// The number of keys. All are equally likely, except for the flooded one.
    pub(crate) keys: usize,
    /// The share of the burst that is for the key with number 0.
    pub(crate) flood: f64,
}

/// Stores what became of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The time at which it was due, from the begin of the burst, in microseconds.
    due_us: u32,
    took_us: u32,
    is_flood: bool,
    answer: Answer,
}

/// Stores what became of all requests.
#[derive(Debug)]
pub(crate) struct Results {
    samples: Vec<Sample>,
    burst_us: u32,
    /// Processor time of this process, as a share of the time until the last arrival.
    pub(crate) client_busy: f64,
}

/// Sets the time in which an answer is useful: the default deadline of a limiter.
pub(crate) const USEFUL: Duration = Duration::from_millis(50);

/// Sets the shortest pause of the pacer. A shorter one would take the client core from the
/// requests.
const PAUSE: Duration = Duration::from_micros(200);

/// Offers the requests, and waits until each has its answer.
pub(crate) fn run<D: Decide>(runtime: &Runtime, decide: &Arc<D>, offer: &Offer) -> Results {
    let (sender, mut answered) = mpsc::unbounded_channel();
    let cpu_before = machine::own_cpu();
    let began = Instant::now();
    let (burst_end, end) = (offer.burst_time, offer.burst_time + offer.after_time);
    let mut random = Random::new(offer.burst as u64);
    let (mut due, mut arrived) = (Duration::ZERO, 0_usize);
    while due < end {
        let now = began.elapsed();
        while due <= now && due < end {
            let is_burst = due < burst_end;
            let is_flood = is_burst && random.share() < offer.flood;
            let key = if is_flood {
                0
            } else {
                1 + random.below(offer.keys - 1)
            };
            runtime.spawn(request(
                Arc::clone(decide),
                key,
                is_flood,
                began,
                due,
                sender.clone(),
            ));
            arrived += 1;
            let rate = if is_burst { offer.burst } else { offer.after };
            // The share is below one, so the logarithm is finite.
            due += Duration::from_secs_f64(-(1.0 - random.share()).ln() / rate);
        }
        thread::sleep(due.saturating_sub(began.elapsed()).max(PAUSE));
    }
    let client_busy =
        (machine::own_cpu() - cpu_before).as_secs_f64() / began.elapsed().as_secs_f64();
    drop(sender);
    let samples = runtime.block_on(async {
        let mut samples = Vec::with_capacity(arrived);
        while let Some(sample) = answered.recv().await {
            samples.push(sample);
        }
        samples
    });
    Results {
        samples,
        burst_us: micros(burst_end),
        client_busy,
    }
}

async fn request<D: Decide>(
    decide: Arc<D>,
    key: usize,
    is_flood: bool,
    began: Instant,
    due: Duration,
    sender: mpsc::UnboundedSender<Sample>,
) {
    let answer = decide.decide(key).await;
    let took = began.elapsed().saturating_sub(due);
    // The receiver waits for all samples.
    let _ = sender.send(Sample {
        due_us: micros(due),
        took_us: micros(took),
        is_flood,
        answer,
    });
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

impl Sample {
    /// Returns whether the store decided within the useful time.
    fn is_good(&self) -> bool {
        self.answer.is_by_store() && self.took_us <= micros(USEFUL)
    }
}

impl Results {
    fn burst(&self) -> impl Iterator<Item = &Sample> {
        self.samples
            .iter()
            .filter(|sample| sample.due_us < self.burst_us)
    }

    /// Returns the requests of the burst per second.
    pub(crate) fn offered(&self) -> f64 {
        self.burst().count() as f64 * 1e6 / f64::from(self.burst_us)
    }

    /// Returns the requests of the burst per second that the store decided within the useful time.
    pub(crate) fn goodput(&self) -> f64 {
        self.burst().filter(|sample| sample.is_good()).count() as f64 * 1e6
            / f64::from(self.burst_us)
    }

    /// Returns the share of the requests of the burst that the store decided in time, for the
    /// flooded key or for the others.
    pub(crate) fn share_good(&self, is_flood: bool) -> f64 {
        let group = || self.burst().filter(|sample| sample.is_flood == is_flood);
        group().filter(|sample| sample.is_good()).count() as f64 / group().count() as f64
    }

    /// Returns the percentile of the time until the store decided, in milliseconds, for the
    /// requests of the burst.
    pub(crate) fn store_ms(&self, share: f64) -> f64 {
        self.percentile_ms(share, |answer| answer.is_by_store())
    }

    /// Returns the percentile of the time until the answer of the others, in milliseconds.
    pub(crate) fn others_ms(&self, share: f64) -> f64 {
        self.percentile_ms(share, |answer| !answer.is_by_store())
    }

    fn percentile_ms(&self, share: f64, of: impl Fn(Answer) -> bool) -> f64 {
        let mut times: Vec<u32> = self
            .burst()
            .filter(|sample| of(sample.answer))
            .map(|sample| sample.took_us)
            .collect();
        times.sort_unstable();
        percentile(&times, share) / 1e3
    }

    /// Returns the number of requests of the burst for each reason why the store did not decide.
    /// `late` counts decisions of the store after the useful time.
    pub(crate) fn reasons(&self) -> BTreeMap<&'static str, usize> {
        let mut reasons = BTreeMap::new();
        for sample in self.burst().filter(|sample| !sample.is_good()) {
            let reason = match sample.answer {
                Answer::WithoutStore(reason) => reason.as_str(),
                Answer::Admitted | Answer::Denied => "late",
            };
            *reasons.entry(reason).or_default() += 1;
        }
        reasons
    }

    /// Returns the time from the end of the burst to the last request that the store did not decide
    /// in time.
    pub(crate) fn recovery(&self) -> Duration {
        let bad = self
            .samples
            .iter()
            .filter(|sample| sample.due_us >= self.burst_us && !sample.is_good());
        let last_us = bad
            .map(|sample| sample.due_us)
            .max()
            .unwrap_or(self.burst_us);
        Duration::from_micros(u64::from(last_us - self.burst_us))
    }
}

#[cfg(test)]
mod tests {
    use tollgate::ErrorKind;

    use super::*;

    /// Answers at once. Each tenth request is decided without the store.
    #[derive(Debug)]
    struct Instantly;

    impl Decide for Instantly {
        async fn decide(&self, key: usize) -> Answer {
            if key % 10 == 1 {
                Answer::WithoutStore(ErrorKind::Overloaded)
            } else {
                Answer::Admitted
            }
        }
    }

    #[test]
    fn the_offered_rate_is_the_requested_one() {
        let offer = Offer {
            burst: 20_000.0,
            after: 1_000.0,
            burst_time: Duration::from_millis(500),
            after_time: Duration::from_millis(100),
            keys: 1_001,
            flood: 0.5,
        };
        let results = run(&crate::load::runtime(), &Arc::new(Instantly), &offer);
        // The generator is seeded, so the number of arrivals is the same in each run.
        assert!(
            (19_000.0..21_000.0).contains(&results.offered()),
            "{}",
            results.offered()
        );
        let without = results.reasons()["overload"] as f64 / 0.5;
        assert!(
            (800.0..1_200.0).contains(&without),
            "a tenth of the half that is no flood: {without}"
        );
        assert!(results.burst().filter(|sample| sample.is_flood).count() > 4_000);
    }

    fn sample(due_us: u32, took_us: u32, answer: Answer) -> Sample {
        Sample {
            due_us,
            took_us,
            is_flood: false,
            answer,
        }
    }

    #[test]
    fn only_an_answer_of_the_store_in_time_is_good() {
        let samples = vec![
            sample(0, 1_000, Answer::Admitted),
            sample(1, 60_000, Answer::Admitted),
            sample(2, 10, Answer::WithoutStore(ErrorKind::Overloaded)),
            sample(1_000, 10, Answer::Denied),
            sample(41_000, 10, Answer::WithoutStore(ErrorKind::Timeout)),
            sample(90_000, 10, Answer::Admitted),
        ];
        let results = Results {
            samples,
            burst_us: 1_000,
            client_busy: 0.0,
        };
        assert_eq!(results.goodput(), 1_000.0);
        assert_eq!(
            results.reasons(),
            BTreeMap::from([("late", 1), ("overload", 1)])
        );
        assert_eq!(results.recovery(), Duration::from_millis(40));
        assert_eq!((results.others_ms(0.5), results.store_ms(0.0)), (0.01, 1.0));
    }
}
