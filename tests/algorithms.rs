//! What is looked at one by one: shared by tests and by the rows that are measured.

use tollgate::Algorithm;

/// Every algorithm.
pub(crate) const ALGORITHMS: [Algorithm; 8] = [
    Algorithm::TokenBucket,
    Algorithm::IntervalBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::WindowFromFirstHit,
    Algorithm::SlidingWindow,
    Algorithm::SlidingBuckets { buckets: 10 },
    Algorithm::SlidingLog,
];
