//! An API key and a password are planted, everything that can be is made to speak, and then they are
//! looked for. Alone in its file: whether a line is logged at all is decided once per process.

use std::{convert::Infallible, fmt::Debug, io::Write, time::Duration};

use http::{Request, Response};
use metrics_util::debugging::DebuggingRecorder;
use tollgate::{
    Check, Clock, Cost, Error, Key, KeySecret, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota, RedisStore,
    Store,
};
use tollgate_tests::{Log, Mode, Proxy, RedisServer, ports, wait};
use tollgate_tower::{KeyExtractor, RateLimitLayer, Rejection, key::Header, respond_fn};
use tower::{Layer, ServiceExt, service_fn};

const PATIENT: Duration = Duration::from_secs(20);

/// Parts of what is planted, so that a half is found too.
const API_KEY: &str = "sk_live_PLANTEDKEY7";
const PASSWORD: &str = "hunter2PLANTEDPASSWORD";
const PEPPER: &str = "PLANTEDPEPPER";
const NEEDLE: &str = "PLANTED";

/// Collects what is logged, and whatever else it is given.
#[derive(Clone, Default)]
struct Heard(Log);

impl Heard {
    fn text(&self) -> String {
        self.0.text()
    }

    fn debug(&self, what: &dyn Debug) {
        self.say(&format!("{what:?} {what:#?}"));
    }

    fn error(&self, error: &Error) {
        let mut source = Some(error as &dyn std::error::Error);
        while let Some(error) = source {
            self.say(&format!("{error} {error:?} {error:#?}"));
            source = error.source();
        }
        self.say(error.reason());
    }

    fn say(&self, line: &str) {
        writeln!(self.0.clone(), "{line}").expect("a log takes everything");
    }
}

/// A deny answer, a pass, an outage: whatever the limiter has to say of this key.
async fn use_up(heard: &Heard, limiter: &Limiter, key: &Key) {
    for cost in [1, 1, 1, 1, 0, 100] {
        match limiter.check_tagged(key.clone(), Cost::new(cost), API_KEY).await {
            Ok(decision) => {
                heard.debug(&decision);
                decision.states().for_each(|state| heard.debug(&state));
                if let Err(error) = limiter.refund_decision(key.clone(), &decision, Cost::new(1)).await {
                    heard.error(&error);
                }
            }
            Err(error) => heard.error(&error),
        }
    }
    let told = |answer: Result<(), Error>| answer.unwrap_or_else(|error| heard.error(&error));
    told(limiter.until_ready(key.clone(), Duration::ZERO).await.map(|decision| heard.debug(&decision)));
    told(
        limiter
            .check_tagged(key.clone(), Cost::ONE, [API_KEY; 9].concat())
            .await
            .map(|decision| heard.debug(&decision)),
    );
    told(limiter.entries(key.clone(), 10).await.map(drop));
    told(limiter.reset(key.clone()).await);
    heard.debug(limiter);
    heard.debug(limiter.policies());
    heard.debug(&Check::new(limiter.policies(), key, Cost::ONE).with_tag(API_KEY.as_bytes()));
}

async fn request(heard: &Heard, limiter: &Limiter, header: Header) {
    let told = heard.clone();
    let layer = RateLimitLayer::builder(limiter.clone(), header)
        .expose_decisions(true)
        .respond_with(respond_fn(move |rejection: &Rejection<'_>| {
            told.debug(rejection);
            Response::new(String::new())
        }))
        .build();
    heard.debug(&layer);
    for header in [Some(API_KEY), Some(API_KEY), Some(API_KEY), None] {
        let service = layer.layer(service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new()))));
        let mut request = Request::builder();
        if let Some(value) = header {
            request = request.header("x-api-key", value);
        }
        let request = request.body(()).expect("a request");
        let (parts, ()) = request.into_parts();
        if let Err(error) = KeyExtractor::extract(&Header::new("x-api-key"), &parts) {
            heard.debug(&error);
            heard.say(&error.to_string());
        }
        let Ok(response) = service.oneshot(Request::from_parts(parts, ())).await;
        heard.debug(&response);
    }
}

#[test]
fn nothing_tells_a_planted_key_or_password() {
    let heard = Heard::default();
    let writer = heard.0.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    metrics::with_local_recorder(&recorder, || runtime.block_on(everything(&heard)));
    heard.say(&format!("{:?}", snapshotter.snapshot().into_vec()));

    let text = heard.text();
    for spoken in
        ["TRACE", "DEBUG", "WARN", "denied", "decided without the store", "tollgate_decisions_total", "\"EVALSHA\""]
    {
        assert!(text.contains(spoken), "nothing was heard of {spoken}");
    }
    let found: Vec<_> = text.lines().filter(|line| line.contains(NEEDLE)).collect();
    assert_eq!(found, [""; 0], "{} findings", found.len());
}

async fn everything(heard: &Heard) {
    tracing::trace!("what is said at the lowest level is heard");
    let server = RedisServer::builder().password(PASSWORD).start();
    let mut monitor = server.client();
    monitor.command(&["MONITOR"]).expect("it monitors");
    let monitored = {
        let heard = heard.clone();
        std::thread::spawn(move || {
            while let Ok(reply) = monitor.read() {
                heard.say(&reply.text());
            }
        })
    };
    let pepper = KeySecret::new(PEPPER);
    heard.debug(&pepper);
    let key = Key::secret(API_KEY, &pepper);
    let policies = || {
        PolicySet::from([
            Policy::token_bucket("bucket", Quota::per_hour(2)),
            Policy::fixed_window("window", Quota::per_hour(2)),
        ])
    };
    let limiter = |store: &RedisStore, outage| {
        Limiter::builder(store.clone()).policies(policies()).deadline(Duration::from_secs(2)).on_outage(outage).build()
    };

    // Redis sees a digest of the key, and never the password.
    let builder = RedisStore::builder(server.url());
    heard.debug(&builder);
    let store = RedisStore::connect(server.url()).await.expect("a store");
    heard.debug(&store);
    use_up(heard, &limiter(&store, Outage::Closed), &key).await;
    request(heard, &limiter(&store, Outage::Closed), Header::new("x-api-key").secret(pepper.clone())).await;
    for finding in store.diagnose([policies()]).await.expect("it answers") {
        heard.debug(&finding);
    }
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let _ = RedisStore::connect(server.url()).await.expect("a store");

    // Every way in which a server fails.
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::connect(server.url_at(proxy.addr())).await.expect("a store");
    let (closed, local) = (limiter(&store, Outage::Closed), limiter(&store, Outage::default()));
    for mode in [Mode::Garbage(b"!?*\r\n$-9\r\n".to_vec()), Mode::CutAfter(3), Mode::ResetAfter(0), Mode::Refuse] {
        proxy.set(mode);
        use_up(heard, &closed, &key).await;
        request(heard, &closed, Header::new("x-api-key").secret(pepper.clone())).await;
        request(heard, &local, Header::new("x-api-key").secret(pepper.clone())).await;
    }
    heard.debug(&store);
    let nowhere = RedisStore::open(format!("redis://127.0.0.1:{}", ports::free())).expect("a store");
    for outage in [Outage::Closed, Outage::Open, Outage::default()] {
        let limiter = limiter(&nowhere, outage);
        use_up(heard, &limiter, &Key::from(API_KEY)).await;
        request(heard, &limiter, Header::new("x-api-key")).await;
    }
    for setting in ["maxmemory", "min-replicas-to-write"] {
        server.command(&["CONFIG", "SET", setting, "1"]);
        let store = RedisStore::open(server.url()).expect("a store");
        use_up(heard, &limiter(&store, Outage::Closed), &key).await;
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
                heard.debug(&store);
                heard.error(&store.ping().await.expect_err("it is wrong"));
                use_up(heard, &limiter(&store, Outage::default()), &key).await;
            }
            Err(error) => heard.error(&error),
        }
    }

    // In process, under the key itself.
    let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    heard.debug(&store);
    heard.debug(&Key::from(API_KEY));
    heard.debug(&store.check(Check::new(&policies(), &Key::from(API_KEY), Cost::ONE)));
    let policies = [Policy::sliding_log("log", Quota::per_hour(2)), Policy::token_bucket("bucket", Quota::per_hour(2))];
    let limiter = Limiter::new(store, policies);
    use_up(heard, &limiter, &Key::from(API_KEY)).await;
    request(heard, &limiter, Header::new("x-api-key")).await;
    wait::until("the monitor to have heard of a script", PATIENT, || heard.text().contains("\"EVALSHA\""));
    server.kill();
    monitored.join().expect("a thread");
}
