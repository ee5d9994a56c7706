//! Rows: clients that hold the connections of `tollgate-envoy`, and clients that are slow.

use std::{fs, io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tollgate_tests::{
    RateLimitService,
    rate_limit_service::{get, idle_connections},
};

use crate::{
    findings::{Findings, Target},
    load::{millis, until},
    pace::Pace,
};

const RULES: &str = "{domain: shop, descriptors: [{key: tenant, rate_limit: {unit: day, requests_per_unit: 1000000}}]}";

/// The descriptors of the service, and the connections that its clients hold.
const DESCRIPTORS: u32 = 64;
const CLIENTS: usize = 90;

/// A call to a method that there is not: it ends at once (RFC 7541, RFC 9113).
const CALL: &[u8] = b"\0\0\x09\x01\x05\0\0\0\x01\x83\x86\x04\x05/none";

pub(super) async fn descriptors(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    for (bound, options, line, counted, again) in [
        (
            "the default bound",
            &[][..],
            "further connections wait until one ends",
            "connection_limit",
            200.0,
        ),
        // The pause grows to a second.
        (
            "a bound of 1000",
            &["--max-connections=1000"],
            "connections cannot be accepted",
            "accept_error",
            1_200.0,
        ),
    ] {
        let mut service = RateLimitService::start_with_descriptors(RULES, options, DESCRIPTORS);
        // A client that has made a call keeps its place.
        let mut flood = called(service.grpc(), CLIENTS).await;
        service.process().wait_for_line(line);
        let share = 100.0
            * work(
                service.pid(),
                pace.of(Duration::from_secs(5), Duration::from_secs(2)),
            )
            .await;
        let asked = |what: &str| format!("{bound}: {what}");
        findings.figure(
            asked("processor time of the service"),
            Target::AtMost(5.0),
            share,
            " %",
        );
        let served = flood
            .iter()
            .filter(|connection| is_served(connection))
            .count();
        findings.figure(
            asked(&format!("connections served, of {CLIENTS}")),
            Target::None,
            served as f64,
            "",
        );

        // Connections are accepted in their order, so the first ones are those that are served.
        let waiting = flood.split_off(served);
        drop(flood);
        let closed = Instant::now();
        until("a connection that waited", async || {
            waiting.iter().any(is_served)
        })
        .await;
        let asked_again = asked("from the end of some to the service of others");
        findings.figure(
            asked_again,
            Target::AtMost(again),
            millis(closed.elapsed()),
            " ms",
        );
        drop(waiting);
        until("a free descriptor", async || {
            get(service.place("HTTP"), "/healthcheck").await.is_ok()
        })
        .await;

        let lines = service
            .process()
            .output()
            .matches(&format!("{line} port=\"gRPC\""))
            .count();
        findings.figure(
            asked("lines in the log"),
            Target::AtMost(1.0),
            lines as f64,
            "",
        );
        let count = service
            .counter(&format!("ratelimit_server.{counted}"))
            .await;
        findings.figure(
            asked(&format!("`{counted}`")),
            Target::AtLeast(1.0),
            count as f64,
            "",
        );
        // A loop without a pause comes to a hundred thousand in a second.
        let attempts = service.counter("ratelimit_server.accept_error").await;
        findings.figure(
            asked("attempts that failed"),
            Target::AtMost(100.0),
            attempts as f64,
            "",
        );
    }
    findings
}

pub(super) async fn one_port(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let service = RateLimitService::start_with_descriptors(RULES, &[], DESCRIPTORS);
    let (grpc, pages) = (service.grpc(), service.place("HTTP"));
    let requests = pace.of(200, 50);

    let flood = idle_connections(grpc, CLIENTS)
        .await
        .expect("the system accepts them");
    let (answers, longest) = repeat(requests, async || {
        get(pages, "/healthcheck")
            .await
            .is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    })
    .await;
    findings.figure(
        format!("flood of gRPC: answers over HTTP, of {requests}"),
        Target::AtLeast(requests as f64),
        answers,
        "",
    );
    findings.figure(
        "the same: longest",
        Target::AtMost(70.0),
        millis(longest),
        " ms",
    );
    drop(flood);

    let mut flood = Vec::new();
    for _ in 0..CLIENTS {
        flood.push(
            TcpStream::connect(pages)
                .await
                .expect("the system accepts it"),
        );
    }
    let (answers, longest) = repeat(requests, async || {
        let mut connections = idle_connections(grpc, 1)
            .await
            .expect("the system accepts it");
        connections.remove(0).read_u8().await.is_ok()
    })
    .await;
    findings.figure(
        format!("flood of HTTP: connections of gRPC served, of {requests}"),
        Target::AtLeast(requests as f64),
        answers,
        "",
    );
    findings.figure(
        "the same: longest",
        Target::AtMost(70.0),
        millis(longest),
        " ms",
    );

    // As many silent clients as there are places. They have a second for their first call.
    let metrics = service.place("metrics");
    let silent = connections(
        metrics,
        b"",
        usize::try_from(DESCRIPTORS / 16).expect("a number"),
    )
    .await;
    let began = Instant::now();
    let answer = get(metrics, "/metrics").await;
    let is_there = answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
    findings.figure(
        "flood of the metrics: pages, of 1",
        Target::AtLeast(1.0),
        f64::from(u8::from(is_there)),
        "",
    );
    findings.figure(
        "the same: until it is there",
        Target::AtMost(1_500.0),
        millis(began.elapsed()),
        " ms",
    );
    drop(silent);
    findings
}

pub(super) async fn slow(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let service = RateLimitService::start(RULES, &["--idle-timeout=2s"]);
    let (grpc, pages) = (service.grpc(), service.place("HTTP"));
    let clients = pace.of(30, 5);
    let half_a_body = b"POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{";
    let (bodies, heads, silent, idle) = tokio::join!(
        closed(connections(pages, half_a_body, clients).await),
        // The time limit of a head is 30 s: too long for a quick run.
        closed(
            connections(
                pages,
                b"GET /healthcheck HTTP/1.1\r\nhost:",
                pace.of(clients, 0)
            )
            .await
        ),
        left(
            idle_connections(grpc, clients)
                .await
                .expect("the system accepts them")
        ),
        async { left(called(grpc, clients).await).await },
    );
    for (what, took, target) in [
        // The answer comes after 10 s. A client that goes on then has two more seconds.
        (
            "bodies over HTTP/1.1 that do not go on, limit 12 s",
            Some(bodies),
            13_000.0,
        ),
        (
            "heads over HTTP/1.1 that do not go on, limit 30 s",
            (!pace.is_quick).then_some(heads),
            31_000.0,
        ),
        // The client has a second to close it, after the time limit.
        (
            "connections of gRPC without a call, limit 2 s",
            Some(silent),
            4_000.0,
        ),
        // The calls of one limit are looked for at the end of the next one.
        (
            "connections of gRPC without a further call, limit 2 s",
            Some(idle),
            5_000.0,
        ),
    ] {
        if let Some(took) = took {
            findings.figure(
                format!("{what}: until the last is closed"),
                Target::AtMost(target),
                millis(took),
                " ms",
            );
        }
    }
    findings
}

/// Opens connections of gRPC that make one call.
async fn called(server: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut all = idle_connections(server, count)
        .await
        .expect("the system accepts them");
    for connection in &mut all {
        connection
            .write_all(CALL)
            .await
            .expect("the service reads it");
    }
    all
}

/// Opens connections, and sends these bytes on each.
async fn connections(server: SocketAddr, bytes: &[u8], count: usize) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut connection = TcpStream::connect(server)
            .await
            .expect("the system accepts it");
        connection
            .write_all(bytes)
            .await
            .expect("the service reads it");
        all.push(connection);
    }
    all
}

/// Waits until the service has closed all connections over HTTP/1.1, and returns how long it took.
async fn closed(connections: Vec<TcpStream>) -> Duration {
    let began = Instant::now();
    for mut connection in connections {
        let mut answer = Vec::new();
        // A reset is an end, too.
        let _ = connection.read_to_end(&mut answer).await;
    }
    began.elapsed()
}

/// Waits as [`closed`] does, of connections over HTTP/2. Answers pings meanwhile, of which the last
/// one comes before the end.
async fn left(connections: Vec<TcpStream>) -> Duration {
    let began = Instant::now();
    let pongs: Vec<_> = connections
        .into_iter()
        .map(|connection| tokio::spawn(pong(connection)))
        .collect();
    for pong in pongs {
        // The error is the end.
        let _ = pong.await.expect("a task");
    }
    began.elapsed()
}

/// Answers the pings of a connection until its end.
async fn pong(mut connection: TcpStream) -> io::Result<()> {
    const PING: u8 = 6;
    const ACK: u8 = 1;
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await?;
        let [high, middle, low, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        connection.read_exact(&mut payload).await?;
        if kind == PING && flags & ACK == 0 {
            head[4] = ACK;
            connection.write_all(&[&head, &*payload].concat()).await?;
        }
    }
}

/// Returns whether the service has sent its settings.
fn is_served(connection: &TcpStream) -> bool {
    connection.try_read(&mut [0]).is_ok_and(|read| read > 0)
}

/// Asks again and again. Returns the number of answers, and the longest time.
async fn repeat(times: usize, mut ask: impl AsyncFnMut() -> bool) -> (f64, Duration) {
    let (mut answers, mut longest) = (0, Duration::ZERO);
    for _ in 0..times {
        let began = Instant::now();
        answers += u32::from(ask().await);
        longest = longest.max(began.elapsed());
    }
    (answers.into(), longest)
}

/// Returns the share of a processor that a process takes in this time.
async fn work(pid: u32, time: Duration) -> f64 {
    let used = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("linux counts");
        // "pid (name) state …": the 14th and 15th fields are the times in the process and in the
        // kernel.
        let fields = stat
            .rsplit(')')
            .next()
            .into_iter()
            .flat_map(str::split_whitespace);
        fields
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum::<u64>()
    };
    let before = used();
    tokio::time::sleep(time).await;
    (used() - before) as f64 / rustix::param::clock_ticks_per_second() as f64 / time.as_secs_f64()
}
