//! Rules from a control plane.

use std::{pin::Pin, time::Duration};

use prost::Message;
use prost_types::{Any, Struct, Value, value::Kind};
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::UnboundedReceiverStream};
use tollgate_envoy::{
    Ads, Backoff,
    proto::{
        config::{
            RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
        },
        discovery::{
            DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_server::{
                AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
            },
        },
    },
};
use tollgate_rules::{Descriptor, RuleSet, Rules};
use tollgate_tests::Log;
use tonic::{Request, Response, Status, Streaming, transport::server::TcpIncoming};

const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// One stream of a client, as the control plane has it.
pub(crate) struct Client {
    requests: Streaming<DiscoveryRequest>,
    responses: mpsc::UnboundedSender<Result<DiscoveryResponse, Status>>,
    authorization: Option<String>,
}

impl Client {
    pub(crate) async fn request(&mut self) -> DiscoveryRequest {
        let next = tokio::time::timeout(crate::support::LIMIT, self.requests.message());
        next.await
            .expect("a request in time")
            .unwrap()
            .expect("an open stream")
    }

    pub(crate) fn send(&self, version: &str, resources: Vec<Any>) {
        self.send_typed(TYPE_URL, version, resources);
    }

    fn send_typed(&self, type_url: &str, version: &str, resources: Vec<Any>) {
        let response = DiscoveryResponse {
            version_info: version.to_owned(),
            resources,
            type_url: type_url.to_owned(),
            nonce: format!("nonce of {version}"),
        };
        self.responses.send(Ok(response)).unwrap();
    }
}

struct Service(mpsc::UnboundedSender<Client>);

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream =
        Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let authorization = request
            .metadata()
            .get("authorization")
            .map(|value| value.to_str().unwrap().to_owned());
        let (responses, outgoing) = mpsc::unbounded_channel();
        self.0
            .send(Client {
                requests: request.into_inner(),
                responses,
                authorization,
            })
            .unwrap();
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(
            outgoing,
        ))))
    }
}

/// A tiny control plane.
pub(crate) struct Plane {
    pub(crate) address: std::net::SocketAddr,
    clients: mpsc::UnboundedReceiver<Client>,
}

impl Plane {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, clients) = mpsc::unbounded_channel();
        let server = tonic::transport::Server::builder()
            .add_service(AggregatedDiscoveryServiceServer::new(Service(sender)));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        Self { address, clients }
    }

    /// Waits for the next stream.
    pub(crate) async fn client(&mut self) -> Client {
        tokio::time::timeout(crate::support::LIMIT, self.clients.recv())
            .await
            .expect("a client in time")
            .unwrap()
    }
}

pub(crate) fn resource(config: &RateLimitConfig) -> Any {
    Any {
        type_url: TYPE_URL.to_owned(),
        value: config.encode_to_vec(),
    }
}

/// Returns the rules of a domain with one limit for each tenant.
pub(crate) fn config(domain: &str, requests_per_unit: u32, unit: RateLimitUnit) -> RateLimitConfig {
    let policy = RateLimitPolicy {
        unit: unit.into(),
        requests_per_unit,
        ..RateLimitPolicy::default()
    };
    let tenant = RateLimitDescriptor {
        key: "tenant".to_owned(),
        rate_limit: Some(policy),
        ..RateLimitDescriptor::default()
    };
    RateLimitConfig {
        name: format!("rules of {domain}"),
        domain: domain.to_owned(),
        descriptors: vec![tenant],
    }
}

fn start(plane: &Plane) -> Rules {
    let rules = Rules::empty(RuleSet::builder(), None);
    let wait = Duration::from_millis(1);
    let ads = Ads::new(plane.address.to_string())
        .node_id("replica 7")
        .node_metadata(vec![("zone".to_owned(), "a".to_owned())])
        .headers(vec![("authorization".to_owned(), "secret".to_owned())])
        .backoff(Backoff {
            initial: wait,
            max: wait,
            jitter: 0.0,
        });
    tokio::spawn(ads.run(rules.clone()));
    rules
}

fn limit(rules: &Rules, domain: &str) -> Option<u64> {
    let descriptor = Descriptor::from([("tenant", "acme")]);
    rules
        .current()
        .find(domain, &descriptor)?
        .rule()
        .amount()
        .map(|(requests, _)| requests)
}

#[tokio::test]
async fn a_version_that_forges_a_line_is_escaped_and_cut_in_the_log_and_confirmed_whole() {
    let (log, _guard) = Log::of_this_thread();
    let mut plane = Plane::start().await;
    let rules = start(&plane);
    let mut client = plane.client().await;
    client.request().await;
    let version = format!("1\u{1b}[2J\nforged {}", "x".repeat(1_000_000));
    client.send_typed(&version, &version, Vec::new());
    client.send(
        &version,
        vec![resource(&config("shop", 5, RateLimitUnit::Day))],
    );
    assert_eq!(client.request().await.version_info, version);
    assert_eq!(limit(&rules, "shop"), Some(5));
    let text = log.text();
    for words in ["loaded from the control plane", "not asked for"] {
        let lines = text.lines().filter(|line| line.contains(words));
        assert_eq!(lines.count(), 1, "{words}");
    }
    assert_eq!(text.matches("1\\u{1b}[2J\\nforged x").count(), 2);
    assert!(!text.contains('\u{1b}') && text.len() < 10_000);
}

#[tokio::test]
async fn rules_are_accepted_or_refused_with_the_reason() {
    let mut plane = Plane::start().await;
    let rules = start(&plane);
    let mut client = plane.client().await;
    assert_eq!(client.authorization.as_deref(), Some("secret"));
    let first = client.request().await;
    assert_eq!(
        (
            first.type_url.as_str(),
            first.version_info.as_str(),
            first.error_detail
        ),
        (TYPE_URL, "", None)
    );
    let node = first.node.unwrap();
    let zone = Value {
        kind: Some(Kind::StringValue("a".to_owned())),
    };
    assert_eq!(
        (node.id.as_str(), &node.metadata.unwrap().fields["zone"]),
        ("replica 7", &zone)
    );
    assert_eq!(rules.loads().succeeded, 0);

    let day = RateLimitUnit::Day;
    client.send(
        "1",
        vec![
            resource(&config("shop", 5, day)),
            resource(&config("bank", 6, day)),
        ],
    );
    let accepted = client.request().await;
    assert_eq!(
        (
            accepted.version_info.as_str(),
            accepted.response_nonce.as_str()
        ),
        ("1", "nonce of 1")
    );
    assert_eq!(accepted.error_detail, None);
    assert_eq!(
        (limit(&rules, "shop"), limit(&rules, "bank")),
        (Some(5), Some(6))
    );

    // All or nothing: the right resource beside the wrong one is not in force.
    client.send(
        "2",
        vec![
            resource(&config("shop", 9, day)),
            resource(&config("bank", 6, RateLimitUnit::Unknown)),
        ],
    );
    let refused = client.request().await;
    assert_eq!(
        (
            refused.version_info.as_str(),
            refused.response_nonce.as_str()
        ),
        ("1", "nonce of 2")
    );
    let reason = refused.error_detail.unwrap().message;
    assert!(
        reason.contains("rules of bank") && reason.contains("rate_limit.unit"),
        "{reason}"
    );
    assert_eq!((limit(&rules, "shop"), rules.loads().failed), (Some(5), 1));

    let twice = config("shop", 9, day);
    let damaged = Any {
        type_url: TYPE_URL.to_owned(),
        value: vec![0xff],
    };
    let foreign = Any {
        type_url: "type.googleapis.com/other".to_owned(),
        value: Vec::new(),
    };
    for resources in [
        vec![resource(&twice), resource(&twice)],
        vec![damaged],
        vec![foreign],
    ] {
        client.send("3", resources);
        assert!(client.request().await.error_detail.is_some());
        assert_eq!(limit(&rules, "shop"), Some(5));
    }

    // Resources of another type are not answered. The next answer is that to the next rules.
    client.send_typed("type.googleapis.com/other", "4", Vec::new());
    client.send("5", vec![resource(&config("shop", 7, day))]);
    assert_eq!(client.request().await.version_info, "5");
    assert_eq!(
        (limit(&rules, "shop"), limit(&rules, "bank")),
        (Some(7), None)
    );
}

#[tokio::test]
async fn rules_stay_while_the_control_plane_is_away() {
    let mut plane = Plane::start().await;
    let rules = start(&plane);
    let mut client = plane.client().await;
    client.request().await;
    client.send("1", vec![resource(&config("shop", 5, RateLimitUnit::Week))]);
    client.request().await;
    drop(client);
    let mut again = plane.client().await;
    let first = again.request().await;
    assert_eq!(
        (first.version_info.as_str(), first.response_nonce.as_str()),
        ("1", "")
    );
    assert_eq!(limit(&rules, "shop"), Some(5));
    again.send("2", vec![resource(&config("shop", 6, RateLimitUnit::Week))]);
    assert_eq!(again.request().await.version_info, "2");
    assert_eq!(limit(&rules, "shop"), Some(6));
}

#[tokio::test]
async fn every_field_of_a_rule_arrives() {
    let mut plane = Plane::start().await;
    let rules = start(&plane);
    let mut client = plane.client().await;
    client.request().await;
    let policy = |name: &str, replaces: &[&str]| RateLimitPolicy {
        unit: RateLimitUnit::Minute.into(),
        requests_per_unit: 3,
        name: name.to_owned(),
        replaces: replaces
            .iter()
            .map(|name| RateLimitReplace {
                name: (*name).to_owned(),
            })
            .collect(),
        unlimited: false,
    };
    let tier = Value {
        kind: Some(Kind::StringValue("gold".to_owned())),
    };
    let inner = RateLimitDescriptor {
        key: "route".to_owned(),
        value: "/export*".to_owned(),
        rate_limit: Some(policy("inner", &["outer"])),
        shadow_mode: true,
        quota_mode: true,
        detailed_metric: true,
        metadata: Some(Struct {
            fields: [("tier".to_owned(), tier)].into(),
        }),
        ..RateLimitDescriptor::default()
    };
    let free = RateLimitDescriptor {
        key: "free".to_owned(),
        rate_limit: Some(RateLimitPolicy {
            unlimited: true,
            ..RateLimitPolicy::default()
        }),
        ..RateLimitDescriptor::default()
    };
    let outer = RateLimitDescriptor {
        key: "tenant".to_owned(),
        rate_limit: Some(policy("outer", &[])),
        descriptors: vec![inner],
        ..RateLimitDescriptor::default()
    };
    let config = RateLimitConfig {
        name: "all".to_owned(),
        domain: "shop".to_owned(),
        descriptors: vec![outer, free],
    };
    client.send("1", vec![resource(&config)]);
    assert_eq!(client.request().await.error_detail, None);
    let set = rules.current();
    let descriptor = Descriptor::from([("tenant", "a"), ("route", "/export/all")]);
    let found = set.find("shop", &descriptor).unwrap();
    let rule = found.rule();
    assert_eq!(
        (rule.name(), rule.amount()),
        (Some("inner"), Some((3, Duration::from_secs(60))))
    );
    assert!(rule.is_shadow() && rule.is_quota());
    assert_eq!(rule.replaces().collect::<Vec<_>>(), ["outer"]);
    assert_eq!(found.metric_name(), "shop.tenant_a.route_/export/all");
    assert_eq!(rule.metadata().unwrap()["tier"], "gold");
    assert!(
        set.find("shop", &Descriptor::from([("free", "x")]))
            .unwrap()
            .rule()
            .amount()
            .is_none()
    );
}
