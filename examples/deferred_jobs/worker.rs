use std::{process, sync::Arc, time::Duration};

use axum::{body::Body, http::Request};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tollgate_examples::Failure;

use crate::{
    queue::Queue,
    settings::Settings,
    turn::{Turn, Turns},
};

pub(crate) type HttpClient = Client<HttpConnector, Body>;

pub(crate) fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

/// Runs the workers until they are stopped.
pub(crate) async fn work(
    settings: &Settings,
    turns: &Turns,
    is_stopped: &watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut workers = JoinSet::new();
    let settings = Arc::new(settings.clone());
    for number in 0..settings.workers {
        // A name that no consumer had before: what a former process had must be claimed.
        let consumer = format!("{}-{number}", process::id());
        let (settings, turns, is_stopped) =
            (Arc::clone(&settings), turns.clone(), is_stopped.clone());
        workers.spawn(async move {
            while !*is_stopped.borrow() {
                if let Err(error) = take_jobs(&settings, &turns, &consumer, &is_stopped).await {
                    eprintln!("{consumer}: {error}");
                    // The server is away. What the worker had is claimed later.
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended?;
    }
    Ok(())
}

/// Takes one job after the other until the queue or the limiter fails.
async fn take_jobs(
    settings: &Settings,
    turns: &Turns,
    consumer: &str,
    is_stopped: &watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut queue = Queue::open(settings, consumer).await?;
    let client = client();
    while !*is_stopped.borrow() {
        let Some(job) = queue.next().await? else {
            continue;
        };
        let turn = loop {
            match turns.within(settings.longest_wait()).await? {
                Some(turn) => break turn,
                None => queue.renew(&job).await?,
            }
        };
        match send(&client, settings, job.number, turn).await {
            Ok(()) => queue.confirm(&job).await?,
            // The job stays claimed. It is claimed again after a while, with a turn of its own.
            Err(error) => eprintln!("{consumer}: job {}: {error}", job.number),
        }
    }
    Ok(())
}

/// Calls the receiver.
pub(crate) async fn send(
    client: &HttpClient,
    settings: &Settings,
    job: u64,
    turn: Turn,
) -> Result<(), Failure> {
    let url = format!(
        "http://{}/jobs/{job}?due_us={}",
        settings.receiver, turn.due_us
    );
    let request = Request::post(url).body(Body::empty())?;
    let response = timeout(settings.call_timeout(), client.request(request)).await??;
    if response.status().is_success() {
        Ok(())
    } else {
        Err(format!("the receiver answered {}", response.status()).into())
    }
}
