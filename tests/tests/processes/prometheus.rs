//! The example with metrics for Prometheus.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use tollgate::{Key, KeySecret, limiter::DeniedKeys};
use tollgate_tests::{Process, RedisServer, machine, ports, wait};

use crate::{STANDSTILL, http};

const SECRET: &str = "a secret of the configuration";

/// Sends a request. Returns the status and the body.
fn send(address: SocketAddr, method: &str, path: &str, tenant: &str) -> (u16, String) {
    let (status, answer) = http::send(address, method, path, &[("X-Tenant", tenant)]);
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status, body.to_owned())
}

/// Returns the series of a page for Prometheus.
fn series(page: &str) -> BTreeMap<&str, f64> {
    let lines = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '));
    lines
        .map(|(name, value)| (name, value.parse().expect("a number")))
        .collect()
}

#[test]
fn the_page_for_prometheus_tells_the_metrics_of_rules_limiters_and_the_store() {
    machine::undisturbed(STANDSTILL, page_for_prometheus);
}

fn page_for_prometheus() {
    let redis = RedisServer::start();
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command = Process::example("prometheus");
    command
        .env("LISTEN", address.to_string())
        .env("REDIS_URL", redis.url())
        .env("SECRET", SECRET);
    let mut process = Process::start(command, "Try");
    // A window may end in between, so more than ten may pass.
    let denied = (0..25)
        .filter(|_| send(address, "GET", "/", "acme").0 == 429)
        .count() as f64;
    assert!(denied >= 5.0);
    let statuses: Vec<_> = (0..5)
        .map(|_| send(address, "GET", "/", "trial-7").0)
        .collect();
    assert_eq!(statuses, [200; 5], "the limit of trials is in shadow mode");
    let logins = (0..9)
        .filter(|_| send(address, "POST", "/login", "acme").0 == 429)
        .count() as f64;
    assert!(logins >= 1.0);

    // The state of the store is set once a second.
    let page = wait::until_some("the state of the store", Duration::from_secs(60), || {
        let (_, page) = send(address, "GET", "/metrics", "");
        page.contains("\ntollgate_store_servers{").then_some(page)
    });
    let series = series(&page);
    let value = |name: &str| {
        *series
            .get(name)
            .unwrap_or_else(|| panic!("{name} in {page}"))
    };
    assert_eq!(
        value("tollgate_rule_units_total{rule=\"shop.tenant\"}"),
        25.0
    );
    assert_eq!(
        value("tollgate_rule_units_over_total{rule=\"shop.tenant\"}"),
        denied
    );
    assert_eq!(
        value("tollgate_rule_units_within_total{rule=\"shop.tenant\"}"),
        25.0 - denied
    );
    assert_eq!(
        value("tollgate_rule_units_total{rule=\"shop.tenant_trial-*\"}"),
        5.0
    );
    let shadow = value("tollgate_rule_units_shadow_total{rule=\"shop.tenant_trial-*\"}");
    assert_eq!(
        shadow,
        value("tollgate_rule_units_over_total{rule=\"shop.tenant_trial-*\"}")
    );
    assert_eq!(
        value("tollgate_denials_total{limiter=\"login\",policy=\"login\"}"),
        logins
    );
    assert_eq!(value("tollgate_rules_refused"), 0.0);
    assert!(value("tollgate_check_duration_seconds_bucket{limiter=\"login\",le=\"+Inf\"}") >= 1.0);

    let (_, page) = send(address, "GET", "/denied", "");
    let acme = Key::new("shop").join(("tenant", "acme"));
    let digest = DeniedKeys::digest(&acme, &KeySecret::new(SECRET));
    assert!(page.contains(&format!("{denied:>8}  {digest}\n")), "{page}");
    assert!(!page.contains("acme"), "{page}");
    assert!(process.terminate().success());
}
