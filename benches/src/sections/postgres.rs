//! Measures decisions per second through PostgreSQL.

use std::sync::Arc;

use tokio::runtime::Runtime;
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
         transaction for each decision, as Bucket4j makes it, and *tower-rate-limiter* calls its function in the database. \
         All have 4 connections, except in the rows *16 connections*. A commit waits for the disk, except in the row *unlogged*. \
         *Tollgate to this row* is a ratio of decisions/s.",
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
    findings
}

const OURS: usize = 0;
const LOCKING: usize = 2;
const FUNCTION: usize = 3;

/// The connections of everybody, and those that more of the peers' checks share.
const CONNECTIONS: [usize; 2] = [4, 16];

struct Field<'a> {
    runtime: &'a Runtime,
    logged: Arc<Ours>,
    unlogged: Arc<Ours>,
    locking: [Arc<SelectForUpdate>; 2],
    function: [Arc<TowerRateLimiterPostgres>; 2],
    redis: Arc<Ours>,
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
            let locking =
                async |connections| Arc::new(SelectForUpdate::new(&url, connections, KEYS).await);
            let function = async |connections| {
                Arc::new(TowerRateLimiterPostgres::new(&url, connections, KEYS).await)
            };
            let [few, many] = CONNECTIONS;
            Self {
                runtime,
                logged: store("logged", Durability::Logged).await,
                unlogged: store("unlogged", Durability::Unlogged).await,
                locking: [locking(few).await, locking(many).await],
                function: [function(few).await, function(many).await],
                redis: Arc::new(Ours::new(on_redis, PLENTY, KEYS)),
                server: redis,
            }
        })
    }

    fn turns(&self, pace: &Pace, crowd: Crowd) -> Vec<Series<Load>> {
        let [locking, locking_more] = &self.locking;
        let [function, function_more] = &self.function;
        let cases = vec![
            self.case("**Tollgate**", &self.logged, crowd),
            self.case("Tollgate, unlogged", &self.unlogged, crowd),
            self.case("SELECT … FOR UPDATE", locking, crowd),
            self.case("tower-rate-limiter", function, crowd),
            self.case("SELECT … FOR UPDATE, 16 connections", locking_more, crowd),
            self.case("tower-rate-limiter, 16 connections", function_more, crowd),
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
}
