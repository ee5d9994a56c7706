//! Users and passwords that change under load: no decision is lost, and no outage is seen.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Mutex, task::JoinSet};
use tollgate::{
    Error, ErrorKind, Limiter, Outage, Policy, Quota, RedisStore,
    credentials::{Credentials, Provider},
    redis::{RedisSource, RedisStoreBuilder},
};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_test_support::{PATIENCE, client, decided, patient_limiter, remaining};
use tollgate_tests::{PostgresServer, RedisCluster, RedisServer, server::calls_of, wait};

const AMOUNT: u64 = 10_000_000;

/// No unit comes back while a test runs.
const LARGE: Policy = Policy::window_from_first_hit("large", Quota::per_day(AMOUNT));

/// The users that follow each other.
const USERS: usize = 10;

/// The decisions between two changes.
const BETWEEN: u64 = 200;

/// Callers with a key each: every master of a cluster has some.
const CALLERS: u64 = 24;

const SOON: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_secs(3_600);

/// Keeps what a provider hands out, and how often it was asked.
#[derive(Clone)]
struct Vault(Arc<Inner>);

struct Inner {
    /// Locked while it changes: the provider answers afterwards.
    content: Mutex<Result<Credentials, Error>>,
    asked: AtomicU64,
}

impl Vault {
    fn new(credentials: Credentials) -> Self {
        Self(Arc::new(Inner {
            content: Mutex::new(Ok(credentials)),
            asked: AtomicU64::new(0),
        }))
    }

    async fn put(&self, content: Result<Credentials, Error>) {
        *self.0.content.lock().await = content;
    }

    fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::SeqCst)
    }

    fn provider(&self) -> Provider {
        let inner = Arc::clone(&self.0);
        Provider::new(move || {
            inner.asked.fetch_add(1, Ordering::SeqCst);
            let inner = Arc::clone(&inner);
            async move { inner.content.lock().await.clone() }
        })
    }
}

fn user(number: usize) -> String {
    format!("limits{number}")
}

fn credentials_of(number: usize) -> Credentials {
    Credentials::new(format!("secret{number}"))
        .with_user(user(number))
        .renew_after(SOON)
}

fn command(server: &RedisServer, words: &[&str]) -> String {
    let reply = server.command(words);
    assert!(!reply.is_error(), "{words:?}: {}", reply.text());
    reply.text()
}

fn add_user(server: &RedisServer, number: usize) {
    let password = format!(">secret{number}");
    let rights = ["on", &password, "~*", "&*", "+@all"];
    command(
        server,
        &[&["ACL", "SETUSER", &user(number)][..], &rights].concat(),
    );
}

/// Returns the connections of a server that have this user, by their numbers.
fn connections(server: &RedisServer, user: &str) -> Vec<String> {
    let list = command(server, &["CLIENT", "LIST"]);
    let word = format!("user={user}");
    list.lines()
        .filter(|line| line.split(' ').any(|part| part == word))
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// Checks until the store decides: a call may leave on a connection that has ended, before the store
/// has noticed. The server decides none of them.
async fn decides(limiter: &Limiter) {
    wait::until_async("the store to decide", PATIENCE, async || {
        let decision = limiter.check("acme").await;
        decision.is_ok_and(|decision| !decision.is_degraded())
    })
    .await;
}

/// Ends the connections of a user, and waits until they are closed: the server answers before.
async fn end_connections(server: &RedisServer, user: &str) {
    let ended = connections(server, user);
    command(server, &["CLIENT", "KILL", "USER", user]);
    wait::until_async("the end of connections", PATIENCE, async || {
        let open = connections(server, user);
        open.iter().all(|number| !ended.contains(number))
    })
    .await;
}

/// Callers that check as fast as they are answered, and take no error and no answer without the
/// store.
struct Load {
    decided: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    callers: JoinSet<(u64, u64)>,
}

impl Load {
    fn start(limiter: &Limiter) -> Self {
        let (decided, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut callers = JoinSet::new();
        for key in 0..CALLERS {
            let (limiter, decided) = (limiter.clone(), Arc::clone(&decided));
            let is_over = Arc::clone(&is_over);
            callers.spawn(async move {
                let mut spent = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let decision = tollgate_test_support::decided(&limiter, key).await;
                    assert!(decision.is_allowed() && !decision.is_degraded());
                    decided.fetch_add(1, Ordering::SeqCst);
                    spent += 1;
                }
                (key, spent)
            });
        }
        Self {
            decided,
            is_over,
            callers,
        }
    }

    /// Waits until more decisions were made. Ends at once where a caller has panicked.
    async fn goes_on(&mut self) {
        let reached = self.decided.load(Ordering::SeqCst) + BETWEEN;
        wait::until_async("decisions", PATIENCE, async || {
            if let Some(ended) = self.callers.try_join_next() {
                panic!("a caller ended: {ended:?}");
            }
            self.decided.load(Ordering::SeqCst) >= reached
        })
        .await;
    }

    /// Ends the callers. Each unit that they got was charged once.
    async fn end(mut self, limiter: &Limiter) {
        self.is_over.store(true, Ordering::SeqCst);
        while let Some(caller) = self.callers.join_next().await {
            let (key, spent) = caller.expect("a caller");
            assert_eq!(remaining(limiter, key).await, AMOUNT - spent, "{key}");
        }
    }
}

/// Replaces the user of a store under load, again and again: each is deleted at the servers, which
/// closes its connections, as soon as no connection has it any more.
async fn users_follow_each_other(
    builder: RedisStoreBuilder,
    servers: Vec<&RedisServer>,
    vault: &Vault,
) {
    servers.iter().for_each(|server| add_user(server, 0));
    let builder = builder.credentials(vault.provider());
    let store = builder.connect().await.expect("a store");
    let limiter = patient_limiter(store, LARGE);
    let mut load = Load::start(&limiter);
    load.goes_on().await;
    for number in 1..USERS {
        let asked = vault.asked();
        vault.put(Ok(credentials_of(number))).await;
        if number % 4 == 1 {
            // The server learns of the user after the store: it refuses the sign-in at first.
            wait::until_async("a question", PATIENCE, async || vault.asked() > asked + 1).await;
        }
        servers.iter().for_each(|server| add_user(server, number));
        let (old, new) = (user(number - 1), user(number));
        wait::until_async(format!("{new} on all connections"), PATIENCE, async || {
            let count = |user: &str| -> usize {
                let of = |server: &&RedisServer| connections(server, user).len();
                servers.iter().map(of).sum()
            };
            tokio::task::block_in_place(|| count(&new) > 0 && count(&old) == 0)
        })
        .await;
        for server in &servers {
            command(server, &["ACL", "DELUSER", &old]);
        }
        load.goes_on().await;
    }
    load.end(&limiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_a_server_follow_each_other_under_load() {
    let (server, vault) = (RedisServer::start(), Vault::new(credentials_of(0)));
    let builder = RedisStore::builder(server.url());
    users_follow_each_other(builder, vec![&server], &vault).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_a_master_that_sentinels_name_follow_each_other_under_load() {
    let (server, vault) = (RedisServer::start(), Vault::new(credentials_of(0)));
    let lines = format!("sentinel monitor limits 127.0.0.1 {} 1", server.port());
    let sentinel = RedisServer::builder().sentinel(lines).start();
    let source = RedisSource::sentinel([sentinel.url_at(sentinel.addr())], "limits");
    let builder = RedisStore::builder(source).connect_timeout(PATIENCE);
    users_follow_each_other(builder, vec![&server], &vault).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_a_cluster_follow_each_other_under_load() {
    let (cluster, vault) = (RedisCluster::start(), Vault::new(credentials_of(0)));
    let source = RedisSource::cluster(cluster.urls());
    let builder = RedisStore::builder(source).connect_timeout(PATIENCE);
    users_follow_each_other(builder, cluster.nodes().iter().collect(), &vault).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_asks_at_once_when_its_password_is_refused() {
    let server = RedisServer::start();
    let password = |word: &str| {
        let secret = format!(">{word}");
        let rights = ["on", "resetpass", &secret, "~*", "&*", "+@all"];
        command(
            &server,
            &[&["ACL", "SETUSER", "limits"][..], &rights].concat(),
        );
        // The user is that of the URL.
        Credentials::new(word).renew_after(LATE)
    };
    let vault = Vault::new(password("first"));
    let url = server.url().replace("redis://", "redis://limits@");
    let builder = RedisStore::builder(url).credentials(vault.provider());
    let store = builder.connect().await.expect("a store");
    let limiter = patient_limiter(store, LARGE);
    let _ = decided(&limiter, "acme").await;
    for (count, word) in [(2, "second"), (3, "third")] {
        // The connection that is up outlives its password.
        vault.put(Ok(password(word))).await;
        let _ = decided(&limiter, "acme").await;
        assert_eq!(vault.asked(), count - 1, "{word}");
        end_connections(&server, "limits").await;
        decides(&limiter).await;
        assert_eq!(vault.asked(), count, "{word}");
    }
    assert_eq!(remaining(&limiter, "acme").await, AMOUNT - 5);
}

/// The answer to each sign-in is one that the connection counts with.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_signed_in_again_as_often_as_credentials_change() {
    let server = RedisServer::start();
    let rights = ["on", "nopass", "~*", "&*", "+@all"];
    command(
        &server,
        &[&["ACL", "SETUSER", "limits"][..], &rights].concat(),
    );
    let asked = AtomicU64::new(0);
    let provider = Provider::new(move || {
        let password = asked.fetch_add(1, Ordering::SeqCst).to_string();
        let next = Credentials::new(password).with_user("limits");
        async { Ok(next.renew_after(SOON)) }
    });
    let builder = RedisStore::builder(server.url()).credentials(provider);
    let store = builder.connect().await.expect("a store");
    let first = connections(&server, "limits");
    assert_eq!(first.len(), 1);
    wait::until_async("a hundred sign-ins", PATIENCE, async || {
        calls_of(&server, "auth") > 100
    })
    .await;
    assert_eq!(connections(&server, "limits"), first);
    store.ping().await.expect("it answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_provider_is_the_named_cause_of_the_outage_until_it_answers() {
    let server = RedisServer::start();
    let vault = Vault::new(credentials_of(0));
    add_user(&server, 0);
    let away = || Err(Error::new(ErrorKind::Timeout, "the vault is away"));
    vault.put(away()).await;
    let builder = || RedisStore::builder(server.url()).credentials(vault.provider());
    let error = builder().connect().await.expect_err("no credentials");
    let words = format!(
        "cannot connect to redis at {}: the provider of credentials failed: the vault is away",
        server.addr()
    );
    assert_eq!(error.to_string(), words);
    let limiter = Limiter::builder(builder().build().expect("a store"))
        .policies(LARGE)
        .deadline(PATIENCE)
        .on_outage(Outage::Open)
        .build();
    let decision = limiter.check("acme").await.expect("open");
    assert_eq!(decision.degraded(), Some(ErrorKind::Authentication));

    vault.put(Ok(credentials_of(0))).await;
    decides(&limiter).await;

    // What it answered last remains in use, also for a new connection.
    let asked = vault.asked();
    vault.put(away()).await;
    wait::until_async("a failure", PATIENCE, async || vault.asked() > asked + 1).await;
    end_connections(&server, &user(0)).await;
    decides(&limiter).await;
}

#[tokio::test]
async fn a_provider_that_panics_or_does_not_answer_is_named() {
    let server = RedisServer::start();
    let connect = async |provider: Provider, timeout| {
        let builder = RedisStore::builder(server.url_at(server.addr())).credentials(provider);
        let error = builder.connect_timeout(timeout).connect().await;
        error.expect_err("no credentials").to_string()
    };
    let panics = Provider::new(|| async { panic!("in the test") });
    assert!(connect(panics, PATIENCE).await.ends_with(
        "the provider of credentials failed: it panicked, or its runtime was shut down"
    ));
    let silent = Provider::new(std::future::pending);
    assert!(
        connect(silent, SOON)
            .await
            .ends_with("the provider of credentials took longer than 100ms")
    );
}

#[test]
fn credentials_beside_a_password_or_over_a_pool_are_refused() {
    let vault = Vault::new(credentials_of(0));
    let refusal = |builder: RedisStoreBuilder| {
        let built = builder.credentials(vault.provider()).build();
        let error = built.expect_err("a mistake");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    };
    let sentinels = RedisSource::sentinel(["redis://:hunter2@h"], "limits");
    for builder in [
        RedisStore::builder("redis://:hunter2@h"),
        RedisStore::builder("redis+unix:///s?pass=hunter2"),
        RedisStore::builder("redis+cluster://u:hunter2@h,i"),
        RedisStore::builder("redis+sentinel://u:hunter2@h/limits"),
        RedisStore::builder(sentinels.clone()).server_url("redis://:hunter2@h"),
        RedisStore::builder(redis::Client::open("redis://:hunter2@h").expect("a client")),
    ] {
        assert_eq!(
            refusal(builder),
            "credentials are set, and the redis URL has a password as well"
        );
    }
    // The password of the Sentinels is their own.
    let builder = RedisStore::builder(sentinels).credentials(vault.provider());
    assert!(builder.build().is_ok());
    let pool = deadpool_redis::Config::from_url("redis://h")
        .create_pool(None)
        .expect("a pool");
    assert_eq!(
        refusal(RedisStore::builder(pool)),
        "credentials need a URL or a client: a pool signs in by its own settings"
    );
    let postgres = |url| PostgresStore::builder(url).credentials(vault.provider());
    let error = postgres("postgres://app:hunter2@h").build();
    assert_eq!(
        error.expect_err("a mistake").to_string(),
        "credentials are set, and the postgres URL has a password as well"
    );
}

#[test]
fn a_file_of_credentials_is_refused_when_it_is_missing_or_has_another_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("password");
    let error = |path| Provider::file(path).expect_err("a mistake").to_string();
    assert!(error(&path).ends_with("cannot be read: entity not found"));
    for (text, lines) in [("", 0), ("\n", 0), ("a\nhunter2\nb\n", 3)] {
        std::fs::write(&path, text).expect("the folder is ours");
        let error = error(&path);
        assert!(error.ends_with(&format!("got {lines} lines")), "{error}");
        assert!(!error.contains("hunter2"));
    }
    for text in ["p:with@signs", "p\n", "user\np\n", "user\r\np\r\n"] {
        std::fs::write(&path, text).expect("the folder is ours");
        assert!(Provider::file(&path).is_ok(), "{text:?}");
    }
}

/// PostgreSQL asks for a password when a session begins.
#[tokio::test(flavor = "multi_thread")]
async fn passwords_of_postgres_change_under_load_and_new_sessions_have_the_newest() {
    let server = PostgresServer::start();
    let sql = client(&server).await;
    let maker = PostgresStore::builder(server.url()).table("counts");
    maker
        .create(Durability::Unlogged)
        .connect()
        .await
        .expect("a table");
    let run = async |text: &str| sql.batch_execute(text).await.expect(text);
    run("CREATE ROLE guarded LOGIN; GRANT ALL ON counts TO guarded").await;
    let password = async |word: &str| {
        run(&format!("ALTER ROLE guarded PASSWORD '{word}'")).await;
        Credentials::new(word)
            .with_user("guarded")
            .renew_after(LATE)
    };
    let vault = Vault::new(password("first").await);
    let store = PostgresStore::builder(server.url())
        .table("counts")
        .credentials(vault.provider());
    let limiter = patient_limiter(store.connect().await.expect("a store"), LARGE);
    let mut load = Load::start(&limiter);
    load.goes_on().await;
    for word in ["second", "third", "fourth"] {
        // A session that is refused for the earlier password asks again.
        let mut content = vault.0.content.lock().await;
        *content = Ok(password(word).await);
        drop(content);
        load.goes_on().await;
    }
    load.end(&limiter).await;

    let sessions = "FROM pg_stat_activity WHERE usename = 'guarded'";
    run(&format!("SELECT pg_terminate_backend(pid) {sessions}")).await;
    wait::until_async("the sessions to end", PATIENCE, async || {
        let left = sql.query(&format!("SELECT 1 {sessions}"), &[]).await;
        left.expect("the server answers").is_empty()
    })
    .await;
    decides(&limiter).await;
    assert!(vault.asked() >= 2, "{}", vault.asked());

    vault
        .put(Err(Error::new(ErrorKind::Timeout, "the vault is away")))
        .await;
    let store = PostgresStore::builder(server.url().replace("postgres@", "guarded@"))
        .table("counts")
        .credentials(vault.provider());
    let error = store.connect().await.expect_err("no credentials");
    assert_eq!(error.kind(), ErrorKind::Authentication);
    assert_eq!(
        error.to_string(),
        "the provider of credentials failed: the vault is away"
    );
}
