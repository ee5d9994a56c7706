use std::{
    future::{Future, pending, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

use super::{Background, LISTS, now, until};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn a_task_is_started_again_when_its_runtime_was_shut_down() {
    let background = Background::new();
    assert!(
        background.has(0) && !background.has(1),
        "no task is needed without a duty"
    );
    background.ask(1);
    assert!(!background.has(0), "a duty needs a task");
    assert!(
        !background.start(|_| std::future::pending()),
        "there is no runtime"
    );
    for _ in 0..2 {
        let runtime = runtime();
        runtime.block_on(async {
            assert!(background.start(|running| async move { running.woken().await }));
            assert!(
                background.has(1) && background.begin().is_none(),
                "one task at a time"
            );
        });
        drop(runtime);
        assert!(!background.has(1), "nobody serves the duty");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_rests_is_woken_by_a_caller_that_asks_and_by_the_end_of_its_owner() {
    let background = Background::new();
    background.ask(1);
    let mut running = background.begin().expect("a task");
    assert!(running.take(1) && !running.is_asked(1));
    let began = Instant::now();
    let much_later = began + Duration::from_secs(60);
    background.ask(2);
    running.rest(much_later).await;
    assert!(!running.end(), "a duty is asked for");
    assert!(!running.settle(2, || false));
    drop(background);
    running.rest(much_later).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(running.end());
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

/// Waits for an answer, of a call that began at this time.
async fn wait<T>(
    began: std::time::Instant,
    timeout: Duration,
    answer: impl Future<Output = T>,
) -> Option<T> {
    until(began + timeout, pin!(answer), &Handle::current(), timeout).await
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
            assert_eq!(wait(now(), timeout, pending::<()>()).await, None);
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
    let early = now();
    tokio::time::advance(40 * MS).await;
    let late = tokio::spawn(wait(now(), 50 * MS, pending::<()>()));
    tokio::task::yield_now().await;
    let polled = Instant::now();
    assert_eq!(wait(early, 50 * MS, pending::<()>()).await, None);
    assert!(polled.elapsed() <= 12 * MS, "{:?}", polled.elapsed());
    assert!(!late.is_finished());
}

#[tokio::test(start_paused = true)]
async fn answered_calls_are_removed_with_the_next_addition() {
    for _ in 0..1_000 {
        assert_eq!(
            wait(now(), 50 * MS, tokio::task::yield_now()).await,
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
        wait(now(), timeout, pending::<()>()).await
    });
    let is_pending = ended.block_on(poll_fn(|cx| {
        Poll::Ready(call.as_mut().poll(cx).is_pending())
    }));
    assert!(is_pending);
    drop(ended);
    assert_eq!(other.block_on(call), None);
}
