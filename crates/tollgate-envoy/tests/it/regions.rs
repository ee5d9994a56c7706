//! A leased limit that several regions share, by two variables of the program.
//! What a region and a home do is tested in tollgate-regions.

use std::time::{Duration, Instant};

use tollgate_envoy::proto::ratelimit::{
    rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};
use tollgate_tests::{Process, RedisServer, no_server};

use crate::{
    program::{Files, channel, command, place, start},
    support::{LIMIT, descriptor, request},
};

/// A limit of all regions, of which nothing comes back within a test, and one of each region.
const RULES: &str = "
domain: shop
descriptors:
  - {key: all, rate_limit: {quota: 600/365d burst 600, lease: {share: 2, generation: 1m}}}
  - {key: tenant, rate_limit: {unit: year, requests_per_unit: 2}}
";

/// Starts the program of a region.
fn region(files: &Files, name: &str, server: &RedisServer, home: &RedisServer) -> Process {
    let mut command = command();
    command
        .arg("--rules")
        .arg(files.write("rules.yaml", RULES))
        .env("TOLLGATE_STORE", format!("{}&region={name}", server.url()))
        .env(
            "TOLLGATE_HOME_STORE",
            // An answer of the home that is later than four round trips comes too late for its units.
            format!("{}&durability=trust&round_trip=200ms", home.url()),
        );
    start(command)
}

/// Spends of a limit until a request is denied. Returns how many passed.
async fn spend(process: &Process, key: &str) -> usize {
    let mut client = RateLimitServiceClient::new(channel(process).await);
    let mut passed = 0;
    loop {
        let asked = request([descriptor(key, "it")]);
        let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
        match answer.overall_code() {
            Code::Ok => passed += 1,
            _ => return passed,
        }
    }
}

#[tokio::test]
async fn programs_of_two_regions_share_a_leased_limit_and_count_the_others_for_themselves() {
    if no_server() {
        return;
    }
    let (home, eu, us) = (
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    );
    let files = Files::new();
    let programs = [
        region(&files, "eu", &eu, &home),
        region(&files, "us", &us, &home),
    ];
    assert_eq!(
        place(&programs[0], "store"),
        "Redis of this region, with a home"
    );
    // A denial may be early: a region holds a part, and asks again after a while.
    let (mut passed, begun) = (0, Instant::now());
    while passed < 550 {
        assert!(begun.elapsed() < LIMIT, "{passed} of 600");
        for program in &programs {
            passed += spend(program, "all").await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(passed <= 600, "{passed} of 600");
    for (program, server) in programs.iter().zip([&eu, &us]) {
        assert_eq!(spend(program, "tenant").await, 2);
        assert!(!server.command(&["KEYS", "*:purse2"]).items().is_empty());
    }
    let at_home = home.command(&["KEYS", "*"]);
    let names: Vec<_> = at_home.items().iter().map(|name| name.text()).collect();
    assert!(
        matches!(&names[..], [name] if name.ends_with(":home1")),
        "{names:?}"
    );
}

#[test]
fn a_leased_limit_that_regions_cannot_share_is_refused_with_its_place() {
    let files = Files::new();
    for (limit, reason) in [
        (
            "quota: 10000/s burst 100, lease: true",
            "has to last for 4 round trips",
        ),
        (
            "quota: 10000/s, algorithm: sliding_window, lease: true",
            "share token buckets and fixed windows",
        ),
    ] {
        let rules =
            format!("{{domain: shop, descriptors: [{{key: all, rate_limit: {{{limit}}}}}]}}");
        let mut command = command();
        command
            .arg("--rules")
            .arg(files.write("rules.yaml", &rules))
            .arg("--store=redis://127.0.0.1:1/?region=eu")
            .arg("--home-store=redis://127.0.0.1:1/?replicas=1&round_trip=80ms");
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("rules.yaml:1:") && said.contains("rate_limit: "),
            "{said}"
        );
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn a_home_needs_the_redis_of_the_region_and_a_guard() {
    let files = Files::new();
    let home = "redis://:hunter2@127.0.0.1:1/";
    for (arguments, reason) in [
        (vec![], "--home-store needs --store"),
        (vec!["--store=memory:"], "--home-store needs --store"),
        (
            vec!["--store=redis://127.0.0.1:1/"],
            "the region has no name",
        ),
        (
            vec!["--store=redis://127.0.0.1:1/?region=eu"],
            "durability is not set",
        ),
    ] {
        let mut command = command();
        command
            .arg("--rules")
            .arg(files.write("rules.yaml", RULES))
            .env("TOLLGATE_HOME_STORE", home)
            .args(&arguments);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(reason) && !said.contains("hunter2"), "{said}");
    }
}
