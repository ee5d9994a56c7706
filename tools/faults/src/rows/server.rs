//! Rows: servers that refuse to decide.

use std::time::{Duration, Instant};

use tollgate::{Outage, Policy, Quota, RedisStore};
use tollgate_tests::{RedisServer, RefusingState, refusing_state};

use crate::{
    findings::Findings,
    load::{
        AMOUNT, LARGE, Load, connected, decides, limiter, millis, patient_limiter, quantile, ready,
        remaining, sample, store_at, until,
    },
    pace::Pace,
};

/// Makes the server enter a refusing state under load, and measures the answers and the recovery.
async fn meets(findings: &mut Findings, state: RefusingState) {
    let server = RefusingState::server();
    let (store, large) = connected(server.url_at(server.addr())).await;
    let load = Load::start(&large, 4, ["acme".into()]);
    state.enter(&server);
    until(state.reason, async || {
        sample(&large, "probe").await.reason == Some(state.reason)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    state.leave(&server);
    let relieved = Instant::now();
    let added = millis(decides(&large, "acme").await - relieved);
    let samples = load.end().await;
    let word = state.reason;
    let counted = samples
        .iter()
        .filter(|sample| sample.reason == Some(word))
        .count() as f64;
    findings
        .count(format!("checks counted as `{word}`"), counted)
        .at_least(1.0);
    let degraded = samples.iter().filter(|sample| sample.reason.is_some());
    findings
        .ms(format!("{word}: longest check"), quantile(degraded, 1.0))
        .at_most(70.0);
    findings
        .ms(format!("{word}: from its end to the first decision"), added)
        .at_most(1_200.0);
    if word == refusing_state::OUT_OF_MEMORY.reason {
        let decided = samples
            .iter()
            .filter(|sample| sample.reason.is_none())
            .count() as u64;
        let spent = AMOUNT - remaining(&patient_limiter(store.clone(), LARGE), "acme").await;
        findings
            .count(
                "charges of checks that it did not decide",
                spent.abs_diff(decided) as f64,
            )
            .at_most(0.0);
    }
    // The keys that make loading slow never expire.
    if word != refusing_state::LOADING.reason {
        findings.keys(server.keys_and_expires());
    }
}

pub(super) async fn busy(_: Pace) -> Findings {
    let mut findings = Findings::default();
    meets(&mut findings, refusing_state::BUSY).await;
    findings
}

pub(super) async fn out_of_memory(_: Pace) -> Findings {
    let mut findings = Findings::default();
    meets(&mut findings, refusing_state::OUT_OF_MEMORY).await;
    findings
}

pub(super) async fn cannot_decide(_: Pace) -> Findings {
    let mut findings = Findings::default();
    for state in [
        refusing_state::LOADING,
        refusing_state::MASTER_DOWN,
        refusing_state::SAVING_FAILS,
    ] {
        meets(&mut findings, state).await;
    }
    findings
}

pub(super) async fn too_few_replicas(_: Pace) -> Findings {
    let mut findings = Findings::default();
    meets(&mut findings, refusing_state::TOO_FEW_REPLICAS).await;
    findings
}

pub(super) async fn eviction(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let store = store_at(&server).await;
    let policies = [
        "allkeys-lru",
        "volatile-lru",
        "volatile-ttl",
        "allkeys-random",
        "volatile-random",
    ];
    let mut warned = 0.0;
    for policy in policies {
        assert!(
            !server
                .command(&["CONFIG", "SET", "maxmemory-policy", policy])
                .is_error()
        );
        let found = store.diagnose([]).await.expect("it answers");
        warned += f64::from(found.iter().any(|it| it.code() == "TOLLGATE-EVICTION"));
    }
    findings
        .count("eviction policies warned of, of 5", warned)
        .at_least(5.0);
    // A flood of keys evicts exhausted ones and so resets their limits: reported, without a target.
    let lost = flooded("allkeys-lru").await;
    findings.count(
        format!("allkeys-lru: spent quotas of {VICTIMS} that a flood lifts"),
        lost,
    );
    let lost = flooded("noeviction").await;
    findings
        .count(format!("noeviction: the same, of {VICTIMS}"), lost)
        .at_most(0.0);
    findings
}

const VICTIMS: u64 = 20;

/// Counts the exhausted keys that are fresh after others filled the memory of the server.
async fn flooded(policy: &str) -> f64 {
    let server = RedisServer::builder()
        .arg("--maxmemory-policy", policy)
        .start();
    let store = RedisStore::builder(server.url_at(server.addr()))
        .deny_cache_cap(Duration::ZERO)
        .connect()
        .await
        .expect("a store");
    let spent = patient_limiter(
        store.clone(),
        Policy::fixed_window("spent", Quota::per_day(3)),
    );
    for victim in (0..VICTIMS).flat_map(|victim| [victim; 3]) {
        assert!(
            spent
                .check(("victim", victim))
                .await
                .is_ok_and(|decision| decision.is_allowed())
        );
    }
    let used: u64 = server.info("memory")["used_memory"]
        .parse()
        .expect("a number");
    let cap = (used + 4 * 1_048_576).to_string();
    assert!(
        !server
            .command(&["CONFIG", "SET", "maxmemory", &cap])
            .is_error()
    );
    let large = limiter(&store, LARGE, Outage::Closed);
    let evicted = || {
        server.info("stats")["evicted_keys"]
            .parse::<u64>()
            .expect("a number")
    };
    let (mut refused, mut next) = (0, 0_u64);
    // Until no more key fits, or as many were evicted as fit.
    while refused == 0 && evicted() < 50_000 {
        let crowd: Vec<_> = (next..next + 2_000)
            .map(|key| {
                let large = large.clone();
                tokio::spawn(async move { large.check(("flood", key)).await })
            })
            .collect();
        next += 2_000;
        for check in crowd {
            refused += u64::from(
                check
                    .await
                    .expect("a task")
                    .is_err_and(|error| error.kind().as_str() == "oom"),
            );
        }
    }
    // A peek is no write, so it is not refused for lack of memory.
    assert!(
        !server
            .command(&["CONFIG", "SET", "maxmemory", "0"])
            .is_error()
    );
    let mut fresh = 0;
    for victim in 0..VICTIMS {
        fresh += u64::from(remaining(&spent, ("victim", victim)).await == 3);
    }
    fresh as f64
}

pub(super) async fn read_only(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let (server, _, large) = ready().await;
    let refused = || {
        let errors = server.info("errorstats");
        errors.get("errorstat_READONLY").map_or(0.0, |it| {
            it.trim_start_matches("count=").parse().expect("a number")
        })
    };
    let received = || {
        server.info("stats")["total_connections_received"]
            .parse::<f64>()
            .expect("a number")
    };
    let before = received();
    let load = Load::start(&large, 1, ["acme".into()]);
    refusing_state::READ_ONLY.enter(&server);
    until("five refusals", async || refused() >= 5.0).await;
    // The first connection, and those made since.
    let each = refused() / (received() - before + 1.0);
    refusing_state::READ_ONLY.leave(&server);
    decides(&large, "acme").await;
    let samples = load.end().await;
    findings.count("READONLY per connection", each).at_most(1.0);
    findings.longest_check(&samples);
    findings
}
