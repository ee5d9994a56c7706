//! Measures decisions per second through PostgreSQL.

use tollgate::RedisStore;
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_tests::PostgresServer;

use super::PLENTY;
use crate::{
    keys::KEYS,
    load::{self, Contestant, Crowd, Load},
    machine,
    pace::Pace,
    peers::{Ours, SelectForUpdate, TowerRateLimiterPostgres},
    report::{Findings, Table, Target, figure},
    server::Server,
};

/// Sets the position of the first peer in a round, and that behind the second one.
const PEERS: std::ops::Range<usize> = 2..4;

pub(crate) fn run(pace: &Pace) -> Findings {
    // A commit waits for the disk, as it does in production.
    let start = || PostgresServer::start_with("fsync = on\nshared_buffers = 128MB");
    let (postgres, redis) = (machine::on_the_server_core(start), Server::start());
    let runtime = load::runtime();
    let url = postgres.url();
    let ours = |table: &str, durability| {
        let store = PostgresStore::builder(&url).table(table).create(durability);
        Ours::new(runtime.block_on(store.connect()).expect("a store"), PLENTY)
    };
    let on_redis = runtime.block_on(RedisStore::connect(redis.url()));
    let on_redis = Ours::new(on_redis.expect("the server is up"), PLENTY);
    let locking = |connections| runtime.block_on(SelectForUpdate::new(&url, connections));
    let function = |connections| runtime.block_on(TowerRateLimiterPostgres::new(&url, connections));
    let new = |name, decide| Contestant::new(name, &runtime, None, decide);
    let contestants = [
        new("**Tollgate**", ours("logged", Durability::Logged)),
        new("Tollgate, unlogged", ours("unlogged", Durability::Unlogged)),
        Contestant::new("SELECT … FOR UPDATE", &runtime, None, locking(4)),
        Contestant::new("tower-rate-limiter", &runtime, None, function(4)),
        Contestant::new(
            "SELECT … FOR UPDATE, 16 connections",
            &runtime,
            None,
            locking(16),
        ),
        Contestant::new(
            "tower-rate-limiter, 16 connections",
            &runtime,
            None,
            function(16),
        ),
        new("Tollgate on Redis", on_redis),
    ];

    let mut findings = Findings::default();
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
        let series = load::turns(&contestants, pace.load, Crowd::near(callers, keys));
        let ratio = |to| series[0].ratio(to, Load::per_second);
        for one in &series {
            table.row([
                callers.to_string(),
                keys.to_string(),
                one.name.clone(),
                figure(one.median(Load::per_second)),
                figure(ratio(one)),
                figure(one.median(|it| it.p50_us)),
                figure(one.median(|it| it.p99_us)),
            ]);
        }
        let target = Target::AtLeast(if keys == 1 { 10.0 } else { 5.0 });
        for peer in &series[PEERS] {
            let measure = format!(
                "PostgreSQL, {callers} callers, {keys} keys, to {}",
                peer.name
            );
            findings.goal(measure, target, ratio(peer), " ×");
        }
    }
    findings.tables.push(table);
    findings
}
