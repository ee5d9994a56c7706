//! The example that defers jobs: several processes of workers, one of which is killed.

use std::{collections::HashSet, ffi::OsStr, net::SocketAddr, process::Command, time::Duration};

use tollgate_tests::{Process, RedisServer, machine, ports, wait};

use crate::http;

/// The calls that the receiver allows, the margin, and the time after which a job is claimed.
const LIMIT: usize = 40;
const PERIOD: Duration = Duration::from_secs(4);
const MARGIN: Duration = Duration::from_millis(800);
const CLAIM_AFTER: &str = "6s";

const JOBS: usize = 100;
const PROCESSES: usize = 4;
const WORKERS: usize = 4;

/// The longest time for all jobs. They take 12 seconds and the claim.
const PATIENCE: Duration = Duration::from_secs(120);

/// Times in microseconds since the Unix epoch.
struct Arrival {
    job: u64,
    arrived: u64,
    due: u64,
}

fn deferred_jobs(
    program: &OsStr,
    redis: &RedisServer,
    receiver: SocketAddr,
    arguments: &[&str],
) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("LISTEN", receiver.to_string())
        .env("RECEIVER", receiver.to_string());
    command
        .env("QUOTA", format!("{LIMIT}/{}s", PERIOD.as_secs()))
        .env("MARGIN", format!("{}ms", MARGIN.as_millis()));
    command
        .env("CLAIM_AFTER", CLAIM_AFTER)
        .env("WORKERS", WORKERS.to_string())
        .env("REDIS_URL", redis.url());
    command
}

/// Returns what the receiver counted.
fn arrivals(receiver: SocketAddr) -> Vec<Arrival> {
    let lines = http::open(receiver, "GET", "/arrivals", &[], "").text();
    let arrival = |line: &str| {
        let mut numbers = line
            .split(' ')
            .map(|number| number.parse::<u64>().expect("a number"));
        Some(Arrival {
            job: numbers.next()?,
            arrived: numbers.next()?,
            due: numbers.next()?,
        })
    };
    lines.lines().filter_map(arrival).collect()
}

/// Returns how many jobs the workers of a process have claimed and not confirmed.
fn claimed(redis: &RedisServer, process: u32) -> usize {
    let worker = |number| {
        let consumer = format!("{process}-{number}");
        redis
            .command(&["XPENDING", "jobs", "workers", "-", "+", "100", &consumer])
            .items()
            .len()
    };
    (0..WORKERS).map(worker).sum()
}

/// Returns how many of the times lie in one period of this length at most.
fn most_in(mut times: Vec<u64>, period: u64) -> usize {
    times.sort_unstable();
    let in_period =
        |from: usize| times[from..].partition_point(|time| *time < times[from] + period);
    (0..times.len()).map(in_period).max().unwrap_or(0)
}

#[test]
fn deferred_jobs_arrive_at_the_rate_and_none_is_lost_when_a_worker_is_killed() {
    // All jobs may be done before a worker is killed.
    machine::undisturbed(Duration::from_secs(1), a_worker_is_killed);
}

fn a_worker_is_killed() {
    let redis = RedisServer::start();
    let receiver = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let program = Process::example("deferred_jobs").get_program().to_owned();
    let deferred_jobs = |arguments: &[&str]| deferred_jobs(&program, &redis, receiver, arguments);
    let _receiver = Process::start(deferred_jobs(&["receive"]), "Try");
    let submit = Process::start(deferred_jobs(&["submit", &JOBS.to_string()]), "deferred");
    assert!(
        submit.ready_line().contains("jobs were sent at once"),
        "{}",
        submit.output()
    );
    assert!(
        redis.command(&["XLEN", "jobs"]).int() >= JOBS as i64 / 2,
        "{}",
        submit.output()
    );

    let start = |_| Process::start(deferred_jobs(&["work"]), "take jobs");
    let mut workers: Vec<_> = (0..PROCESSES).map(start).collect();
    let mut killed = workers.remove(0);
    wait::until("the first workers to have jobs", PATIENCE, || {
        arrivals(receiver).len() > LIMIT / 4 && claimed(&redis, killed.pid()) == WORKERS
    });
    killed.kill();
    assert!(
        claimed(&redis, killed.pid()) > 0,
        "the killed workers had no jobs"
    );

    let jobs = |arrivals: &[Arrival]| {
        arrivals
            .iter()
            .map(|arrival| arrival.job)
            .collect::<HashSet<_>>()
    };
    wait::until("all jobs", PATIENCE, || {
        jobs(&arrivals(receiver)).len() == JOBS
    });
    wait::until("all confirmations", PATIENCE, || {
        redis.command(&["XLEN", "jobs"]).int() == 0
    });
    assert_eq!(claimed(&redis, killed.pid()), 0);
    for worker in &mut workers {
        assert!(worker.interrupt().success());
    }

    let arrivals = arrivals(receiver);
    // `due` is not later than the turn, so this is an upper bound of the time on the way, however
    // slow the machine is.
    let latest = arrivals
        .iter()
        .map(|arrival| arrival.arrived.saturating_sub(arrival.due))
        .max()
        .expect("arrivals");
    let times: Vec<_> = arrivals.iter().map(|arrival| arrival.arrived).collect();
    // One job more than the limit leaves a period and a margin after the first. So at least this
    // time lies between their arrivals: more than a period, while no job is late by more than the
    // margin.
    let period = ((PERIOD + MARGIN).as_micros() as u64).saturating_sub(latest);
    let most = most_in(times, period);
    assert!(
        most <= LIMIT,
        "{most} jobs arrived in {period} µs, at most {LIMIT} may"
    );
}
