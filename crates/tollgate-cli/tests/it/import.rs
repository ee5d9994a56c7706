//! `tollgate import`.

use super::{File, command, tollgate};

const GATEWAY: &str = "
spring.cloud.gateway.routes:
- id: users
  filters:
  - name: RequestRateLimiter
    args: {redis-rate-limiter: {replenish-rate: '${API_RATE:10}', burst-capacity: 20}}
---
spring.config.activate.on-profile: closed
spring.cloud.gateway.routes:
- id: users
  filters:
  - {name: RequestRateLimiter, args: {redis-rate-limiter: {replenish-rate: 1, burst-capacity: 0}}}
";

#[test]
fn the_limits_of_a_gateway_are_printed_as_rules_that_check_accepts() {
    let file = File::new("application.yml", GATEWAY);
    let import = |more: &[&str], rate: &str| {
        let mut command = command();
        let run = command
            .args(["import", "spring"])
            .arg(&file.path)
            .args(more)
            .env("API_RATE", rate)
            .output()
            .unwrap();
        String::from_utf8(run.stdout).unwrap()
    };
    assert!(import(&[], "7").contains("requests_per_unit: 7, burst: 20}"));
    let closed = import(&["--profile", "closed"], "7");
    assert!(closed.contains("requests_per_unit: 0}"), "{closed}");
    let rules = File::new("rules.yaml", closed);
    assert_eq!(
        tollgate(["check".as_ref(), rules.path.as_os_str()]).status,
        0
    );
}

#[test]
fn a_mistake_in_the_file_of_a_gateway_has_its_place() {
    let file = File::new("application.yml", GATEWAY.replace("20}}", "5}}"));
    let run = tollgate(["import".as_ref(), "spring".as_ref(), file.path.as_os_str()]);
    assert_eq!((run.status, run.stdout.as_str()), (2, ""));
    assert!(
        run.stderr.contains("application.yml:6:") && run.stderr.contains("must be 0 or at least"),
        "{}",
        run.stderr
    );
}
