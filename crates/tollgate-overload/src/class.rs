//! How important a request is, as the user says.
//! Which class gets which share of the limit is an option in `limiter.rs`.

/// The importance of a request: the least important requests are shed first.
///
/// Class 0 is the most important one. Each class may use a share of the limit, which
/// [`AdaptiveLimiterBuilder::shares`](crate::AdaptiveLimiterBuilder::shares) sets. A request is
/// shed when the requests in flight of *all* classes have used up the share of its class.
///
/// If there are fewer shares than classes, the last share is for all further classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// Class 0: requests that the service exists for, such as a log-in or a payment. By default it
    /// may use the whole limit.
    pub const CRITICAL: Self = Self(0);
    /// Class 1: requests that a user waits for. By default it may use 70 % of the limit.
    pub const NORMAL: Self = Self(1);
    /// Class 2: requests that can be sent again later, such as a prefetch or a batch. By default it
    /// may use 50 % of the limit.
    pub const LOW: Self = Self(2);

    /// Creates a class. Class 0 is the most important one.
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
