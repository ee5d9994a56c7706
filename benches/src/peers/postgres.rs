//! Limiters over PostgreSQL that call it for each decision.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool, Runtime};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio_postgres::NoTls;
use tower_rate_limiter::{GcraQuota, POSTGRES_GCRA_MIGRATION_V1, PostgresGcra, RateLimitPolicy};

use crate::{
    keys,
    load::{Answer, Decide},
};

/// Decides in a transaction that locks the row of the key, as Bucket4j does.
pub(crate) struct SelectForUpdate(Pool);

/// The burst of a bucket of which a unit returns in a microsecond: it is never used up.
const BURST: i64 = 1_000_000_000;

impl SelectForUpdate {
    pub(crate) async fn new(url: &str, connections: usize) -> Self {
        let manager = Manager::new(url.parse().expect("a URL"), NoTls);
        let pool = Pool::builder(manager)
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .build()
            .expect("a pool");
        let client = pool.get().await.expect("the server is up");
        let table = "CREATE TABLE IF NOT EXISTS buckets (key text PRIMARY KEY, tokens int8 NOT NULL, at_us int8 NOT NULL) \
                     WITH (fillfactor = 50)";
        client.batch_execute(table).await.expect("a table");
        Self(pool)
    }
}

impl Decide for SelectForUpdate {
    async fn decide(&self, key: usize) -> Answer {
        let key = &keys::all()[key];
        let mut client = self.0.get().await.expect("a connection");
        let transaction = client.transaction().await.expect("a transaction");
        let select = "SELECT tokens, at_us, (extract(epoch FROM clock_timestamp()) * 1000000)::int8 \
                      FROM buckets WHERE key = $1 FOR UPDATE";
        let select = transaction
            .prepare_cached(select)
            .await
            .expect("a statement");
        let row = transaction.query_opt(&select, &[key]).await.expect("a row");
        let (left, now_us) = match row {
            Some(row) => {
                let (tokens, at_us, now_us): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
                ((tokens + now_us - at_us).min(BURST), now_us)
            }
            None => (BURST, 0),
        };
        let update = "INSERT INTO buckets VALUES ($1, $2, $3) \
                      ON CONFLICT (key) DO UPDATE SET tokens = excluded.tokens, at_us = excluded.at_us";
        let update = transaction
            .prepare_cached(update)
            .await
            .expect("a statement");
        let spent = left - 1;
        transaction
            .execute(&update, &[key, &spent, &now_us])
            .await
            .expect("written");
        transaction.commit().await.expect("committed");
        Answer::by_store(spent >= 0)
    }
}

/// Decides with the PostgreSQL policy of tower-rate-limiter: a function in the database.
pub(crate) struct TowerRateLimiterPostgres(PostgresGcra);

impl TowerRateLimiterPostgres {
    pub(crate) async fn new(url: &str, connections: usize) -> Self {
        let pool: PgPool = PgPoolOptions::new()
            .max_connections(connections as u32)
            .connect(url)
            .await
            .expect("the server is up");
        sqlx::raw_sql(POSTGRES_GCRA_MIGRATION_V1)
            .execute(&pool)
            .await
            .expect("a function");
        let quota = GcraQuota::new(1_000, Duration::from_secs(1), 100_000_000);
        Self(PostgresGcra::new(pool, quota.expect("a quota above zero")))
    }
}

impl Decide for TowerRateLimiterPostgres {
    async fn decide(&self, key: usize) -> Answer {
        let decision = self.0.check(keys::all()[key].clone()).await;
        Answer::by_store(!decision.expect("the server decides").is_rate_limited())
    }
}
