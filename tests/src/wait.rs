//! Waits for conditions, instead of sleeping for a fixed time.

use std::{
    fmt::Display,
    thread,
    time::{Duration, Instant},
};

/// The pauses between two looks at a condition: short at first, when most become true, then longer.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The time that a look and its pause count for at most. A machine that stands still makes them
/// longer.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Waits until `condition` holds.
///
/// # Panics
///
/// When it does not hold within `limit`. The message contains `what`. Time in which the machine
/// stands still does not count.
#[track_caller]
pub fn until(what: impl Display, limit: Duration, mut condition: impl FnMut() -> bool) {
    until_some(what, limit, || condition().then_some(()));
}

/// Waits until `attempt` yields a value, and returns it.
///
/// # Panics
///
/// As [`until`].
#[track_caller]
pub fn until_some<T>(
    what: impl Display,
    limit: Duration,
    mut attempt: impl FnMut() -> Option<T>,
) -> T {
    let (mut waited, mut pause) = (Duration::ZERO, FIRST_PAUSE);
    loop {
        let began = Instant::now();
        if let Some(value) = attempt() {
            return value;
        }
        assert!(waited <= limit, "waited {limit:?} in vain for {what}");
        thread::sleep(pause);
        waited += began.elapsed().min(LONGEST_LOOK);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until an asynchronous condition holds. Other tasks run meanwhile.
///
/// The limit is counted in real time, also where tokio's clock is paused.
///
/// # Panics
///
/// As [`until`].
pub async fn until_async(
    what: impl Display,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) {
    until_some_async(what, limit, async || condition().await.then_some(())).await;
}

/// Waits until an asynchronous attempt yields a value, and returns it.
///
/// # Panics
///
/// As [`until_async`].
pub async fn until_some_async<T>(
    what: impl Display,
    limit: Duration,
    mut attempt: impl AsyncFnMut() -> Option<T>,
) -> T {
    let (mut waited, mut pause) = (Duration::ZERO, FIRST_PAUSE);
    let mut began = Instant::now();
    loop {
        if let Some(value) = attempt().await {
            return value;
        }
        assert!(waited <= limit, "waited {limit:?} in vain for {what}");
        tokio::time::sleep(pause).await;
        waited += began.elapsed().min(LONGEST_LOOK);
        began = Instant::now();
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_follows_the_last_pause_however_long_that_was() {
        let mut looks = 0;
        until("the second look", Duration::ZERO, || {
            looks += 1;
            looks == 2
        });
    }

    #[test]
    #[should_panic(expected = "waited 5ms in vain for the moon")]
    fn a_condition_that_stays_false_panics_with_what_it_is() {
        until("the moon", Duration::from_millis(5), || false);
    }

    #[tokio::test]
    #[should_panic(expected = "in vain for the moon")]
    async fn an_asynchronous_condition_that_stays_false_panics() {
        until_async("the moon", Duration::from_millis(5), async || false).await;
    }
}
