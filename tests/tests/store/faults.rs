//! `RedisStore` through faults of its server: away, silent, wrong replies, wrong password, missing
//! rights.

use std::{
    future::Future,
    pin::pin,
    sync::mpsc,
    task::{Context, Waker},
    thread,
    time::Duration,
};

use tollgate::{ErrorKind, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_test_support::{
    PATIENCE, connected_store, decided, opened_store, patient_limiter, remaining,
};
use tollgate_tests::{Client, Mode, Proxy, RedisServer, ports, wait};

/// So slow that no unit accrues while a test runs.
const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_script_flushes_causes_no_error() {
    let server = RedisServer::start();
    let limiter = patient_limiter(
        connected_store(server.url()).await,
        Policy::fixed_window("storm", Quota::per_day(1_000_000)),
    );
    let addr = server.addr();
    let flushing = std::thread::spawn(move || {
        let mut client = Client::connect(addr).expect("a client");
        for _ in 0..2_000 {
            client.command(&["SCRIPT", "FLUSH"]).expect("a reply");
        }
    });
    let mut checks = 0;
    while !flushing.is_finished() {
        let decision = limiter.check("acme").await.expect("no error surfaces");
        assert!(!decision.is_degraded());
        checks += 1;
    }
    assert!(checks > 0);
    assert_eq!(remaining(&limiter, "acme").await, 1_000_000 - checks);
}

#[tokio::test]
async fn a_missing_server_is_a_clear_error_and_then_an_outage() {
    let port = ports::free();
    let url = format!("redis://127.0.0.1:{port}");
    let error = RedisStore::connect(&url)
        .await
        .expect_err("nothing listens there");
    assert_eq!(
        (error.kind(), error.to_string()),
        (
            ErrorKind::ConnectionRefused,
            format!("cannot connect to redis at 127.0.0.1:{port}: nothing listens there")
        )
    );

    let limiter = Limiter::builder(RedisStore::open(&url).expect("a store"))
        .policies(HOURLY)
        .deadline(PATIENCE)
        .build();
    for spent in 1..=5 {
        let decision = decided(&limiter, "acme").await;
        assert_eq!(decision.degraded(), Some(ErrorKind::ConnectionRefused));
        assert_eq!(
            decision.states().next().expect("a state").remaining(),
            5 - spent
        );
    }
    assert!(limiter.check("acme").await.expect("a decision").is_denied());
}

#[tokio::test]
async fn limits_resume_by_themselves_when_the_server_returns() {
    let server = RedisServer::start();
    let limiter = Limiter::builder(opened_store(server.url()))
        .policies(HOURLY)
        .on_outage(Outage::Open)
        .deadline(Duration::from_secs(2))
        .build();
    server.kill();
    assert!(limiter.check("acme").await.expect("open").is_degraded());
    server.restart();
    wait::until_async("the store decides again", PATIENCE, async || {
        !limiter.check("acme").await.expect("open").is_degraded()
    })
    .await;
    // The server goes and returns while the store uses it.
    server.kill();
    assert!(limiter.check("acme").await.expect("open").is_degraded());
    server.restart();
    wait::until_async("the store decides again", PATIENCE, async || {
        !limiter.check("acme").await.expect("open").is_degraded()
    })
    .await;
}

async fn connected(url: String) -> RedisStore {
    RedisStore::builder(url)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store")
}

#[tokio::test]
async fn invalid_and_cut_replies_are_typed_errors() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    for mode in [
        Mode::Garbage(b"!?*\r\n$-9\r\n".to_vec()),
        Mode::CutAfter(3),
        Mode::Refuse,
        Mode::ResetAfter(0),
    ] {
        proxy.set(Mode::Pass);
        let limiter = patient_limiter(connected(proxy.url()).await, HOURLY);
        assert!(!decided(&limiter, "acme").await.is_degraded());
        proxy.set(mode.clone());
        let error = limiter.check("acme").await.expect_err("no decision");
        assert!(
            matches!(
                error.kind(),
                ErrorKind::ConnectionLost | ErrorKind::ConnectionRefused | ErrorKind::Protocol
            ),
            "{mode:?}: {error:?}"
        );
        // A reply that ends in its middle is a broken connection.
        assert!(
            mode != Mode::CutAfter(3) || error.kind() == ErrorKind::ConnectionLost,
            "{error:?}"
        );
        proxy.set(Mode::Pass);
        wait::until_async("the next connection works", PATIENCE, async || {
            limiter.check("other").await.is_ok()
        })
        .await;
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_wrong_password_is_a_clear_error_without_the_password() {
    let server = RedisServer::builder().password("hunter2").start();
    let addr = server.addr();
    for user in [":letmein@", "", "nobody:letmein@"] {
        let url = format!("redis://{user}{addr}?connect_timeout=1m");
        let error = RedisStore::connect(&url).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
        assert_eq!(
            error.to_string(),
            format!("cannot connect to redis at {addr}: redis refuses the user or password")
        );
        let limiter = Limiter::builder(RedisStore::open(&url).expect("a store"))
            .policies(HOURLY)
            .deadline(PATIENCE)
            .build();
        let decision = decided(&limiter, "acme").await;
        assert_eq!(decision.degraded(), Some(ErrorKind::Authentication));
    }
    let limiter = patient_limiter(connected(server.url()).await, HOURLY);
    assert!(decided(&limiter, "acme").await.is_allowed());
}

#[tokio::test]
async fn an_error_of_connecting_names_the_server_and_the_cause_and_no_password() {
    let server = RedisServer::start();
    let (addr, closed) = (server.addr(), ports::free());
    let missing = std::env::temp_dir().join("tollgate-no-such-socket");
    let cases = [
        (
            "redis://ann:hunter2@host.invalid:6380".to_owned(),
            "redis at host.invalid:6380: the name of the host was not found".to_owned(),
        ),
        (
            format!("redis://ann:hunter2@[::1]:{closed}"),
            format!("redis at [::1]:{closed}: "),
        ),
        (
            format!("redis://:hunter2@127.0.0.1:{closed}"),
            format!("redis at 127.0.0.1:{closed}: nothing listens there"),
        ),
        (
            format!("redis://{addr}/99"),
            format!("redis at {addr}: the server has no database of this number"),
        ),
        (
            format!("redis+unix://{}?pass=hunter2", missing.display()),
            "redis at a unix socket: nothing listens there".to_owned(),
        ),
        (
            format!("redis+sentinel://:hunter2@127.0.0.1:{closed}/limits"),
            format!("redis at 127.0.0.1:{closed}: nothing listens there"),
        ),
        (
            format!("redis+cluster://:hunter2@127.0.0.1:{closed}"),
            format!("redis at 127.0.0.1:{closed}: nothing listens there"),
        ),
    ];
    for (url, words) in cases {
        let error = RedisStore::builder(&*url)
            .connect_timeout(PATIENCE)
            .connect()
            .await
            .expect_err(&words);
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("cannot connect to {words}")),
            "{words}: {text}"
        );
        assert!(
            !text.contains("hunter2") && !format!("{error:?}").contains("hunter2"),
            "{error:?}"
        );
        assert!(
            error.kind().is_unavailable() || url.ends_with("/99") && error.kind().is_config(),
            "{error:?}"
        );
    }
    let proxy = Proxy::start(addr);
    proxy.set(Mode::Mute);
    let builder = RedisStore::builder(proxy.url()).connect_timeout(Duration::from_millis(50));
    let text = builder.connect().await.expect_err("no answer").to_string();
    assert_eq!(
        text,
        format!(
            "cannot connect to redis at {}: it took longer than 50ms",
            proxy.addr()
        )
    );
    // What stands before a number sign would count as host and port.
    let error = RedisStore::open("redis://ann:123#hunter2@host").expect_err("a part of a password");
    assert!(
        error.to_string().starts_with("the redis URL is not valid"),
        "{error}"
    );
}

/// Makes a call when it is dropped.
struct LastCall(Limiter, mpsc::Sender<bool>);

impl Drop for LastCall {
    fn drop(&mut self) {
        let mut reset = pin!(self.0.reset("acme"));
        let answer = reset.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let _ = self.1.send(answer.is_pending());
    }
}

#[test]
fn a_call_while_the_runtime_ends_does_not_keep_it_from_ending() {
    let store = RedisStore::open(format!("redis://127.0.0.1:{}", ports::free())).expect("a store");
    let (sender, receiver) = mpsc::channel();
    let last = LastCall(patient_limiter(store, HOURLY), sender);
    // A runtime that waits for itself waits for ever, so it runs on a thread of its own.
    let ending = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        drop(runtime.spawn(async move {
            let _last = last;
            std::future::pending::<()>().await;
        }));
        runtime.block_on(tokio::task::yield_now());
    });
    // The task that connects is shut down before it starts.
    assert_eq!(
        receiver.recv_timeout(PATIENCE),
        Ok(false),
        "the call ends with an error at once"
    );
    ending.join().expect("the runtime ends");
}
