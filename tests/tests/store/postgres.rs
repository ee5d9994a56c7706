//! The store in PostgreSQL: it decides as the others do, and each failure of the server has its
//! answer.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use tokio::time::timeout;
use tollgate::{
    Cost, Enforcement, ErrorKind, Key, Lease, Limiter, MemoryStore, Outage, Policy, Quota, Store,
    reservation::Settlement, store::Clock, testing::ALGORITHMS,
};
use tollgate_postgres::{Durability, PostgresStore, PostgresStoreBuilder, schema};
use tollgate_test_support::{
    Dice, PATIENCE, POSTGRES, START_US, churn, client, decided, new_table, patient_limiter,
    policies, remaining,
};
use tollgate_tests::{Mode, PostgresServer, Proxy, wait};

use crate::{
    key_values::everything_beside_checks,
    suite::{
        decisions::{agree, each_algorithm, in_order, ranks_agree},
        exceptions, fair_shares,
    },
};

/// Returns a builder of a store on this table of the server of the program.
fn builder(table: &str) -> PostgresStoreBuilder {
    PostgresStore::builder(POSTGRES.url())
        .table(table)
        .create(Durability::Unlogged)
}

/// Returns a builder of a store on a new table, for this user.
fn of_user(user: &str) -> PostgresStoreBuilder {
    let url = POSTGRES.url().replacen("postgres@", &format!("{user}@"), 1);
    PostgresStore::builder(url)
        .table(new_table())
        .create(Durability::Unlogged)
}

/// Runs SQL as the owner of the database.
async fn run(sql: &str) {
    let client = client(&POSTGRES).await;
    client.batch_execute(sql).await.expect(sql);
}

/// Leaves out the rows by which processes count themselves.
const OF_KEYS: &str = "WHERE convert_from(key, 'UTF8') NOT LIKE '{replicas}%'";

fn daily(amount: u64) -> Policy {
    Policy::token_bucket("api", Quota::per_day(amount))
}

/// Returns a limiter that fails where the store does not decide.
fn closed(store: impl Store, deadline: Duration) -> Limiter {
    Limiter::builder(store)
        .policies(daily(1_000))
        .deadline(deadline)
        .on_outage(Outage::Closed)
        .build()
}

#[tokio::test]
async fn decisions_in_postgres_are_those_of_the_in_process_store() {
    let clock = Clock::manual(START_US);
    let builder = || {
        builder(&new_table())
            .clock(clock.clone())
            .deny_cache_cap(Duration::ZERO)
    };
    let store = builder().connect().await.expect("a store");
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    for (seed, algorithm) in (0..).zip(ALGORITHMS) {
        let mut dice = Dice::new(seed);
        for most in [1, 4] {
            let set = policies::set(&mut dice, algorithm, most);
            agree(&set, &store, &memory, &clock, &mut dice, |dice| {
                Key::from((most, seed, dice.below(40)))
            })
            .await;
        }
    }
    ranks_agree(&builder().connect().await.expect("a store"), &clock).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_share_a_table_admit_a_burst_exactly() {
    let table = new_table();
    for isolation in ["read committed", "serializable"] {
        let user = format!("{table}_{}", isolation.len());
        run(&format!(
            "CREATE ROLE {user} SUPERUSER LOGIN; ALTER ROLE {user} SET default_transaction_isolation = '{isolation}'"
        ))
        .await;
        let mut processes = Vec::new();
        for _ in 0..4 {
            let store = of_user(&user).table(&table).connect().await;
            processes.push(store.expect("a store"));
        }
        for policy in each_algorithm(Quota::per_day(100)) {
            let limiters: Vec<_> = processes
                .iter()
                .map(|store| patient_limiter(store.clone(), policy.clone()))
                .collect();
            let key = Key::from((isolation, policy.to_string()));
            let check = |at: usize| tokio::spawn(limiters[at % 4].check(&key).into_future());
            let tasks: Vec<_> = (0..300).map(check).collect();
            let mut passed = 0;
            for task in tasks {
                let decision = task.await.expect("a task").expect("a decision");
                passed += u64::from(decision.is_allowed());
            }
            assert_eq!(passed, 100, "{policy:?}, {isolation}");
        }
    }
}

/// Many sets of the same keys in all orders: a wait for each other would end by an error.
#[tokio::test(flavor = "multi_thread")]
async fn keys_in_any_order_that_have_no_rows_yet_deadlock_nobody() {
    let table = new_table();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(builder(&table).connect().await.expect("a store"));
    }
    let names = ["p0", "p1", "p2", "p3", "p4", "p5"];
    let mut tasks = Vec::new();
    for round in 0..40 {
        for (at, store) in stores.iter().enumerate() {
            let set = (0..4).map(|step| {
                let name = names[(round + at * 5 + step * (1 + at % 2 * 4)) % names.len()];
                Policy::token_bucket(name, Quota::per_day(100_000))
            });
            let mut set: Vec<Policy> = set.collect();
            set.dedup_by(|one, next| one.name() == next.name());
            set.sort_by(|one, next| one.name().cmp(next.name()));
            set.dedup_by(|one, next| one.name() == next.name());
            if at % 2 == 1 {
                set.reverse();
            }
            let set = tollgate::PolicySet::try_new(set).expect("a set");
            let limiter = patient_limiter(store.clone(), set);
            for key in 0..8_u64 {
                tasks.push(tokio::spawn(
                    limiter.check((round as u64, key)).into_future(),
                ));
            }
        }
    }
    for task in tasks {
        assert!(
            task.await
                .expect("a task")
                .expect("a decision")
                .is_allowed()
        );
    }
    let log = POSTGRES.log();
    assert!(!log.contains("deadlock detected"), "{log}");
}

#[tokio::test]
async fn a_hot_key_is_decided_in_order_and_a_denial_writes_nothing() {
    let table = new_table();
    let store = builder(&table).deny_cache_cap(Duration::ZERO);
    let limiter = patient_limiter(store.connect().await.expect("a store"), daily(50));
    let checks = (0..100)
        .map(|_| limiter.check("hot").into_future())
        .collect();
    let decisions = in_order(checks).await;
    let admitted: Vec<_> = decisions
        .iter()
        .map(|decision| decision.is_allowed())
        .collect();
    let expected: Vec<_> = (0..100).map(|at| at < 50).collect();
    assert_eq!(admitted, expected, "in the order in which they came");

    let client = client(&POSTGRES).await;
    let version = async || {
        let rows = format!("SELECT xmin::text || ctid::text || xmax::text FROM {table} {OF_KEYS}");
        let rows = client.query(&rows, &[]).await.expect("rows");
        assert_eq!(rows.len(), 1, "one row of one state");
        rows[0].get::<_, String>(0)
    };
    let before = version().await;
    for _ in 0..3 {
        assert!(limiter.check("hot").await.expect("a decision").is_denied());
        let _ = limiter.peek("hot").await.expect("a state");
    }
    assert_eq!(version().await, before, "neither written nor locked");
}

#[tokio::test]
async fn everything_beside_checks_works_in_postgres() {
    let store = builder(&new_table()).connect().await.expect("a store");
    everything_beside_checks(store).await;
}

#[tokio::test]
async fn a_denial_is_remembered_until_units_come_back_in_this_process() {
    let store = builder(&new_table()).connect().await.expect("a store");
    let limiter = patient_limiter(store, daily(1));
    let decision = limiter.check("acme").await.expect("a decision");
    let check = async || limiter.check("acme").await.expect("a decision");
    assert!(check().await.is_denied());
    let again = check().await;
    assert!(again.is_denied() && again.is_remembered());
    let refund = limiter.refund("acme", Cost::ONE).of(&decision);
    refund.await.expect("a refund");
    assert!(check().await.is_allowed());
}

#[tokio::test]
async fn expired_rows_are_removed() {
    let (clock, table) = (Clock::manual(START_US), new_table());
    let store = builder(&table).clock(clock.clone()).connect().await;
    let limiter = patient_limiter(
        store.expect("a store"),
        Policy::fixed_window("api", Quota::per_minute(5)),
    );
    let checks = (0..2_500_u64).map(|key| limiter.check(key).into_future());
    let decisions = in_order(checks.collect()).await;
    assert!(decisions.iter().all(|decision| decision.is_allowed()));
    clock.advance(Duration::from_secs(3_600));
    assert!(decided(&limiter, "later").await.is_allowed());
    let client = client(&POSTGRES).await;
    let count = format!("SELECT count(*) FROM {table} {OF_KEYS}");
    wait::until_async("the expired rows to be removed", PATIENCE, async || {
        let row = client.query_one(&count, &[]).await.expect("a count");
        row.get::<_, i64>(0) == 1
    })
    .await;
}

/// Most rows change again and again, some come once, and time goes on.
#[tokio::test]
async fn a_table_that_changes_all_the_time_stays_small_and_its_updates_touch_no_index() {
    // Old transactions of other tests would keep what is removed.
    let server = PostgresServer::start();
    let churned = churn(&server, 20, 600, Some("VACUUM")).await;
    assert!(churned.hot > 0.9, "{churned:?}");
    // Rows that came once stay for some six minutes.
    assert!((100..=100 + 8 * 60).contains(&churned.rows), "{churned:?}");
    let (early, late) = (churned.bytes[9], churned.bytes[19]);
    assert!(4 * late <= 5 * early, "{churned:?}");
}

#[tokio::test]
async fn a_table_is_made_by_a_migration_by_a_call_or_by_the_first_use() {
    let table = new_table();
    let sql = schema(&table, Durability::Logged).expect("a name");
    let store = PostgresStore::builder(POSTGRES.url()).table(&table);
    let store = store.build().expect("a URL");
    let error = store.ping().await.expect_err("there is no table");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("has no such table"), "{error}");
    for _ in 0..2 {
        run(&sql).await;
        store.ping().await.expect("the table is there");
    }
    store
        .create_table(Durability::Unlogged)
        .await
        .expect("it is there");

    let of_call = PostgresStore::builder(POSTGRES.url()).table(new_table());
    let of_call = of_call.build().expect("a URL");
    of_call
        .create_table(Durability::Logged)
        .await
        .expect("made");
    of_call.ping().await.expect("the table is there");

    // Processes that start together.
    let table = new_table();
    let starts: Vec<_> = (0..8)
        .map(|_| tokio::spawn(builder(&table).connect()))
        .collect();
    for start in starts {
        start.await.expect("a task").expect("a store");
    }

    tollgate_postgres::register();
    let url = format!("{}&create=unlogged&table={}", POSTGRES.url(), new_table());
    for store in [
        tollgate::connect(&url).await.expect("a store"),
        tollgate::open(&url).expect("a store"),
    ] {
        let limiter = patient_limiter(store, daily(2));
        assert!(decided(&limiter, "acme").await.is_allowed());
    }
}

#[tokio::test]
async fn a_policy_that_is_leased_is_refused_when_the_limiter_is_built() {
    let store = builder(&new_table()).connect().await.expect("a store");
    let limiter = || Limiter::builder(store.clone()).policies(daily(9_000).leased(Lease::new()));
    let error = limiter().try_build().expect_err("it leases nothing");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (
            ErrorKind::Unsupported,
            "the store does not lease, and the policy \"api\" is leased"
        )
    );
    let build = std::panic::AssertUnwindSafe(|| limiter().build());
    let panic = std::panic::catch_unwind(build).expect_err("it leases nothing");
    assert_eq!(panic.downcast_ref(), Some(&error.to_string()));
}

#[tokio::test]
async fn a_table_of_another_version_or_program_is_refused() {
    let table = new_table();
    run(&format!(
        "{} COMMENT ON TABLE {table} IS 'tollgate table version 2'",
        schema(&table, Durability::Logged).expect("a name")
    ))
    .await;
    let error = builder(&table).connect().await.expect_err("a newer table");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("has version 2"), "{error}");
    let other = new_table();
    run(&format!("CREATE TABLE {other} (key int)")).await;
    let error = builder(&other)
        .connect()
        .await
        .expect_err("no table of ours");
    assert!(error.to_string().contains("another program"), "{error}");
}

#[tokio::test]
async fn what_the_server_refuses_has_a_kind_and_shows_no_secret() {
    let user = new_table();
    run(&format!(
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE {user}_full LOGIN CONNECTION LIMIT 0; CREATE ROLE {user}_reader LOGIN; \
         ALTER ROLE {user}_reader SET default_transaction_read_only = on; CREATE ROLE {user}_weak LOGIN;"
    ))
    .await;
    for (role, kind) in [
        ("full", ErrorKind::TooManyClients),
        ("reader", ErrorKind::ReadOnly),
        ("weak", ErrorKind::PermissionDenied),
        ("nobody", ErrorKind::Authentication),
    ] {
        let error = of_user(&format!("{user}_{role}"))
            .connect()
            .await
            .expect_err(role);
        assert_eq!(error.kind(), kind, "{role}: {error}");
    }
    let url = POSTGRES.url();
    let error = PostgresStore::connect(url.replacen("postgres@", "guarded:hunter2@", 1))
        .await
        .expect_err("a wrong password");
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    let nobody = format!(
        "postgres://postgres@127.0.0.1:{}/postgres?connect_timeout=60",
        tollgate_tests::ports::free()
    );
    let error = PostgresStore::connect(nobody)
        .await
        .expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    for url in [
        "postgres://h/?tabel=x",
        "postgres://h/?create=maybe",
        "postgres://h/?connections=0",
        "mysql://h",
    ] {
        assert_eq!(
            PostgresStore::open(url).expect_err(url).kind(),
            ErrorKind::Config,
            "{url}"
        );
    }
}

#[tokio::test]
async fn a_pool_of_the_application_serves_and_one_that_is_full_is_an_overload() {
    use deadpool_postgres::{Manager, Pool, Runtime};
    let config = POSTGRES.url().parse().expect("a URL");
    let pool = Pool::builder(Manager::new(config, tokio_postgres::NoTls))
        .max_size(1)
        .wait_timeout(Some(Duration::from_millis(50)))
        .runtime(Runtime::Tokio1)
        .build()
        .expect("a pool");
    let store = PostgresStore::over(pool.clone()).table(new_table());
    let store = store.create(Durability::Unlogged).connect().await;
    let limiter = closed(store.expect("a store"), PATIENCE);
    // The store uses the connection for its own work, too.
    wait::until_async("a decision", PATIENCE, async || {
        let decision = limiter.check("acme").await;
        decision.is_ok_and(|decision| decision.is_allowed())
    })
    .await;
    let mut taken = None;
    wait::until_async("a connection", PATIENCE, async || {
        taken = pool.get().await.ok();
        taken.is_some()
    })
    .await;
    let error = limiter.check("acme").await.expect_err("no connection");
    assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
    drop(taken);
    wait::until_async("the first unit alone to be charged", PATIENCE, async || {
        let state = limiter.peek("acme").await;
        state.is_ok_and(|state| state.states().all(|state| state.remaining() == 999))
    })
    .await;
}

/// Returns a store that reaches the server of the program through a proxy in this mode.
async fn behind_proxy(mode: Mode) -> (Proxy, PostgresStore) {
    let table = new_table();
    builder(&table).connect().await.expect("a table");
    let proxy = Proxy::start(POSTGRES.addr());
    proxy.set(mode);
    let url = POSTGRES.url_at(proxy.addr()) + "?connect_timeout=60";
    let store = PostgresStore::builder(url).table(table).build();
    (proxy, store.expect("a URL"))
}

/// A session begins by three trips of 300 ms, and a look at the table takes two: a probe has a
/// second. The first check of a session that has no statements takes five trips more.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_begins_slowly_is_used_once_it_has_begun() {
    let (_proxy, store) = behind_proxy(Mode::Delay(Duration::from_millis(300))).await;
    let limiter = closed(store, Duration::from_secs(2));
    wait::until_async("a decision", PATIENCE, async || {
        limiter.check("acme").await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_does_not_reach_the_server_is_charged_once_when_it_is_back() {
    let (proxy, store) = behind_proxy(Mode::Pass).await;
    let (patient, hasty) = (
        closed(store.clone(), PATIENCE),
        closed(store, Duration::from_millis(300)),
    );
    for (at, mode) in (1..).zip([Mode::Refuse, Mode::Mute]) {
        let job = patient.reserve("acme", Cost::new(100)).await;
        let job = job.expect("a decision");
        assert!(job.is_allowed());
        proxy.set(mode);
        let lost = hasty.commit("acme", job.id(), Cost::new(30)).await;
        lost.expect_err("no answer");
        proxy.set(Mode::Pass);
        let left = async || {
            let state = patient.peek("acme").await.ok();
            state.and_then(|state| Some(state.states().next()?.remaining()))
        };
        let settled = Some(1_000 - at * 30);
        wait::until_async("the commit", PATIENCE, async || left().await == settled).await;
        let again = patient.commit("acme", job.id(), Cost::ZERO).await;
        assert_eq!(again.expect("no change"), Settlement::AlreadySettled);
        assert_eq!(left().await, settled);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_give_up_leave_no_more_connections_than_the_store_has() {
    let (proxy, store) = behind_proxy(Mode::Stall).await;
    for _ in 0..100 {
        let ping = timeout(Duration::from_millis(10), store.ping());
        assert!(ping.await.is_err(), "the server does not answer");
    }
    proxy.set(Mode::Pass);
    store.ping().await.expect("an answer");
    assert!(proxy.accepted() <= 5, "{}", proxy.accepted());
}

/// An administrator fences the first server of the URL. Its sessions stay up.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_becomes_read_only_is_replaced_by_one_of_another_host() {
    let (one, other) = (PostgresServer::start(), PostgresServer::start());
    for server in [&one, &other] {
        let maker = PostgresStore::builder(server.url()).create(Durability::Unlogged);
        maker.connect().await.expect("a table");
    }
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?connect_timeout=60",
        one.port(),
        other.port()
    );
    let connect = async || PostgresStore::connect(&*url).await.expect("a store");
    let (pinged, written) = (connect().await, connect().await);
    let limiter = closed(connect().await, PATIENCE);
    assert!(limiter.check("acme").await.is_ok());
    let (sql, there) = (client(&one).await, client(&other).await);
    for fence in [
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    ] {
        sql.batch_execute(fence).await.expect(fence);
    }

    wait::until_async("a probe to find it out", PATIENCE, async || {
        let error = pinged.ping().await.err();
        error.is_some_and(|error| error.kind() == ErrorKind::ReadOnly)
    })
    .await;
    wait::until_async("a probe of the other host", PATIENCE, async || {
        pinged.ping().await.is_ok()
    })
    .await;

    let is_there = async |key: &str| {
        let count = format!("SELECT count(*) FROM tollgate WHERE key LIKE '{key}%'::bytea");
        let row = there.query_one(&count, &[]).await.expect("a count");
        row.get::<_, i64>(0) > 0
    };
    wait::until_async("a write on the other host", PATIENCE, async || {
        let _ = written.replace(b"mark", Some(&b"x"[..])).await;
        is_there("mark").await
    })
    .await;
    wait::until_async("a check on the other host", PATIENCE, async || {
        let _ = limiter.check("acme").await;
        is_there("{acme}").await
    })
    .await;
}

/// A lock of another program holds the table, as a migration does, until the breaker is open.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_locked_is_late_and_is_asked_again_when_it_is_free() {
    let table = new_table();
    let store = builder(&table).connect().await.expect("a store");
    let patient = closed(store.clone(), PATIENCE);
    assert!(decided(&patient, "acme").await.is_allowed());
    let client = client(&POSTGRES).await;
    let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
    client.batch_execute(&lock).await.expect("a lock");
    let limiter = closed(store.clone(), Duration::from_millis(500));
    for _ in 0..3 {
        let error = limiter.check("acme").await.expect_err("no decision");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
    let error = limiter.check("acme").await.expect_err("no decision");
    assert_eq!(error.kind(), ErrorKind::CircuitOpen, "{error}");
    client.batch_execute("COMMIT").await.expect("the end");
    wait::until_async("a probe to be answered", PATIENCE, async || {
        store.is_available()
    })
    .await;
    assert_eq!(
        remaining(&patient, "acme").await,
        999,
        "late checks charge nothing"
    );
}

/// Returns what is left of the hot key, once the store decides again.
async fn left(limiter: &Limiter) -> u64 {
    let mut left = None;
    wait::until_async("the store to decide", PATIENCE, async || {
        let state = limiter.peek("hot").await.ok();
        left = state.map(|state| state.states().map(|state| state.remaining()).sum());
        left.is_some()
    })
    .await;
    left.expect("it decides")
}

/// An administrator ends all connections again and again.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_ended_charge_nothing_twice() {
    let table = new_table();
    let store = builder(&table).connect().await.expect("a store");
    let limiter = closed(store, PATIENCE);
    let client = client(&POSTGRES).await;
    let (mut admitted, mut failed) = (0, 0);
    for round in 0..20 {
        let tasks: Vec<_> = (0..30)
            .map(|_| tokio::spawn(limiter.check("hot").into_future()))
            .collect();
        if round % 2 == 0 {
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE application_name = 'tollgate' AND query LIKE $1";
            let own = format!("%{table}%");
            client.query(end, &[&own]).await.expect("an end");
        }
        for task in tasks {
            match task.await.expect("a task") {
                Ok(decision) => admitted += u64::from(decision.is_allowed()),
                Err(error) => {
                    assert!(error.kind().is_unavailable(), "{error}");
                    failed += 1;
                }
            }
        }
    }
    let spent = 1_000 - left(&limiter).await;
    assert!(
        (admitted..=admitted + failed).contains(&spent),
        "{admitted} were admitted, {failed} failed, {spent} are spent"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_are_lost_charge_nothing_twice() {
    let proxy = Proxy::start(POSTGRES.addr());
    let store = PostgresStore::builder(POSTGRES.url_at(proxy.addr()) + "?connect_timeout=60")
        .table(new_table())
        .create(Durability::Unlogged)
        .connect()
        .await
        .expect("a store");
    let limiter = closed(store, PATIENCE);
    let (mut admitted, mut failed) = (0, 0);
    for round in 0..20 {
        let tasks: Vec<_> = (0..20)
            .map(|_| tokio::spawn(limiter.check("hot").into_future()))
            .collect();
        if round % 2 == 0 {
            tokio::task::block_in_place(|| proxy.lose_replies());
        }
        for task in tasks {
            match task.await.expect("a task") {
                Ok(decision) => admitted += u64::from(decision.is_allowed()),
                Err(_) => failed += 1,
            }
        }
    }
    let spent = 1_000 - left(&limiter).await;
    assert!(
        (admitted..=admitted + failed).contains(&spent),
        "{admitted} were admitted, {failed} failed, {spent} are spent"
    );
}

/// Logged counts survive a crash, and unlogged ones do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_keeps_the_counts_of_a_logged_table_alone() {
    let server = Arc::new(PostgresServer::start());
    let mut limiters = Vec::new();
    for durability in [Durability::Logged, Durability::Unlogged] {
        let store = PostgresStore::builder(server.url())
            .table(new_table())
            .create(durability)
            .connections(NonZeroUsize::MIN);
        let store = store.connect().await.expect("a store");
        let limiter = patient_limiter(store.clone(), daily(10));
        for _ in 0..4 {
            assert!(decided(&limiter, "acme").await.is_allowed());
        }
        limiters.push((store, limiter));
    }
    let restarted = Arc::clone(&server);
    let restart = move || {
        restarted.kill();
        restarted.restart();
    };
    tokio::task::spawn_blocking(restart)
        .await
        .expect("a restart");
    let mut left = Vec::new();
    for (store, limiter) in &limiters {
        wait::until_async("the store to use the server again", PATIENCE, async || {
            store.ping().await.is_ok() && limiter.peek("acme").await.is_ok()
        })
        .await;
        left.push(remaining(limiter, "acme").await);
    }
    assert_eq!(left, [6, 10]);
}

#[tokio::test]
async fn replicas_count_themselves_and_limits_are_shown_and_enforced_as_operators_say() {
    let table = new_table();
    let enforcement = Enforcement::share(0);
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = builder(&table).connect().await.expect("a store");
        let limiter = Limiter::builder(store)
            .policies(daily(100))
            .name("search")
            .published_with(enforcement.clone())
            .build();
        limiters.push(limiter);
    }
    let client = client(&POSTGRES).await;
    let shown = format!(
        "SELECT convert_from(value, 'UTF8') FROM {table} WHERE key = '{{replicas}}:limits'"
    );
    wait::until_async("the limits to be shown", PATIENCE, async || {
        let row = client.query_opt(&shown, &[]).await.expect("an answer");
        row.is_some_and(|row| row.get::<_, String>(0).contains("api=100/day"))
    })
    .await;
    let set = format!(
        "INSERT INTO {table} VALUES ('{{replicas}}:shares', 'search=25%', 0, 2147483647) \
         ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    );
    client.batch_execute(&set).await.expect("a share");
    wait::until_async("the share to be in force", PATIENCE, async || {
        enforcement.percent() == 25
    })
    .await;
    // Both stores are of one process, which counts once.
    let counted = format!(
        "SELECT convert_from(value, 'UTF8') FROM {table} WHERE convert_from(key, 'UTF8') ~ 'replicas.:[0-9a-f]{{16}}$'"
    );
    wait::until_async("the process to be counted", PATIENCE, async || {
        let rows = client.query(&counted, &[]).await.expect("an answer");
        rows.len() == 1 && rows[0].get::<_, String>(0).lines().count() == 1
    })
    .await;
}

#[tokio::test]
async fn a_customer_that_is_heavy_in_another_process_is_heavy_here() {
    let table = new_table();
    let store = builder(&table).connect().await.expect("a store");
    let client = client(&POSTGRES).await;
    let key = format!("{{replicas}}:{}", fair_shares::name());
    let read = format!(
        "SELECT convert_from(value, 'UTF8') FROM {table} WHERE key = convert_to('{key}', 'UTF8')"
    );
    let told = async || {
        let row = client.query_opt(&read, &[]).await.expect("an answer");
        row.map(|row| row.get(0)).unwrap_or_default()
    };
    let tell = async |entry: &str| {
        let line = format!(
            "convert_to((1000 * extract(epoch from now()))::bigint || E'\\tother\\t {entry}\\n', 'UTF8')"
        );
        let add = format!(
            "UPDATE {table} SET value = value || {line} WHERE key = convert_to('{key}', 'UTF8')"
        );
        client.batch_execute(&add).await.expect("a line");
    };
    fair_shares::a_heavy_customer_of_others_is_heavy_here(store, told, tell).await;
}

#[tokio::test]
async fn an_exception_in_postgres_reaches_all_replicas_and_what_was_spent_stays_spent() {
    let table = new_table();
    let store = async || builder(&table).connect().await.expect("a store");
    let replicas = [
        exceptions::replica(store().await),
        exceptions::replica(store().await),
    ];
    exceptions::hold(replicas).await;
}
