//! Measures Tollgate over Redis as it may be set up: over TLS, with threads for sockets, and in another
//! place of the same zone.

use std::{sync::Arc, time::Duration};

use tollgate::{RedisStore, redis::RedisStoreBuilder};
use tollgate_tests::Authority;

use super::PLENTY;
use crate::{
    keys::KEYS,
    load::{self, Contestant, Crowd, Load},
    pace::{Pace, Rounds},
    peers::Ours,
    report::{Findings, Table, figure},
    server::Server,
};

/// The round trip to a server in the same zone.
const ZONE: Duration = Duration::from_micros(500);

const IO_THREADS: usize = 2;

pub(crate) fn run(pace: &Pace) -> Findings {
    let runtime = load::runtime();
    let authority = Authority::new("benches");
    let plain = Arc::new(Server::start());
    let tls = Arc::new(Server::with_tls(&authority));
    let threads = Arc::new(Server::with_io_threads(IO_THREADS));
    let line = plain.at_a_distance(ZONE);
    let contestant = |name: &str, server: &Arc<Server>, store: RedisStoreBuilder| {
        let store = runtime.block_on(store.connect());
        let ours = Ours::new(store.expect("the server is up"), PLENTY);
        Contestant::new(name, &runtime, Some(server), ours)
    };
    let by_tls = RedisStore::builder(tls.tls_url()).root_certificates(authority.pem());
    let contestants = [
        contestant("loopback", &plain, RedisStore::builder(plain.url())),
        contestant("TLS", &tls, by_tls),
        contestant(
            "two threads for sockets",
            &threads,
            RedisStore::builder(threads.url()),
        ),
        contestant("0.5 ms away", &plain, RedisStore::builder(line.url())),
    ];
    let about = format!(
        "Tollgate alone, 10 000 keys, all requests are admitted. *TLS* is that of rustls with ring, and of the server's \
         OpenSSL, over loopback. *Two threads* is a server with `io-threads {IO_THREADS}` and `io-threads-do-reads`, which \
         may run on both cores; with two cores, its second thread takes from the client. *0.5 ms away* is a server in the \
         same zone: a proxy adds the round trip, and up to a millisecond more. *To loopback* is a ratio of decisions/s."
    );
    let heads = [
        "callers",
        "",
        "decisions/s",
        "to loopback",
        "client CPU µs",
        "Redis CPU µs",
        "p50 µs",
        "p99 µs",
    ];
    let mut table = Table::new("Redis as it is set up", about, &heads);
    // A turn has at least twenty round trips.
    let rounds = Rounds {
        count: pace.load.count,
        turn: pace.load.turn.max(ZONE * 20),
    };
    for callers in [1, 16, 64, 256, 1_024] {
        let crowd = Crowd {
            trip: ZONE,
            ..Crowd::near(callers, KEYS)
        };
        let series = load::turns(&contestants, rounds, crowd);
        for one in &series {
            table.row([
                callers.to_string(),
                one.name.clone(),
                figure(one.median(Load::per_second)),
                figure(one.ratio(&series[0], Load::per_second)),
                figure(one.median(|load| load.client_us)),
                figure(one.median(|load| load.server_us)),
                figure(one.median(|load| load.p50_us)),
                figure(one.median(|load| load.p99_us)),
            ]);
        }
    }
    let mut findings = Findings::default();
    findings.tables.push(table);
    findings
}
