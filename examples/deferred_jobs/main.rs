//! Defers jobs instead of refusing them: 16 workers send the jobs of a Redis Stream at 100 a
//! minute.
//!
//! ```text
//! export REDIS_URL=redis://127.0.0.1:6379
//! cargo run --example deferred_jobs -- receive
//! cargo run --example deferred_jobs -- work
//! cargo run --example deferred_jobs -- submit 500
//! curl http://127.0.0.1:3000/
//! ```
//!
//! Each command runs in a terminal of its own. `receive` stands for a service of somebody else,
//! which allows 100 calls in any minute. `submit` sends a job at once when a call is free, and
//! otherwise defers it: it appends the job to a Redis Stream. `work` takes deferred jobs, waits for
//! a turn, and calls the receiver. Start `work` as often as you like, also on other machines: all
//! workers and `submit` share one leaky bucket, so the receiver gets 97 calls a minute in all. The
//! last command shows how many arrived, and how many in any minute at most.
//!
//! Kill a worker with `kill -9`: after `CLAIM_AFTER` the others take over the jobs that it had. A
//! job is removed from the stream when the receiver has confirmed it, so no job is lost. A job
//! whose worker dies after the call and before the confirmation is sent twice. The receiver knows
//! it by its number.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `QUOTA` | `100/min` | the calls that the receiver allows |
//! | `MARGIN` | 3 % of the period | the room for delays on the way: see `Quota::with_margin` |
//! | `WORKERS` | 16 | the workers of one process |
//! | `CLAIM_AFTER` | `60s` | the time after which a job of a silent worker is taken over |
//! | `RECEIVER` | `127.0.0.1:3000` | the address of the receiver |
//!
//! Ctrl-C lets each worker finish its job. A worker does not give a turn back: the turns behind it
//! are given out already, and the next caller would leave at the same time as the last of them.
//!
//! To choose `MARGIN`, run the workers under their real load and look at the last line of `curl`:
//! it shows how late the latest job arrived after its turn. A margin above that holds the limit. A
//! worker that stands still for longer than the margin, between its turn and its call, can exceed
//! the limit by the calls of that time.
//!
//! Features: the defaults of `tollgate`.

mod queue;
mod receiver;
mod settings;
mod turn;
mod worker;

use tokio::sync::watch;
use tollgate_examples::{Failure, stopped, store};

use queue::Queue;
use settings::Settings;
use turn::Turns;

const USAGE: &str = "usage: deferred_jobs receive | work | submit JOBS";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let settings = Settings::from_environment()?;
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["receive"] => receiver::serve(&settings).await,
        ["work"] => {
            let turns = Turns::new(store()?, &settings);
            println!(
                "{} workers take jobs, {:?} for all.",
                settings.workers, settings.quota
            );
            let (stop, is_stopped) = watch::channel(false);
            let stopped = stopped();
            tokio::spawn(async move {
                stopped.await;
                println!("Each worker finishes its job.");
                stop.send_replace(true);
            });
            worker::work(&settings, &turns, &is_stopped).await
        }
        ["submit", jobs] => submit(&settings, jobs.parse().map_err(|_| USAGE)?).await,
        _ => Err(USAGE.into()),
    }
}

/// Sends each job for which a call is free, and defers the others.
async fn submit(settings: &Settings, jobs: u64) -> Result<(), Failure> {
    let turns = Turns::new(store()?, settings);
    let mut queue = Queue::open(settings, "submit").await?;
    let client = worker::client();
    let (mut sent, mut deferred) = (0, 0);
    for job in 0..jobs {
        let is_sent = match turns.if_free(settings.longest_wait()).await? {
            Some(turn) => worker::send(&client, settings, job, turn).await.is_ok(),
            None => false,
        };
        if is_sent {
            sent += 1;
        } else {
            queue.append(job).await?;
            deferred += 1;
        }
    }
    println!("{sent} jobs were sent at once, {deferred} are deferred.");
    Ok(())
}
