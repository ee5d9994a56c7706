//! Rows that have expired are removed by the clock of that moment, also where it went back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadpool_postgres::{Manager, Pool, Runtime};
use tokio_postgres::{Client, NoTls};
use tollgate::{Limiter, Policy, Quota, store::Clock};
use tollgate_postgres::{Durability, PostgresStore, PostgresStoreBuilder};
use tollgate_test_support::{PATIENCE, START_US, client, decided, patient_limiter};
use tollgate_tests::{PostgresServer, WallClock, wait};

const HOUR: Duration = Duration::from_secs(3_600);

/// Holds whoever removes rows until the test lets go.
const HOLD: &str = "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$; \
    CREATE TRIGGER hold BEFORE DELETE ON tollgate FOR EACH STATEMENT EXECUTE FUNCTION hold(); \
    SELECT pg_advisory_lock(7)";

/// Makes a limiter on a table whose rows are removed when the test lets go. Its sessions have no
/// time for a statement.
async fn held(
    server: &PostgresServer,
    with: impl Fn(PostgresStoreBuilder) -> PostgresStoreBuilder,
) -> (Limiter, Client) {
    let config = server.url().parse().expect("a URL");
    let pool = Pool::builder(Manager::new(config, NoTls))
        .max_size(8)
        .runtime(Runtime::Tokio1)
        .build()
        .expect("a pool");
    let store = with(PostgresStore::over(pool).create(Durability::Unlogged));
    let store = store.connect().await.expect("a store");
    let sql = client(server).await;
    sql.batch_execute(HOLD).await.expect(HOLD);
    let limiter = patient_limiter(store, Policy::fixed_window("api", Quota::per_minute(5)));
    (limiter, sql)
}

/// Returns how many rows there are with a key that begins so.
async fn count(sql: &Client, key: &str) -> i64 {
    let count = format!("SELECT count(*) FROM tollgate WHERE key LIKE '{key}%'::bytea");
    sql.query_one(&count, &[]).await.expect("a count").get(0)
}

/// Waits until somebody removes rows, and is held.
async fn is_held(sql: &Client) {
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    wait::until_async("rows to be removed", PATIENCE, async || {
        let row = sql.query_one(held, &[]).await.expect("a count");
        row.get::<_, i64>(0) > 0
    })
    .await;
}

/// Lets go, and waits until the rows that have expired are gone.
async fn let_go(sql: &Client) {
    sql.batch_execute("SELECT pg_advisory_unlock(7)")
        .await
        .expect("it was held");
    wait::until_async("expired rows to be gone", PATIENCE, async || {
        count(sql, "expired").await == 0
    })
    .await;
}

/// Returns the expiry of a row that is written now, and the minute of its removal.
fn fresh(now_ms: u64) -> String {
    format!("{}, {}", now_ms + 60_000, now_ms / 60_000 + 6)
}

/// A thousand rows are removed in a statement, so a second one follows.
#[tokio::test]
async fn a_row_that_is_written_after_the_clock_went_back_stays() {
    let (server, clock) = (PostgresServer::start(), Clock::manual(START_US));
    let (limiter, sql) = held(&server, |builder| builder.clock(clock.clone())).await;
    let expired = "INSERT INTO tollgate SELECT ('expired' || at)::bytea, 'x', 1, 1 FROM generate_series(1, 1500) AS at";
    sql.batch_execute(expired).await.expect(expired);
    clock.advance(HOUR);
    assert!(decided(&limiter, "acme").await.is_allowed());
    is_held(&sql).await;

    clock.set(START_US);
    let live = format!(
        "INSERT INTO tollgate VALUES ('live', 'x', {})",
        fresh(START_US / 1_000)
    );
    sql.batch_execute(&live).await.expect(&live);
    let_go(&sql).await;
    assert_eq!(count(&sql, "live").await, 1);
}

/// The row was there when its removal began, and had expired.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_row_that_is_written_again_after_the_clock_of_the_server_went_back_stays() {
    let clock = WallClock::new();
    let server = PostgresServer::start_by(&clock);
    let (limiter, sql) = held(&server, |builder| builder).await;
    let expired = "INSERT INTO tollgate VALUES ('expired', 'x', 1, 1), ('live', 'x', 1, 1)";
    sql.batch_execute(expired).await.expect(expired);
    clock.forward(HOUR);
    assert!(decided(&limiter, "acme").await.is_allowed());
    is_held(&sql).await;

    clock.back(HOUR);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let live = format!(
        "UPDATE tollgate SET (expires_ms, sweep_at) = ({}) WHERE key = 'live'",
        fresh(now.as_millis() as u64)
    );
    sql.batch_execute(&live).await.expect(&live);
    let_go(&sql).await;
    assert_eq!(count(&sql, "live").await, 1);
}
