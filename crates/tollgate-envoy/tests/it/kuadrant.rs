//! Gateways that reserve before a request and settle after it, by Kuadrant's calls.

use futures_util::future::join_all;
use tollgate::{MemoryStore, Outage, test_util::FaultyStore};
use tollgate_envoy::{
    RateLimitService,
    proto::{
        kuadrant::{
            CommitRequest, ReserveRequest, rate_limit_service_client::RateLimitServiceClient,
        },
        ratelimit::{RateLimitDescriptor, RateLimitRequest, rate_limit_response::Code},
    },
};
use tollgate_rules::{Compat, RuleLimiter};
use tollgate_tests::{PostgresServer, Process, RedisServer, no_server};
use tonic::{Code as Grpc, Status, transport::Channel};

use crate::{
    program::{Files, channel, command, start, until_healthy},
    support::{Running, descriptor, limiter, request, rules},
};

/// Tokens of a model: each user has 1000 a day, and a tier 100 an hour.
const RULES: &str = "
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: tier, value: trial, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: tier, value: closed, rate_limit: {unit: hour, requests_per_unit: 0}}
";

fn user(name: &str) -> Vec<RateLimitDescriptor> {
    vec![descriptor("user", name)]
}

fn trial(name: &str) -> Vec<RateLimitDescriptor> {
    vec![descriptor("user", name), descriptor("tier", "trial")]
}

/// A gateway with a connection of its own.
#[derive(Clone)]
struct Gateway(RateLimitServiceClient<Channel>);

impl Gateway {
    async fn of(server: &Running) -> Self {
        Self(RateLimitServiceClient::new(server.channel().await))
    }

    async fn reserve(
        &self,
        descriptors: Vec<RateLimitDescriptor>,
        amount: u64,
    ) -> Result<(Code, String), Status> {
        let asked = ReserveRequest {
            domain: "shop".to_owned(),
            descriptors,
            amount,
            ttl: None,
        };
        let held = self.0.clone().reserve(asked).await?.into_inner();
        Ok((held.code(), held.reservation_id))
    }

    /// Reserves what is admitted, and returns its id.
    async fn hold(&self, descriptors: Vec<RateLimitDescriptor>, amount: u64) -> String {
        let (code, id) = self.reserve(descriptors, amount).await.unwrap();
        assert!(code == Code::Ok && !id.is_empty(), "{code:?} {id:?}");
        id
    }

    async fn commit(
        &self,
        descriptors: Vec<RateLimitDescriptor>,
        id: &str,
        actual_amount: u64,
    ) -> Result<bool, Status> {
        let commit = CommitRequest {
            domain: "shop".to_owned(),
            descriptors,
            reservation_id: id.to_owned(),
            actual_amount,
        };
        let answer = self.0.clone().commit(commit).await?;
        Ok(answer.into_inner().reservation_released)
    }

    async fn report(&self, request: RateLimitRequest) -> Result<Code, Status> {
        let answer = self.0.clone().report(request).await?;
        Ok(answer.into_inner().overall_code())
    }

    /// Returns whether a request would pass, and what each descriptor has left.
    async fn check(&self, descriptors: Vec<RateLimitDescriptor>) -> (Code, Vec<u32>) {
        let asked = request(descriptors);
        let answer = self
            .0
            .clone()
            .check_rate_limit(asked)
            .await
            .unwrap()
            .into_inner();
        let left = answer.statuses.iter().map(|status| status.limit_remaining);
        (answer.overall_code(), left.collect())
    }
}

async fn running(mode: Compat) -> (Running, Gateway) {
    let server = Running::start(RateLimitService::new(limiter(RULES, mode))).await;
    let gateway = Gateway::of(&server).await;
    (server, gateway)
}

const MODES: [Compat; 2] = [Compat::Native, Compat::Envoy];

#[tokio::test]
async fn a_gateway_reserves_before_a_request_and_settles_after_it() {
    for mode in MODES {
        let (_server, gateway) = running(mode).await;
        let id = gateway.hold(trial("ann"), 80).await;
        assert_eq!(gateway.check(trial("ann")).await, (Code::Ok, vec![920, 20]));
        // The trial has too little left, and the user is charged nothing.
        let denied = gateway.reserve(trial("ann"), 30).await.unwrap();
        assert_eq!(denied, (Code::OverLimit, String::new()), "{mode}");
        assert_eq!(gateway.check(trial("ann")).await, (Code::Ok, vec![920, 20]));

        assert!(
            gateway.commit(trial("ann"), &id, 15).await.unwrap(),
            "{mode}"
        );
        assert_eq!(gateway.check(trial("ann")).await, (Code::Ok, vec![985, 85]));
        // A call that is sent again changes nothing.
        assert!(
            !gateway.commit(trial("ann"), &id, 15).await.unwrap(),
            "{mode}"
        );
        assert_eq!(gateway.check(trial("ann")).await, (Code::Ok, vec![985, 85]));
        gateway.hold(trial("ann"), 85).await;
    }
}

#[tokio::test]
async fn requests_at_the_same_time_do_not_race_past_a_limit() {
    for mode in MODES {
        let (_server, gateway) = running(mode).await;
        // A check that charges nothing admits all of them.
        let checks = join_all((0..40).map(|_| gateway.check(trial("ann")))).await;
        assert!(checks.iter().all(|(code, _)| *code == Code::Ok));
        let asked = join_all((0..40).map(|_| gateway.reserve(trial("ann"), 30))).await;
        let passed = asked
            .iter()
            .filter(|held| held.as_ref().unwrap().0 == Code::Ok);
        let ids: Vec<_> = passed
            .map(|held| held.as_ref().unwrap().1.clone())
            .collect();
        assert_eq!(ids.len(), 3, "{mode}");
        assert_eq!(
            gateway.check(trial("ann")).await,
            (Code::Ok, vec![910, 10]),
            "{mode}"
        );
        let commits = ids.iter().map(|id| gateway.commit(trial("ann"), id, 7));
        assert!(
            join_all(commits)
                .await
                .into_iter()
                .all(|found| found.unwrap())
        );
        assert_eq!(
            gateway.check(trial("ann")).await,
            (Code::Ok, vec![979, 79]),
            "{mode}"
        );
    }
}

#[tokio::test]
async fn a_commit_that_finds_nothing_is_a_report() {
    for mode in MODES {
        let (_server, gateway) = running(mode).await;
        for id in [
            "",
            "never-made",
            "ein Name mit Leerzeichen, länger als jede Kennung, die der Dienst vergibt",
        ] {
            assert!(
                !gateway.commit(user("ann"), id, 10).await.unwrap(),
                "{id:?}"
            );
        }
        assert_eq!(
            gateway.check(user("ann")).await,
            (Code::Ok, vec![970]),
            "{mode}"
        );
        // A reservation of another user is not found.
        let id = gateway.hold(user("ann"), 100).await;
        assert!(
            !gateway.commit(user("bob"), &id, 10).await.unwrap(),
            "{mode}"
        );
        assert_eq!(
            gateway.check(user("bob")).await,
            (Code::Ok, vec![990]),
            "{mode}"
        );
        assert_eq!(
            gateway.check(user("ann")).await,
            (Code::Ok, vec![870]),
            "{mode}"
        );
        assert!(gateway.commit(user("ann"), &id, 0).await.unwrap(), "{mode}");
        assert_eq!(
            gateway.check(user("ann")).await,
            (Code::Ok, vec![970]),
            "{mode}"
        );
    }
}

#[tokio::test]
async fn a_report_charges_what_was_spent_and_a_debt_is_waited_for() {
    for mode in MODES {
        let (_server, gateway) = running(mode).await;
        let mut spent = request(trial("ann"));
        assert_eq!(gateway.report(spent.clone()).await.unwrap(), Code::Ok);
        assert_eq!(
            gateway.check(trial("ann")).await,
            (Code::Ok, vec![999, 99]),
            "{mode}"
        );
        spent.hits_addend = 150;
        assert_eq!(
            gateway.report(spent.clone()).await.unwrap(),
            Code::Ok,
            "{mode}"
        );
        assert_eq!(
            gateway.check(trial("ann")).await,
            (Code::OverLimit, vec![849, 0]),
            "{mode}"
        );
        let denied = gateway.reserve(trial("ann"), 0).await.unwrap();
        assert_eq!(denied, (Code::OverLimit, String::new()), "{mode}");

        // A descriptor may give units back.
        spent.descriptors.truncate(1);
        spent.descriptors[0].is_negative_hits = true;
        assert_eq!(gateway.report(spent).await.unwrap(), Code::Ok, "{mode}");
        assert_eq!(
            gateway.check(user("ann")).await,
            (Code::Ok, vec![999]),
            "{mode}"
        );
    }
}

#[tokio::test]
async fn an_amount_above_a_limit_reserves_the_limit() {
    let (_server, gateway) = running(Compat::Native).await;
    let id = gateway.hold(trial("ann"), 5_000).await;
    assert_eq!(
        gateway.check(trial("ann")).await,
        (Code::OverLimit, vec![0, 0])
    );
    assert!(gateway.commit(trial("ann"), &id, 60).await.unwrap());
    assert_eq!(gateway.check(trial("ann")).await, (Code::Ok, vec![940, 40]));
}

#[tokio::test]
async fn a_commit_after_the_time_of_the_gateway_still_settles() {
    let (_server, gateway) = running(Compat::Native).await;
    for (seconds, nanos) in [(0, 0), (0, 1), (i64::from(u32::MAX), 0)] {
        let asked = ReserveRequest {
            domain: "shop".to_owned(),
            descriptors: user("ann"),
            amount: 500,
            ttl: Some(prost_types::Duration { seconds, nanos }),
        };
        let held = gateway.0.clone().reserve(asked).await.unwrap().into_inner();
        assert_eq!(held.code(), Code::Ok);
        // More than a millisecond has passed, the shortest time that a store keeps a reservation.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        assert!(
            gateway
                .commit(user("ann"), &held.reservation_id, 0)
                .await
                .unwrap()
        );
    }
    assert_eq!(gateway.check(user("ann")).await, (Code::Ok, vec![1_000]));
}

#[tokio::test]
async fn descriptors_without_a_limit_pass_and_a_closed_one_does_not() {
    let (_server, gateway) = running(Compat::Native).await;
    // Kuadrant sends a descriptor without entries where its conditions do not hold.
    let nothing = vec![RateLimitDescriptor::default(), descriptor("other", "x")];
    let id = gateway.hold(nothing.clone(), 5).await;
    assert!(!gateway.commit(nothing, &id, 5).await.unwrap());
    let closed = vec![descriptor("user", "ann"), descriptor("tier", "closed")];
    let denied = gateway.reserve(closed.clone(), 5).await.unwrap();
    assert_eq!(denied, (Code::OverLimit, String::new()));
    assert_eq!(gateway.check(closed).await.0, Code::OverLimit);
    assert_eq!(gateway.check(user("ann")).await, (Code::Ok, vec![1_000]));
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Grpc, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn a_wrong_call_is_an_invalid_argument_that_names_its_field() {
    let (server, gateway) = running(Compat::Native).await;
    let wrong = |message: &str| (Grpc::InvalidArgument, message.to_owned());
    let empty = "rate limit descriptor list must not be empty";
    assert_eq!(refusal(gateway.reserve(vec![], 1).await), wrong(empty));
    assert_eq!(refusal(gateway.commit(vec![], "id", 1).await), wrong(empty));
    assert_eq!(refusal(gateway.report(request([])).await), wrong(empty));
    let huge = "amount must be at most 999999999999999, got 18446744073709551615";
    assert_eq!(
        refusal(gateway.reserve(user("ann"), u64::MAX).await),
        wrong(huge)
    );
    let huge = "actual_amount must be at most 999999999999999, got 1000000000000000";
    let most = 1_000_000_000_000_000;
    assert_eq!(
        refusal(gateway.commit(user("ann"), "id", most).await),
        wrong(huge)
    );

    let mut own = user("ann");
    own[0].hits_addend = Some(3);
    let field =
        "descriptors[0].hits_addend must not be set: amount has the units of every descriptor";
    assert_eq!(refusal(gateway.reserve(own.clone(), 1).await), wrong(field));
    own[0].is_negative_hits = true;
    let field = "descriptors[0].is_negative_hits must not be set: actual_amount has the units of every descriptor";
    assert_eq!(refusal(gateway.commit(own, "id", 1).await), wrong(field));

    let mut asked = ReserveRequest {
        domain: "shop".to_owned(),
        descriptors: user("ann"),
        amount: 1,
        ttl: Some(prost_types::Duration {
            seconds: -2,
            nanos: 0,
        }),
    };
    let refused = gateway.0.clone().reserve(asked.clone()).await;
    assert_eq!(refusal(refused), wrong("ttl must not be negative, got -2s"));
    (asked.domain, asked.ttl) = (String::new(), None);
    let refused = gateway.0.clone().reserve(asked).await;
    assert_eq!(
        refusal(refused),
        wrong("rate limit domain must not be empty")
    );

    // Nothing was charged.
    assert_eq!(gateway.check(user("ann")).await, (Code::Ok, vec![1_000]));
    drop(server);
}

#[tokio::test]
async fn calls_before_the_rules_and_in_an_outage_are_unavailable() {
    let store = FaultyStore::new(MemoryStore::new());
    let limiter = RuleLimiter::builder(rules(RULES, Compat::Native), store.clone())
        .on_outage(Outage::Closed)
        .build();
    let server = Running::start(RateLimitService::new(limiter)).await;
    let gateway = Gateway::of(&server).await;
    let id = gateway.hold(user("ann"), 10).await;
    store.fail();
    assert_eq!(
        refusal(gateway.reserve(user("ann"), 1).await).0,
        Grpc::Unavailable
    );
    assert_eq!(
        refusal(gateway.commit(user("ann"), &id, 1).await).0,
        Grpc::Unavailable
    );
    assert_eq!(
        refusal(gateway.report(request(user("ann"))).await).0,
        Grpc::Unavailable
    );
    store.recover();
    // The commit is repeated by the service or by the gateway, and counts once.
    let _ = gateway.commit(user("ann"), &id, 1).await.unwrap();
    assert_eq!(gateway.check(user("ann")).await, (Code::Ok, vec![999]));
}

#[tokio::test]
async fn one_replica_settles_what_another_one_has_reserved() {
    if no_server() {
        return;
    }
    let (files, redis, postgres) = (Files::new(), RedisServer::start(), PostgresServer::start());
    let file = files.write("rules.yaml", RULES);
    let in_postgres = postgres.url() + "&create=unlogged";
    for url in [redis.url(), in_postgres] {
        let serve = || {
            let mut command = command();
            command.arg("--rules").arg(&file).args(["--store", &url]);
            start(command)
        };
        let replicas: [Process; 2] = [serve(), serve()];
        let mut gateways = Vec::new();
        for replica in &replicas {
            until_healthy(replica).await;
            gateways.push(Gateway(RateLimitServiceClient::new(channel(replica).await)));
        }
        let [first, second] = &*gateways else {
            unreachable!("there are two replicas")
        };
        let both = || [first, second].into_iter().cycle().take(40);
        let asked = join_all(both().map(|gateway| gateway.reserve(trial("ann"), 30))).await;
        let ids: Vec<_> = asked.into_iter().map(Result::unwrap).collect();
        let ids: Vec<_> = ids.iter().filter(|(code, _)| *code == Code::Ok).collect();
        assert_eq!(ids.len(), 3, "{url}");
        assert_eq!(
            second.check(trial("ann")).await,
            (Code::Ok, vec![910, 10]),
            "{url}"
        );
        // Each is settled by both at the same time, and counts once.
        for (_, id) in ids {
            let settled =
                join_all([first, second].map(|one| one.commit(trial("ann"), id, 7))).await;
            let found = settled.into_iter().filter(|found| *found.as_ref().unwrap());
            assert_eq!(found.count(), 1, "{url}");
        }
        assert_eq!(
            first.check(trial("ann")).await,
            (Code::Ok, vec![979, 79]),
            "{url}"
        );
        assert!(
            !second
                .commit(trial("ann"), "never-made", 500)
                .await
                .unwrap(),
            "{url}"
        );
        assert_eq!(
            first.check(trial("ann")).await,
            (Code::OverLimit, vec![479, 0]),
            "{url}"
        );
    }
}
