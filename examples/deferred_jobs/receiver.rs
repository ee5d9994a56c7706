use std::{
    collections::HashSet,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, Query, State},
    routing::{get, post},
};
use serde::Deserialize;
use tollgate::Quota;
use tollgate_examples::{Failure, listen, serve as serve_router};

use crate::{settings::Settings, turn::now_us};

/// Stands for a service that counts the calls in any period.
#[derive(Clone)]
struct Receiver {
    limit: Quota,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

/// Times in microseconds since the Unix epoch.
#[derive(Clone, Copy)]
struct Arrival {
    job: u64,
    arrived_us: u64,
    due_us: u64,
}

#[derive(Deserialize)]
struct Due {
    due_us: u64,
}

/// Serves until Ctrl-C.
pub(crate) async fn serve(settings: &Settings) -> Result<(), Failure> {
    let receiver = Receiver {
        limit: settings.limit,
        arrivals: Arc::default(),
    };
    let router = Router::new()
        .route("/jobs/{job}", post(receive))
        .route("/arrivals", get(list))
        .route("/", get(summary))
        .with_state(receiver);
    let listener = listen().await?;
    println!(
        "Receiving on http://{}, {:?}. Try: curl http://{0}/",
        listener.local_addr()?,
        settings.limit
    );
    serve_router(listener, router).await
}

/// Notes a job. A job that arrives twice is done once.
async fn receive(State(receiver): State<Receiver>, Path(job): Path<u64>, Query(due): Query<Due>) {
    let mut arrivals = receiver
        .arrivals
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    arrivals.push(Arrival {
        job,
        arrived_us: now_us(),
        due_us: due.due_us,
    });
}

impl Receiver {
    fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Lists the arrivals, one a line: the job, the time of the arrival and the earliest time of its
/// turn.
async fn list(State(receiver): State<Receiver>) -> String {
    let mut lines = String::new();
    for Arrival {
        job,
        arrived_us,
        due_us,
    } in receiver.arrivals()
    {
        // Writing to memory cannot fail.
        let _ = writeln!(lines, "{job} {arrived_us} {due_us}");
    }
    lines
}

/// Says what arrived, and how much of it in any period at most.
async fn summary(State(receiver): State<Receiver>) -> String {
    let arrivals = receiver.arrivals();
    let jobs: HashSet<_> = arrivals.iter().map(|arrival| arrival.job).collect();
    let late = arrivals
        .iter()
        .map(|arrival| arrival.arrived_us.saturating_sub(arrival.due_us))
        .max();
    format!(
        "{} jobs arrived, {} of them again\nat most {} in any {:?}\nthe latest arrived {:?} after its turn\n",
        jobs.len(),
        arrivals.len() - jobs.len(),
        most_in(&arrivals, receiver.limit.period()),
        receiver.limit.period(),
        Duration::from_micros(late.unwrap_or(0)),
    )
}

/// Returns how many jobs arrived in one period at most.
fn most_in(arrivals: &[Arrival], period: Duration) -> usize {
    let mut times: Vec<_> = arrivals.iter().map(|arrival| arrival.arrived_us).collect();
    times.sort_unstable();
    let period_us = period.as_micros() as u64;
    let in_period =
        |from: usize| times[from..].partition_point(|time| *time < times[from] + period_us);
    (0..times.len()).map(in_period).max().unwrap_or(0)
}
