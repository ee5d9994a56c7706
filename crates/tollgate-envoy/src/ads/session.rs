//! The conversation on one stream: which version is accepted or refused, and what the next request
//! says.
//! Nothing here connects or waits: that is in `client.rs`.

use prost_types::{Struct, Value, value::Kind};
use tollgate::ForeignText;
use tollgate_rules::{RuleSetBuilder, Rules};

use super::rules::{TYPE_URL, rule_set};
use crate::proto::discovery::{DiscoveryRequest, DiscoveryResponse, Node, Status};

/// The number of the gRPC code `INVALID_ARGUMENT`.
const INVALID_ARGUMENT: i32 = 3;

/// Answers the responses of one stream.
pub(super) struct Session {
    options: RuleSetBuilder,
    rules: Rules,
    node: Node,
    /// The version that is in force.
    version: String,
    has_rules: bool,
}

impl Session {
    /// Creates the conversation of a stream. `version` is in force before it.
    pub(super) fn new(node: Node, options: RuleSetBuilder, rules: Rules, version: String) -> Self {
        Self {
            options,
            rules,
            node,
            version,
            has_rules: false,
        }
    }

    /// Returns whether the stream has brought rules that are in force.
    pub(super) fn has_rules(&self) -> bool {
        self.has_rules
    }

    pub(super) fn into_version(self) -> String {
        self.version
    }

    /// Returns the first request of the stream.
    pub(super) fn first(&self) -> DiscoveryRequest {
        self.request(String::new())
    }

    /// Puts the rules of a response in force, or refuses them. Returns the answer to the control
    /// plane.
    pub(super) fn answer(&mut self, response: DiscoveryResponse) -> Option<DiscoveryRequest> {
        if response.type_url != TYPE_URL {
            tracing::warn!(
                type_url = %ForeignText(&response.type_url),
                "the control plane sent resources that were not asked for"
            );
            return None;
        }
        match rule_set(&self.options, &response.resources, &self.rules) {
            Ok(set) => {
                let rules = set.rules().count();
                self.rules.replace(set);
                self.version = response.version_info;
                self.has_rules = true;
                tracing::info!(
                    version = %ForeignText(&self.version),
                    rules,
                    "rate limit rules were loaded from the control plane"
                );
                Some(self.request(response.nonce))
            }
            Err(reason) => {
                let error_detail = Some(Status {
                    code: INVALID_ARGUMENT,
                    message: reason,
                });
                Some(DiscoveryRequest {
                    error_detail,
                    ..self.request(response.nonce)
                })
            }
        }
    }

    fn request(&self, nonce: String) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: Some(self.node.clone()),
            type_url: TYPE_URL.to_owned(),
            response_nonce: nonce,
            ..DiscoveryRequest::default()
        }
    }
}

/// Describes this service to a control plane.
pub(super) fn node(id: &str, metadata: &[(String, String)]) -> Node {
    let fields = metadata.iter().map(|(name, value)| {
        let value = Value {
            kind: Some(Kind::StringValue(value.clone())),
        };
        (name.clone(), value)
    });
    Node {
        id: id.to_owned(),
        metadata: Some(Struct {
            fields: fields.collect(),
        }),
        user_agent_name: "tollgate-envoy".to_owned(),
        user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Node::default()
    }
}
