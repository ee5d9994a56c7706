//! A file of Envoy's rate limit service, beside the commands that the service sends to Redis.

use std::time::Duration;

use tollgate::{MemoryStore, store::Clock};
use tollgate_rules::{Compat, Descriptor, Format, RuleLimiter, RuleSet, Rules};
use tollgate_test_support::InRedis;

use super::{SECOND, START, trace};

const FILE: &str = "
domain: shop
descriptors:
  - key: tenant
    rate_limit: {unit: hour, requests_per_unit: 20}
  - key: tenant
    value: gold
    rate_limit: {unit: day, requests_per_unit: 50}
";

/// Decides as the service does: `INCRBY` of a key that ends with the start of the window.
fn service(redis: &mut InRedis, tenant: &str, now: u64) -> bool {
    let (unit, limit) = if tenant == "gold" {
        (86_400, 50)
    } else {
        (3_600, 20)
    };
    let window = now / SECOND / unit * unit;
    let key = format!("shop_tenant_{tenant}_{window}");
    let after = redis.run(&["INCRBY", &key, "1"]).int();
    redis.run(&["EXPIRE", &key, &unit.to_string()]);
    after <= limit
}

#[tokio::test]
async fn a_file_admits_in_both_modes_what_the_service_admits() {
    for compat in [Compat::Native, Compat::Envoy] {
        let mut redis = InRedis::new();
        let rules = RuleSet::builder()
            .compat(compat)
            .parse(FILE, Format::Yaml)
            .expect("rules");
        let clock = Clock::manual(START);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = RuleLimiter::new(Rules::new(rules), store);
        let (mut now, mut admitted) = (0, 0);
        let times = trace(
            1,
            1_500,
            &[0, 0, 0, 0, 0, 0, 0, 0, SECOND, 60 * SECOND, 300 * SECOND],
        );
        for (at, next) in times.iter().enumerate() {
            clock.advance(Duration::from_micros(next - now));
            now = *next;
            let tenant = ["acme", "gold", "small"][at % 3];
            let request = [Descriptor::from([("tenant", tenant)])];
            let ours = limiter
                .check("shop", &request, 1)
                .await
                .expect("a decision")
                .is_allowed();
            assert_eq!(
                ours,
                service(&mut redis, tenant, START + now),
                "{compat}, request {at} of {tenant}"
            );
            admitted += usize::from(ours);
        }
        assert!(
            admitted > 0 && admitted < times.len(),
            "{admitted} admitted"
        );
    }
}
