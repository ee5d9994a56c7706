use std::{
    future::{Future, pending, poll_fn},
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

use super::{LISTS, answer_by, answer_to};
use crate::{
    Cost, Error, ErrorKind, Key, Policy, PolicySet, Quota,
    store::{Check, Deadline},
};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Returns the timeouts and the numbers of waiting calls of this runtime.
fn waiting() -> Vec<(Duration, usize)> {
    let runtime = Handle::current().id();
    let lists = LISTS.lock();
    lists
        .iter()
        .filter(|list| list.id.runtime == runtime)
        .map(|list| (list.id.timeout, list.waiting.len()))
        .collect()
}

/// Waits for what is no error. `None` when the deadline came first.
async fn wait<T>(deadline: Deadline, answer: impl Future<Output = T>) -> Option<T> {
    match answer_by(Some(deadline), async { Ok(answer.await) }).await {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Timeout);
            None
        }
    }
}

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn each_call_ends_at_its_deadline_and_unused_lists_are_removed() {
    let (began, timeouts) = (
        Instant::now(),
        [10, 5_000, 10, 30, 10].map(|timeout| timeout * MS),
    );
    let waits = timeouts.map(|timeout| {
        tokio::spawn(async move {
            assert_eq!(wait(Deadline::after(timeout), pending::<()>()).await, None);
            Instant::now()
        })
    });
    tokio::task::yield_now().await;
    assert_eq!(waiting().len(), 3, "one list for each timeout");
    for (timeout, ended) in timeouts.into_iter().zip(waits) {
        let late = ended.await.expect("a wait") - began - timeout;
        assert!(late <= 2 * MS, "{late:?}");
    }
    assert_eq!(waiting(), []);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_polled_late_ends_at_its_deadline_all_the_same() {
    let early = Deadline::after(50 * MS);
    tokio::time::advance(40 * MS).await;
    let late = tokio::spawn(wait(Deadline::after(50 * MS), pending::<()>()));
    tokio::task::yield_now().await;
    let polled = Instant::now();
    assert_eq!(wait(early, pending::<()>()).await, None);
    assert!(polled.elapsed() <= 12 * MS, "{:?}", polled.elapsed());
    assert!(!late.is_finished());
}

#[tokio::test(start_paused = true)]
async fn answered_calls_are_removed_with_the_next_addition() {
    for _ in 0..1_000 {
        assert_eq!(
            wait(Deadline::after(50 * MS), tokio::task::yield_now()).await,
            Some(())
        );
    }
    assert_eq!(waiting(), [(50 * MS, 1)]);
}

#[test]
fn a_wait_ends_with_the_runtime_of_its_timer() {
    let (ended, other) = (runtime(), runtime());
    let mut call = Box::pin(async {
        let timeout = Duration::from_secs(600);
        wait(Deadline::after(timeout), pending::<()>()).await
    });
    let is_pending = ended.block_on(poll_fn(|cx| {
        Poll::Ready(call.as_mut().poll(cx).is_pending())
    }));
    assert!(is_pending);
    drop(ended);
    assert_eq!(other.block_on(call), None);
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_with_its_own_alarm_and_is_left_once_its_caller_is_gone() {
    let policies = PolicySet::from(Policy::token_bucket("a", Quota::per_second(1)));
    let key = Key::new("acme");
    let check = Check::new(&policies, &key, Cost::ONE);
    let kept = check.with_deadline(Deadline::after(50 * MS)).keep();
    let began = Instant::now();
    let error = answer_to(&kept, pending::<Result<(), Error>>()).await;
    assert_eq!(error.expect_err("late").kind(), ErrorKind::Timeout);
    assert!(began.elapsed() >= 50 * MS && began.elapsed() <= 52 * MS);
    assert!(kept.is_last(), "the list has let go of it");
    let mut wait = Box::pin(answer_to(&kept, pending::<Result<(), Error>>()));
    let is_pending = poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending);
    drop(wait);
    assert!(!kept.is_last(), "the list has it until the next addition");
    drop(kept);
    let (runtime, lists) = (Handle::current().id(), LISTS.lock());
    let own = lists.iter().filter(|list| list.id.runtime == runtime);
    let left = own
        .flat_map(|list| &list.waiting)
        .filter(|(_, waiter)| waiter.is_left());
    assert_eq!(left.count(), 1);
}
