use std::time::Duration;

/// Holds the options of a [`RetryAfterLayer`](super::RetryAfterLayer).
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) cap: Duration,
    pub(super) jitter: f64,
    pub(super) fallback: Duration,
    pub(super) delays_on_forbidden: bool,
}

impl Settings {
    pub(super) const DEFAULT: Self = Self {
        cap: Duration::from_secs(60),
        jitter: 0.1,
        fallback: Duration::from_secs(1),
        delays_on_forbidden: false,
    };
}
