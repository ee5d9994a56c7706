//! The scripts and the Rust functions agree, bit for bit, on hostile streams of checks.
//!
//! Both are fed the same (Δt, key, cost): the Rust functions first, so that a step may aim at the
//! microsecond where the last answer said that things change. Compared are the decision, every
//! policy's remaining, retry, reset and more, the stored bytes and the expiry.

mod subject;

use subject::{
    InRedis,
    stream::{self, Stream},
};
use tollgate::Algorithm;

/// Steps for each algorithm in a test run.
const STEPS: usize = 260_000;

fn agree(algorithm: Algorithm) {
    let mut redis = InRedis::new();
    let streams = STEPS.div_ceil(stream::BATCH);
    for seed in 0..streams as u64 {
        let outcome = stream::compare(&mut redis, &mut Stream::new(seed, algorithm), str::to_owned);
        if let Err(difference) = outcome {
            panic!("seed {seed}: {difference}");
        }
    }
    println!("{algorithm:?}: {} steps agree", streams * stream::BATCH);
}

#[test]
fn token_bucket_agrees_with_its_script() {
    agree(Algorithm::TokenBucket);
}

#[test]
fn fixed_window_agrees_with_its_script() {
    agree(Algorithm::FixedWindow);
}

#[test]
fn window_from_first_hit_agrees_with_its_script() {
    agree(Algorithm::WindowFromFirstHit);
}

#[test]
fn interval_bucket_agrees_with_its_script() {
    agree(Algorithm::IntervalBucket);
}

#[test]
fn leaky_bucket_agrees_with_its_script() {
    agree(Algorithm::LeakyBucket);
}

#[test]
fn sliding_window_agrees_with_its_script() {
    agree(Algorithm::SlidingWindow);
}

#[test]
fn sliding_buckets_agree_with_their_script() {
    agree(Algorithm::SlidingBuckets { buckets: 10 });
}

#[test]
fn sliding_log_agrees_with_its_script() {
    agree(Algorithm::SlidingLog);
}
