use std::time::Duration;

use tokio::time::Instant;

use super::Background;

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
    assert!(!running.finish(2, || false));
    drop(background);
    running.rest(much_later).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(running.end());
}
