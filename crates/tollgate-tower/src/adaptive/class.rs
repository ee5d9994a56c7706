/// Names the class of a request: the order in which requests are shed.
///
/// The class with the number 0 is the most important one. Each class may use a share of the concurrency limit, which
/// [`AdaptiveLimiterBuilder::shares`](super::AdaptiveLimiterBuilder::shares) sets. The shares count all requests in
/// flight, not those of the class: the last class is shed first, and the others may use what it leaves.
///
/// A class beyond the last share has the last share.
///
/// ```
/// use tollgate_tower::adaptive::Class;
///
/// assert!(Class::CRITICAL < Class::NORMAL);
/// assert_eq!(Class::new(2), Class::LOW);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// The class 0: requests that keep the service in use, such as a log-in or a payment. It may use the whole limit.
    pub const CRITICAL: Self = Self(0);
    /// The class 1: requests that a user waits for. By default it may use 70 % of the limit.
    pub const NORMAL: Self = Self(1);
    /// The class 2: requests that can be sent again later, such as a prefetch or a batch. By default it may use 50 % of
    /// the limit.
    pub const LOW: Self = Self(2);

    /// Creates a class. The class 0 is the most important one.
    #[must_use]
    pub const fn new(class: u8) -> Self {
        Self(class)
    }

    /// Returns the number of the class.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}
