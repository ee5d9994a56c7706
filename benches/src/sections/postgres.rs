//! Measures decisions per second through PostgreSQL, and how much room its table takes.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio_postgres::NoTls;
use tollgate::{Policy, Quota, RedisStore};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_tests::PostgresServer;

use crate::{
    keys::KEYS,
    load::{self, Crowd, Decide, Load},
    machine,
    pace::Pace,
    peers::{Ours, SelectForUpdate, TowerRateLimiterPostgres},
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

/// A limit that is never used up.
const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(1_000_000).with_burst(1_000_000_000),
);

pub(crate) fn run(pace: &Pace) -> Findings {
    // A commit waits for the disk, as it does in production.
    let start = || PostgresServer::start_with("fsync = on\nshared_buffers = 128MB");
    let (postgres, redis) = (machine::on_the_server_core(start), Server::start());
    let runtime = load::runtime();
    let mut findings = Findings::default();
    let field = Field::new(&runtime, &postgres, &redis);
    let mut table = Table::new(
        "Through PostgreSQL",
        "Concurrent callers on one client core, with the servers on the other core. All requests are admitted. *SELECT … FOR UPDATE* is a \
         transaction for each decision, as Bucket4j makes it, and *tower-rate-limiter* calls its function in the database; both have 16 connections. \
         Tollgate has 4. A commit waits for the disk, except in the row *unlogged*. *Tollgate to this row* is a ratio of decisions/s.",
        &[
            "callers",
            "keys",
            "",
            "decisions/s",
            "tollgate to this row",
            "p50 µs",
            "p99 µs",
        ],
    );
    for (callers, keys) in [(64, KEYS), (256, KEYS), (64, 1), (256, 1)] {
        let series = field.turns(pace, Crowd { callers, keys });
        for one in &series {
            table.row([
                callers.to_string(),
                keys.to_string(),
                one.name.clone(),
                figure(one.median(Load::per_second)),
                figure(series[OURS].ratio(one, Load::per_second)),
                figure(one.median(|it| it.p50_us)),
                figure(one.median(|it| it.p99_us)),
            ]);
        }
        for peer in [LOCKING, FUNCTION] {
            let (target, key) = if keys == 1 {
                (10.0, "one hot key")
            } else {
                (5.0, "10 000 keys")
            };
            findings.goal(
                format!(
                    "PostgreSQL, {callers} callers, {key}, decisions/s to {}",
                    series[peer].name
                ),
                Target::AtLeast(target),
                series[OURS].ratio(&series[peer], Load::per_second),
                " ×",
            );
        }
    }
    findings.tables.push(table);
    let (rows, bytes, hot) = field.churn(pace);
    findings.goal(
        "PostgreSQL, updates that touch no index, of all updates",
        Target::AtLeast(0.9),
        hot,
        "",
    );
    findings.goal(
        "PostgreSQL, bytes of table and indexes for a row after churn",
        Target::AtMost(2_000.0),
        bytes as f64 / rows as f64,
        "",
    );
    findings
}

const OURS: usize = 0;
const LOCKING: usize = 2;
const FUNCTION: usize = 3;

struct Field<'a> {
    runtime: &'a Runtime,
    logged: Arc<Ours>,
    unlogged: Arc<Ours>,
    locking: Arc<SelectForUpdate>,
    function: Arc<TowerRateLimiterPostgres>,
    redis: Arc<Ours>,
    url: String,
    /// The Redis server, which [`load::run`] asks for its use. No figure here shows it.
    server: &'a Server,
}

impl<'a> Field<'a> {
    fn new(runtime: &'a Runtime, postgres: &PostgresServer, redis: &'a Server) -> Self {
        let url = postgres.url();
        runtime.block_on(async {
            let store = async |table: &str, durability| {
                let store = PostgresStore::builder(&url).table(table).create(durability);
                Arc::new(Ours::new(
                    store.connect().await.expect("a store"),
                    PLENTY,
                    KEYS,
                ))
            };
            let on_redis = RedisStore::connect(redis.url())
                .await
                .expect("the server is up");
            Self {
                runtime,
                logged: store("logged", Durability::Logged).await,
                unlogged: store("unlogged", Durability::Unlogged).await,
                locking: Arc::new(SelectForUpdate::new(&url, KEYS).await),
                function: Arc::new(TowerRateLimiterPostgres::new(&url, KEYS).await),
                redis: Arc::new(Ours::new(on_redis, PLENTY, KEYS)),
                url: url.clone(),
                server: redis,
            }
        })
    }

    fn turns(&self, pace: &Pace, crowd: Crowd) -> Vec<Series<Load>> {
        let cases = vec![
            self.case("**Tollgate**", &self.logged, crowd),
            self.case("Tollgate, unlogged", &self.unlogged, crowd),
            self.case("SELECT … FOR UPDATE", &self.locking, crowd),
            self.case("tower-rate-limiter", &self.function, crowd),
            self.case("Tollgate on Redis", &self.redis, crowd),
        ];
        alternate(pace.load, cases)
    }

    fn case<D: Decide>(&self, name: &str, decide: &Arc<D>, crowd: Crowd) -> Case<'a, Load> {
        let (runtime, server, decide) = (self.runtime, self.server, Arc::clone(decide));
        Case::new(name, move |turn| {
            load::run(runtime, server, &decide, crowd, turn)
        })
    }

    /// Changes a thousand rows again and again. Returns the rows and bytes of the table, and the
    /// share of updates that touched no index.
    fn churn(&self, pace: &Pace) -> (i64, i64, f64) {
        let crowd = Crowd {
            callers: 64,
            keys: 1_000,
        };
        let _ = load::run(
            self.runtime,
            self.server,
            &self.logged,
            crowd,
            20 * pace.load.turn,
        );
        self.runtime.block_on(async {
            let connected = tokio_postgres::connect(&self.url, NoTls).await;
            let (client, connection) = connected.expect("the server is up");
            tokio::spawn(connection);
            // A process of the server reports what it did once a second.
            tokio::time::sleep(std::time::Duration::from_secs(3)).await;
            let size = "SELECT (SELECT count(*) FROM logged), pg_total_relation_size('logged'), \
                        n_tup_hot_upd::float8 / greatest(n_tup_upd, 1) FROM pg_stat_user_tables WHERE relname = 'logged'";
            let row = client.query_one(size, &[]).await.expect("a size");
            (row.get(0), row.get(1), row.get(2))
        })
    }
}
