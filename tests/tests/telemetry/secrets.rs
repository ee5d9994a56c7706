//! Secrets never appear in logs, metrics, errors, `Debug` output, or at the server.
//!
//! The test uses a recognisable API key and password, collects all output, and searches it.

use std::{convert::Infallible, fmt::Debug, io::Write, time::Duration};

use http::{Request, Response};
use metrics_util::debugging::DebuggingRecorder;
use tollgate::{
    Cost, Error, ErrorKind, Key, KeySecret, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota,
    RedisStore, Store,
    credentials::{Credentials, Provider},
    store::{Check, Clock},
};
use tollgate_test_support::{PATIENCE, opened_store};
use tollgate_tests::{Log, Mode, Proxy, RedisServer, ports, wait};
use tollgate_tower::{KeyExtractor, RateLimitLayer, Rejection, key::Header, respond_fn};
use tower::{Layer, ServiceExt, service_fn};

/// The secrets share a part, so that a truncated one is found too.
const API_KEY: &str = "sk_live_PLANTEDKEY7";
const PASSWORD: &str = "hunter2PLANTEDPASSWORD";
const PEPPER: &str = "PLANTEDPEPPER";
const NEEDLE: &str = "PLANTED";

/// Collects the log, and any other text.
#[derive(Clone)]
struct Output(Log);

impl Output {
    fn text(&self) -> String {
        self.0.text()
    }

    fn debug(&self, what: &dyn Debug) {
        self.write(&format!("{what:?} {what:#?}"));
    }

    fn error(&self, error: &Error) {
        let mut source = Some(error as &dyn std::error::Error);
        while let Some(error) = source {
            self.write(&format!("{error} {error:?} {error:#?}"));
            source = error.source();
        }
        self.write(error.kind().as_str());
    }

    fn write(&self, line: &str) {
        writeln!(self.0.clone(), "{line}").expect("a log takes everything");
    }
}

/// Uses every operation of the limiter with this key.
async fn use_up(output: &Output, limiter: &Limiter, key: &Key) {
    for cost in [1, 1, 1, 1, 0, 100] {
        match limiter
            .check(key.clone())
            .cost(Cost::new(cost))
            .tag(API_KEY)
            .await
        {
            Ok(decision) => {
                output.debug(&decision);
                decision.states().for_each(|state| output.debug(&state));
                if let Err(error) = limiter
                    .refund(key.clone(), Cost::new(1))
                    .of(&decision)
                    .await
                {
                    output.error(&error);
                }
            }
            Err(error) => output.error(&error),
        }
    }
    let report = |answer: Result<(), Error>| answer.unwrap_or_else(|error| output.error(&error));
    report(
        limiter
            .check(key.clone())
            .wait(Duration::ZERO)
            .await
            .map(|decision| output.debug(&decision)),
    );
    report(
        limiter
            .check(key.clone())
            .tag(&[API_KEY; 9].concat())
            .await
            .map(|decision| output.debug(&decision)),
    );
    report(limiter.entries(key.clone(), 10).await.map(drop));
    report(limiter.reset(key.clone()).await);
    output.debug(limiter);
    output.debug(limiter.policies());
    output.debug(&Check::new(limiter.policies(), key, Cost::ONE).with_tag(API_KEY.as_bytes()));
}

async fn request(output: &Output, limiter: &Limiter, header: Header) {
    let responder = output.clone();
    let layer = RateLimitLayer::builder(limiter.clone(), header)
        .expose_decisions(true)
        .respond_with(respond_fn(move |rejection: &Rejection<'_>| {
            responder.debug(rejection);
            Response::new(String::new())
        }))
        .build();
    output.debug(&layer);
    for header in [Some(API_KEY), Some(API_KEY), Some(API_KEY), None] {
        let service = layer.layer(service_fn(async |_| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        let mut request = Request::builder();
        if let Some(value) = header {
            request = request.header("x-api-key", value);
        }
        let request = request.body(()).expect("a request");
        let (parts, ()) = request.into_parts();
        if let Err(error) = KeyExtractor::extract(&Header::new("x-api-key"), &parts) {
            output.debug(&error);
            output.write(&error.to_string());
        }
        let Ok(response) = service.oneshot(Request::from_parts(parts, ())).await;
        output.debug(&response);
    }
}

#[test]
fn no_output_contains_a_key_or_a_password() {
    let (log, _guard) = Log::of_this_thread_from(tracing::Level::TRACE);
    let output = Output(log);
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    metrics::with_local_recorder(&recorder, || runtime.block_on(everything(&output)));
    output.write(&format!("{:?}", snapshotter.snapshot().into_vec()));

    let text = output.text();
    for expected in [
        "TRACE",
        "DEBUG",
        "WARN",
        "denied",
        "decided without the store",
        "tollgate_decisions_total",
        "\"EVALSHA\"",
    ] {
        assert!(text.contains(expected), "the output lacks {expected}");
    }
    let found: Vec<_> = text.lines().filter(|line| line.contains(NEEDLE)).collect();
    assert_eq!(found, [""; 0], "{} findings", found.len());
}

/// Returns a store of a server that may answer late on a busy machine.
async fn connect(url: String) -> RedisStore {
    RedisStore::builder(url)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store")
}

async fn everything(output: &Output) {
    tracing::trace!("a line of the lowest level is logged");
    let server = RedisServer::builder().password(PASSWORD).start();
    let mut monitor = server.client();
    monitor.command(&["MONITOR"]).expect("it monitors");
    let monitored = {
        let output = output.clone();
        std::thread::spawn(move || {
            while let Ok(reply) = monitor.read() {
                output.write(&reply.text());
            }
        })
    };
    let pepper = KeySecret::new(PEPPER);
    output.debug(&pepper);
    let key = Key::secret(API_KEY, &pepper);
    let policies = || {
        PolicySet::from([
            Policy::token_bucket("bucket", Quota::per_hour(2)),
            Policy::fixed_window("window", Quota::per_hour(2)),
        ])
    };
    let limiter = |store: &RedisStore, outage| {
        Limiter::builder(store.clone())
            .policies(policies())
            .deadline(Duration::from_secs(2))
            .on_outage(outage)
            .build()
    };

    // Redis receives a digest of the key, and the password only for the log-in.
    let builder = RedisStore::builder(server.url());
    output.debug(&builder);
    let store = connect(server.url()).await;
    output.debug(&store);
    use_up(output, &limiter(&store, Outage::Closed), &key).await;
    request(
        output,
        &limiter(&store, Outage::Closed),
        Header::new("x-api-key").secret(pepper.clone()),
    )
    .await;
    for finding in store.diagnose([policies()]).await.expect("it answers") {
        output.debug(&finding);
    }
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let _ = connect(server.url()).await;

    // Every way in which a server fails.
    let proxy = Proxy::start(server.addr());
    let store = connect(server.url_at(proxy.addr())).await;
    let (closed, local) = (
        limiter(&store, Outage::Closed),
        limiter(&store, Outage::default()),
    );
    for mode in [
        Mode::Garbage(b"!?*\r\n$-9\r\n".to_vec()),
        Mode::CutAfter(3),
        Mode::ResetAfter(0),
        Mode::Refuse,
    ] {
        proxy.set(mode);
        use_up(output, &closed, &key).await;
        request(
            output,
            &closed,
            Header::new("x-api-key").secret(pepper.clone()),
        )
        .await;
        request(
            output,
            &local,
            Header::new("x-api-key").secret(pepper.clone()),
        )
        .await;
    }
    output.debug(&store);
    let nowhere =
        RedisStore::open(format!("redis://127.0.0.1:{}", ports::free())).expect("a store");
    for outage in [Outage::Closed, Outage::Open, Outage::default()] {
        let limiter = limiter(&nowhere, outage);
        use_up(output, &limiter, &Key::from(API_KEY)).await;
        request(output, &limiter, Header::new("x-api-key")).await;
    }
    for setting in ["maxmemory", "min-replicas-to-write"] {
        server.command(&["CONFIG", "SET", setting, "1"]);
        let store = opened_store(server.url());
        use_up(output, &limiter(&store, Outage::Closed), &key).await;
        server.command(&["CONFIG", "SET", setting, "0"]);
    }

    // Passwords and addresses that are wrong.
    let (addr, wrong) = (server.addr(), format!("{PASSWORD}x"));
    for url in [
        format!("redis://:{wrong}@{addr}/"),
        format!("redis://{wrong}:{wrong}@{addr}/"),
        format!("redis://:{wrong}@127.0.0.1:1/"),
        format!("rediss://:{wrong}@{addr}/"),
        format!("redis://:{wrong}@{addr}/9999"),
        format!("redis://:{wrong}@nowhere.invalid/"),
        format!("http://:{wrong}@{addr}/"),
        format!("redis://:{wrong}@{addr}:port/"),
        format!("unix:///{wrong}.sock"),
    ] {
        match RedisStore::open(&url) {
            Ok(store) => {
                output.debug(&store);
                output.error(&store.ping().await.expect_err("it is wrong"));
                use_up(output, &limiter(&store, Outage::default()), &key).await;
            }
            Err(error) => output.error(&error),
        }
    }

    // Credentials that change: right ones, wrong ones, and none.
    let answers = [
        Ok(Credentials::new(PASSWORD)),
        Ok(Credentials::new(wrong.as_str()).with_user(wrong.as_str())),
        Err(Error::new(ErrorKind::Unavailable, "the vault is away")),
    ];
    for answer in answers {
        output.debug(&answer);
        let provider = Provider::new(move || {
            let answer = answer.clone().map(|it| it.renew_after(Duration::ZERO));
            async { answer }
        });
        let builder = RedisStore::builder(format!("redis://{addr}/")).credentials(provider.clone());
        let store = builder.connect_timeout(PATIENCE).build().expect("a store");
        use_up(output, &limiter(&store, Outage::default()), &key).await;
        output.debug(&provider);
        output.debug(&store);
        if let Some(error) = provider.failure() {
            output.error(&error);
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("password");
    std::fs::write(&path, [PASSWORD; 3].join("\n")).expect("the folder is ours");
    output.error(&Provider::file(path).expect_err("it has three lines"));

    // In process, under the key itself.
    let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    output.debug(&store);
    output.debug(&Key::from(API_KEY));
    output.debug(&store.check(Check::new(&policies(), &Key::from(API_KEY), Cost::ONE)));
    let policies = [
        Policy::sliding_log("log", Quota::per_hour(2)),
        Policy::token_bucket("bucket", Quota::per_hour(2)),
    ];
    let limiter = Limiter::new(store, policies);
    use_up(output, &limiter, &Key::from(API_KEY)).await;
    request(output, &limiter, Header::new("x-api-key")).await;
    wait::until("the monitor to see a script", PATIENCE, || {
        output.text().contains("\"EVALSHA\"")
    });
    server.kill();
    monitored.join().expect("a thread");
}
