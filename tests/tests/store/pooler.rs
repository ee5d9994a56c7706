//! A pooler between the store and PostgreSQL: what the store sets in a session would be the next
//! client's.

use std::num::NonZeroUsize;

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use tollgate::{ErrorKind, Limiter, Outage, Policy, Quota};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_test_support::{PATIENCE, client, decided, patient_limiter};
use tollgate_tests::{PgBouncer, PostgresServer, pgbouncer::keeps_statements, wait};

/// The settings that the store has in sessions of its own, and the lines of `docs/postgres.md` for a
/// role that has them.
const SETTINGS: [(&str, &str, &str); 6] = [
    ("enable_seqscan", "on", "off"),
    ("enable_hashjoin", "on", "off"),
    ("enable_mergejoin", "on", "off"),
    ("plan_cache_mode", "auto", "force_generic_plan"),
    ("statement_timeout", "0", "5s"),
    ("idle_in_transaction_session_timeout", "0", "5s"),
];

const ROLE: &str = "CREATE ROLE limits LOGIN; \
    ALTER ROLE limits SET enable_seqscan = off; \
    ALTER ROLE limits SET enable_hashjoin = off; \
    ALTER ROLE limits SET enable_mergejoin = off; \
    ALTER ROLE limits SET plan_cache_mode = force_generic_plan; \
    ALTER ROLE limits SET statement_timeout = '5s'; \
    ALTER ROLE limits SET idle_in_transaction_session_timeout = '5s'; \
    GRANT SELECT, INSERT, UPDATE, DELETE ON tollgate TO limits;";

/// Writes down the settings of each session that makes a row.
const WITNESS: &str = "CREATE TABLE seen (settings text); GRANT INSERT ON seen TO public; \
    CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES ( \
    current_setting('enable_seqscan') || ' ' || current_setting('enable_hashjoin') || ' ' || \
    current_setting('enable_mergejoin') || ' ' || current_setting('plan_cache_mode') || ' ' || \
    current_setting('statement_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout')); \
    RETURN NEW; END $$; \
    CREATE TRIGGER see BEFORE INSERT ON tollgate FOR EACH ROW EXECUTE FUNCTION see();";

async fn store(url: String) -> PostgresStore {
    let store = PostgresStore::builder(url).connections(NonZeroUsize::MIN);
    store.connect().await.expect("a store")
}

fn limiter(store: PostgresStore) -> Limiter {
    patient_limiter(store, Policy::token_bucket("api", Quota::per_day(100)))
}

/// Starts a server that has the table, the role and the witness.
async fn server() -> (PostgresServer, Client) {
    let server = PostgresServer::start();
    let maker = PostgresStore::builder(server.url()).create(Durability::Unlogged);
    maker.connect().await.expect("a table");
    let client = client(&server).await;
    for sql in [ROLE, WITNESS] {
        client.batch_execute(sql).await.expect(sql);
    }
    (server, client)
}

/// Returns the settings of the sessions that made rows since the last call.
async fn seen(client: &Client) -> Vec<String> {
    let taken = "DELETE FROM seen RETURNING settings";
    let rows = client.query(taken, &[]).await.expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}

fn settings(of: impl Fn(&(&'static str, &'static str, &'static str)) -> &'static str) -> String {
    SETTINGS.iter().map(of).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_pooler_hands_no_setting_of_the_store_to_the_application() {
    let (server, client) = server().await;
    // One session for all clients of a user.
    let pooler = PgBouncer::start(&server, 1, &["postgres", "limits"]);
    let limiter = limiter(store(pooler.url("postgres")).await);
    for key in 0..5_u64 {
        assert!(limiter.check(key).await.expect("a decision").is_allowed());
    }
    let seen = seen(&client).await;
    assert!(seen.len() >= 5, "{seen:?}");
    assert!(
        seen.iter()
            .all(|seen| *seen == settings(|(_, usual, _)| usual)),
        "{seen:?}"
    );
    let (app, connection) = tokio_postgres::connect(&pooler.url("postgres"), NoTls)
        .await
        .expect("the pooler answers");
    tokio::spawn(connection);
    for (name, usual, _) in SETTINGS {
        let shown = app.simple_query(&format!("SHOW {name}")).await;
        let shown = shown
            .expect("an answer")
            .into_iter()
            .find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
        assert_eq!(shown.as_deref(), Some(usual), "{name}");
    }
}

/// Asserts that each session of the store has its settings.
async fn has_our_settings(client: &Client) {
    let seen = seen(client).await;
    let expected = settings(|(_, _, ours)| ours);
    assert!(
        !seen.is_empty() && seen.iter().all(|seen| *seen == expected),
        "{seen:?}"
    );
}

#[tokio::test]
async fn behind_a_pooler_the_settings_are_those_of_the_role() {
    let (server, client) = server().await;
    let pooler = PgBouncer::start(&server, 1, &["limits"]);
    let limiter = limiter(store(pooler.url("limits")).await);
    assert!(decided(&limiter, "acme").await.is_allowed());
    has_our_settings(&client).await;
}

/// The pair: without a pooler, a session has the settings, whoever the user is.
#[tokio::test]
async fn a_session_of_the_store_alone_has_the_settings() {
    let (server, client) = server().await;
    let limiter = limiter(store(server.url()).await);
    assert!(decided(&limiter, "acme").await.is_allowed());
    has_our_settings(&client).await;
}

/// A pooler from 1.21 on keeps prepared statements, and an older one loses them with its session.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_loses_prepared_statements_is_named() {
    let (server, client) = server().await;
    // With one session, an older one works until that is lost.
    let sessions = if keeps_statements() { 2 } else { 1 };
    let pooler = PgBouncer::start(&server, sessions, &["limits"]);
    let stores = [
        store(pooler.url("limits")).await,
        store(pooler.url("limits")).await,
    ];
    let limiters = stores.map(|store| {
        Limiter::builder(store)
            .policies(Policy::token_bucket("api", Quota::per_day(100)))
            .deadline(PATIENCE)
            .on_outage(Outage::Closed)
            .build()
    });
    for limiter in &limiters {
        wait::until_async("a decision", PATIENCE, async || {
            limiter.check("first").await.is_ok()
        })
        .await;
    }
    if keeps_statements() {
        let check = |at: usize| tokio::spawn(limiters[at % 2].check("acme").into_future());
        let checks: Vec<_> = (0..300).map(check).collect();
        let mut admitted = 0;
        for check in checks {
            let decision = check.await.expect("a task").expect("a decision");
            admitted += u64::from(decision.is_allowed());
        }
        assert_eq!(admitted, 100);
        return;
    }
    // Another call of the store may miss it first, and prepare it again.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'limits'";
    let mut lost = None;
    wait::until_async("a statement to be missed", PATIENCE, async || {
        client.batch_execute(end).await.expect("they are ended");
        let error = limiters[0].check("acme").await.err();
        lost = error.filter(|error| error.to_string().contains("max_prepared_statements"));
        lost.is_some()
    })
    .await;
    let error = lost.expect("it was missed");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
