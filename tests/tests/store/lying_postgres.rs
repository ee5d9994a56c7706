//! A server of PostgreSQL that lies, or whoever stands in front of it without TLS: the connection
//! ends before anything is kept, and the outage rule decides.

use std::sync::atomic::{AtomicU32, Ordering};

use tollgate::{Cost, ErrorKind, Limiter, Outage, Policy, Quota};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_test_support::{PATIENCE, POSTGRES, decided, new_table, patient_limiter};
use tollgate_tests::{
    LyingPostgres,
    lying_postgres::{
        Asked, Lie, array, columns, complete, is_read, is_sweep, is_write, keys, message, report,
        row, types,
    },
    wait,
};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

/// More than a connection holds, the buffers of the system included.
const MUCH: u64 = 64 * 1024 * 1024;

fn limiter(store: &PostgresStore) -> Limiter {
    Limiter::builder(store.clone())
        .policies(HOURLY)
        .deadline(PATIENCE)
        .on_outage(Outage::Closed)
        .build()
}

/// Returns a limiter over a server that has said the truth so far.
async fn connected(server: &LyingPostgres) -> Limiter {
    server.set(|_| None);
    limiter(&PostgresStore::connect(server.url()).await.expect("a store"))
}

/// Waits until a limiter decides again, once the server says the truth.
async fn decides_again(server: &LyingPostgres, limiter: &Limiter) {
    server.set(|_| None);
    wait::until_async("the truth to be believed", PATIENCE, async || {
        limiter.check("other").await.is_ok()
    })
    .await;
}

const NOW: &[u8] = &1_700_000_000_000_000_i64.to_be_bytes();

/// The library of the client takes as much memory as a list announces: 51 GB.
#[tokio::test]
async fn a_list_that_announces_more_than_was_asked_for_is_refused() {
    let server = LyingPostgres::start(|_| None);
    for (of, count) in [
        (17, i32::MAX),
        (17, 2),
        (17, 0),
        (17, -1),
        (17, i32::MIN),
        (23, 1_000_000_000),
    ] {
        let limiter = connected(&server).await;
        server.set(move |asked| match asked {
            Asked::Rows(text, _) if is_read(text) => {
                let values = array(of, count, &[None]);
                let rows = [row(&[Some(NOW), Some(&values)]), complete(1)].concat();
                Some(Lie::Bytes(rows))
            }
            _ => None,
        });
        let error = limiter.check("acme").await.expect_err("a lie");
        assert_eq!(error.kind(), ErrorKind::Protocol, "{count}: {error}");
        decides_again(&server, &limiter).await;
    }
}

/// Processes count themselves before anybody has asked for a check.
#[tokio::test]
async fn a_lie_about_the_count_of_replicas_ends_nothing_else() {
    let lies = std::sync::Arc::new(AtomicU32::new(0));
    let server = LyingPostgres::start(|_| None);
    let store = PostgresStore::connect(server.url()).await.expect("a store");
    let counted = std::sync::Arc::clone(&lies);
    server.set(move |asked| match asked {
        Asked::Rows(text, parameters)
            if is_read(text) && parameters[0].windows(10).any(|part| part == b"{replicas}") =>
        {
            counted.fetch_add(1, Ordering::Relaxed);
            let values = array(17, i32::MAX, &[None]);
            let rows = [row(&[Some(NOW), Some(&values)]), complete(1)].concat();
            Some(Lie::Bytes(rows))
        }
        _ => None,
    });
    let limiter = Limiter::builder(store)
        .policies(HOURLY)
        .deadline(PATIENCE)
        .on_outage(Outage::default())
        .build();
    wait::until_async("the replicas to be counted", PATIENCE, async || {
        let decision = limiter.check("acme").await.expect("a decision");
        !decision.is_degraded() && lies.load(Ordering::Relaxed) > 0
    })
    .await;
    let decision = limiter.check("acme").await.expect("a decision");
    assert!(!decision.is_degraded());
}

/// What is out of range would read as "all are written".
#[tokio::test]
async fn an_answer_of_the_write_that_names_no_change_is_refused() {
    let server = LyingPostgres::start(|_| None);
    let number = |number: i32| number.to_be_bytes();
    for (count, numbers) in [
        (i32::MAX, vec![number(0)]),
        (2, vec![number(0), number(0)]),
        (1, vec![number(1)]),
        (1, vec![number(-1)]),
        (1, vec![number(i32::MIN)]),
        (1, vec![number(i32::MAX)]),
    ] {
        let limiter = connected(&server).await;
        server.set(move |asked| match asked {
            Asked::Rows(text, _) if is_write(text) => {
                let elements: Vec<_> = numbers.iter().map(|number| Some(&number[..])).collect();
                let others = array(23, count, &elements);
                Some(Lie::Bytes([row(&[Some(&others)]), complete(1)].concat()))
            }
            _ => None,
        });
        let error = limiter.check("acme").await.expect_err("a lie");
        assert_eq!(error.kind(), ErrorKind::Protocol, "{count}: {error}");
        decides_again(&server, &limiter).await;
    }
}

/// The pair: a write that was not made is decided again.
#[tokio::test]
async fn an_answer_of_the_write_that_names_the_change_is_believed() {
    let server = LyingPostgres::start(|_| None);
    let limiter = connected(&server).await;
    let tries = AtomicU32::new(0);
    server.set(move |asked| match asked {
        Asked::Rows(text, _) if is_write(text) => {
            let others = match tries.fetch_add(1, Ordering::Relaxed) {
                0 => Some(array(23, 1, &[Some(&0_i32.to_be_bytes())])),
                1 => None,
                _ => Some(array(23, 0, &[])),
            };
            let answer = [row(&[others.as_deref()]), complete(1)].concat();
            Some(Lie::Bytes(answer))
        }
        _ => None,
    });
    assert!(decided(&limiter, "acme").await.is_allowed());
}

/// The client library asks the server about each type that is not built in, and about the type in
/// that one, until its stack is full.
#[tokio::test]
async fn a_type_that_is_not_built_in_ends_the_connection() {
    for of_rows in [true, false] {
        let server = LyingPostgres::start(move |asked| match asked {
            Asked::Description(text) if is_read(text) => Some(Lie::Bytes(match of_rows {
                true => [types(&[1001]), columns(&[20, 100_000])].concat(),
                false => [types(&[100_000]), columns(&[20, 1001])].concat(),
            })),
            _ => None,
        });
        let store = PostgresStore::builder(server.url()).build().expect("a URL");
        let error = store.ping().await.expect_err("a lie");
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.to_string().contains("not built in"), "{error}");
        server.set(|_| None);
        store.ping().await.expect("the truth");
    }
}

/// Announces a message of 2 GB.
fn announced(kind: u8) -> Vec<u8> {
    [&[kind], &2_000_000_000_u32.to_be_bytes()[..]].concat()
}

fn settings() -> Vec<u8> {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let setting = |_| {
        let name = NAMES.fetch_add(1, Ordering::Relaxed);
        message(b'S', format!("setting_{name}\0on\0").as_bytes())
    };
    (0..5_000).flat_map(setting).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_end_while_a_session_begins_ends_the_connection() {
    let text = || vec![b'x'; 4_096];
    let notice = || report(b'N', "00000", "hello");
    let begun = || message(b'R', &[0; 4]);
    let sasl = [
        &message(b'R', &[])[..1],
        &2_000_000_000_u32.to_be_bytes(),
        &[0, 0, 0, 10],
    ]
    .concat();
    for (what, begin, again) in [
        ("an error of 2 GB", announced(b'E'), text()),
        ("a notice of 2 GB", announced(b'N'), text()),
        ("notices before", Vec::new(), notice()),
        ("notices", begun(), notice()),
        ("settings", begun(), settings()),
        ("mechanisms", sasl, b"SCRAM-SHA-1\0".to_vec()),
        (
            "a setting of 2 GB",
            [begun(), announced(b'S')].concat(),
            text(),
        ),
    ] {
        let session = what;
        let lie = move || Lie::Forever(begin.clone(), again.clone());
        let server = LyingPostgres::start(move |asked| matches!(asked, Asked::Session).then(&lie));
        refused(&server, session).await;
    }
    for (what, begin) in [
        ("the answer about TLS", b"E".to_vec()),
        ("no answer about TLS", b"N".to_vec()),
    ] {
        let again = text();
        let lie = move || Lie::Forever(begin.clone(), again.clone());
        let server = LyingPostgres::start(move |asked| matches!(asked, Asked::Tls).then(&lie));
        refused(&server, what).await;
    }
    for (what, begin, again) in [
        (
            "errors",
            Vec::new(),
            report(b'E', "22023", "no such setting"),
        ),
        ("notices", Vec::new(), notice()),
        ("rows", columns(&[25]), row(&[Some(b"off")])),
        ("columns", Vec::new(), columns(&[25; 1_000])),
    ] {
        let lie = move || Lie::Forever(begin.clone(), again.clone());
        let server = LyingPostgres::start(move |asked| {
            matches!(asked, Asked::Query(text) if text.contains("enable_seqscan")).then(&lie)
        });
        refused(&server, what).await;
    }
}

/// Returns the kind of the error. The first of many errors is one that a server may send.
fn kind(what: &str) -> ErrorKind {
    match what {
        "errors" => ErrorKind::Unavailable,
        _ => ErrorKind::Protocol,
    }
}

/// Sees that the store takes little of an answer without an end, and works with the next one.
async fn refused(server: &LyingPostgres, what: &str) {
    let store = PostgresStore::builder(server.url()).build().expect("a URL");
    let error = store.ping().await.expect_err(what);
    assert_eq!(error.kind(), kind(what), "{what}: {error}");
    assert!(server.taken() < MUCH, "{what}: {} bytes", server.taken());
    server.set(|_| None);
    store.ping().await.expect(what);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_ends_the_connection_and_the_next_one_works() {
    let empty = || row(&[]);
    for (what, begin, again) in [
        ("rows", Vec::new(), row(&[Some(NOW), Some(&[0; 1_000])])),
        ("rows without columns", Vec::new(), empty()),
        ("a row of 2 GB", announced(b'D'), vec![0; 4_096]),
        ("notices", Vec::new(), report(b'N', "00000", "hello")),
        ("errors", Vec::new(), report(b'E', "22023", "no")),
        ("an error of 2 GB", announced(b'E'), vec![b'x'; 4_096]),
        ("settings", Vec::new(), settings()),
        (
            "notifications",
            Vec::new(),
            message(b'A', b"\0\0\0\x07channel\0text\0"),
        ),
        ("a copy", Vec::new(), message(b'd', &[0; 4_096])),
    ] {
        for of_write in [false, true] {
            let server = LyingPostgres::start(|_| None);
            let limiter = connected(&server).await;
            let lie = {
                let (begin, again) = (begin.clone(), again.clone());
                move || Lie::Forever(begin.clone(), again.clone())
            };
            server.set(move |asked| match asked {
                Asked::Rows(text, _) if is_write(text) && of_write => Some(lie()),
                Asked::Rows(text, _) if is_read(text) && !of_write => Some(lie()),
                _ => None,
            });
            let error = limiter.check("acme").await.expect_err(what);
            assert_eq!(error.kind(), kind(what), "{what}: {error}");
            decides_again(&server, &limiter).await;
            assert!(server.taken() < MUCH, "{what}: {} bytes", server.taken());
        }
    }
}

#[tokio::test]
async fn what_is_no_postgres_is_not_called_tls() {
    let garbage = || Lie::Bytes(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec());
    for of_session in [true, false] {
        let server = LyingPostgres::start(move |asked| match asked {
            Asked::Session if of_session => Some(garbage()),
            Asked::Query(_) if !of_session => Some(garbage()),
            _ => None,
        });
        for mode in ["disable", "prefer"] {
            let url = format!("{}&sslmode={mode}", server.url());
            let error = PostgresStore::connect(url).await.expect_err("garbage");
            assert_eq!(error.kind(), ErrorKind::Protocol, "{mode}: {error}");
        }
    }
    let server = LyingPostgres::start(|_| None);
    let limiter = connected(&server).await;
    server.set(move |asked| matches!(asked, Asked::Rows(..)).then(garbage));
    let error = limiter.check("acme").await.expect_err("garbage");
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

/// The pair: what is TLS is called so.
#[tokio::test]
async fn tls_that_fails_is_called_tls() {
    for answer in ["N", "SHTTP/1.1 400 Bad Request\r\n"] {
        let server = LyingPostgres::start(move |asked| {
            matches!(asked, Asked::Tls).then(|| Lie::Bytes(answer.into()))
        });
        let url = format!("{}&sslmode=require", server.url());
        let error = PostgresStore::connect(url).await.expect_err("no TLS");
        assert_eq!(error.kind(), ErrorKind::Tls, "{answer}: {error}");
    }
}

#[tokio::test]
async fn a_text_of_the_server_is_escaped_and_cut() {
    let text = format!("no\u{1b}[2J\nforged line {}", "x".repeat(100_000));
    let server = LyingPostgres::start(|_| None);
    let limiter = connected(&server).await;
    server.set(move |asked| {
        matches!(asked, Asked::Rows(..)).then(|| Lie::Bytes(report(b'E', "XX\u{1b}00", &text)))
    });
    let error = limiter.check("acme").await.expect_err("an error");
    let shown = error.to_string();
    assert!(shown.contains("no\\u{1b}[2J\\nforged line x"), "{shown}");
    assert!(!shown.contains(char::is_control), "{shown:?}");
    assert!(shown.len() < 500, "{}", shown.len());
}

/// A server that says of each removal that a thousand rows were removed, and whose clock stands.
#[tokio::test]
async fn removing_expired_rows_ends() {
    static SWEEPS: AtomicU32 = AtomicU32::new(0);
    let server = LyingPostgres::start(|asked| match asked {
        Asked::Rows(text, _) if is_sweep(text) => {
            SWEEPS.fetch_add(1, Ordering::Relaxed);
            Some(Lie::Bytes(complete(1_000)))
        }
        _ => None,
    });
    let limiter = limiter(&PostgresStore::connect(server.url()).await.expect("a store"));
    let sweeps = || SWEEPS.load(Ordering::Relaxed);
    assert!(limiter.check("acme").await.is_ok());
    wait::until_async("ten million rows to be removed", PATIENCE, async || {
        sweeps() >= 10_000
    })
    .await;
    for _ in 0..20 {
        assert!(limiter.check("acme").await.is_ok());
    }
    assert_eq!(sweeps(), 10_000);
    // The next minute has a turn of its own.
    server.advance(60_000_000);
    wait::until_async("rows to be removed again", PATIENCE, async || {
        limiter.check("acme").await.is_ok() && sweeps() > 10_000
    })
    .await;
}

/// The pair: a log of 100 000 units with tags has 7 MB, and two of them are more than the bound of
/// other states.
#[tokio::test]
async fn a_long_log_that_was_asked_for_is_read() {
    const UNITS: u64 = 100_000;
    let store = PostgresStore::builder(POSTGRES.url())
        .table(new_table())
        .create(Durability::Unlogged)
        .connect()
        .await
        .expect("a store");
    let quota = Quota::per_day(UNITS);
    let set = [
        Policy::sliding_log("one", quota),
        Policy::sliding_log("other", quota),
    ];
    let limiter = patient_limiter(store, set);
    let tag = [b'x'; 64];
    let check = limiter.check("acme").cost(Cost::new(UNITS)).tag(&tag);
    assert!(check.await.expect("a decision").is_allowed());
    assert!(limiter.check("acme").await.expect("a decision").is_denied());
}

/// Sees that what the lies of this file stand on is the truth of a real server.
#[tokio::test]
async fn a_server_that_says_the_truth_is_believed() {
    let server = LyingPostgres::start(|asked| {
        if let Asked::Rows(text, parameters) = asked
            && is_read(text)
        {
            assert!((1..100).contains(&keys(parameters)), "{parameters:?}");
        }
        None
    });
    let limiter = connected(&server).await;
    for _ in 0..10 {
        assert!(decided(&limiter, "acme").await.is_allowed());
    }
}
