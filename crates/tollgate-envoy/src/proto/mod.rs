//! Contains the messages of the protocols of Envoy and of Kuadrant that the service uses.
//!
//! The generated code is committed, so that only cargo is needed to build it. A test generates it
//! again and compares.

// Only names are given to generated code here. Messages get their meaning in `service/` and `ads/`.

#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic, clippy::nursery, reason = "generated")]
#[rustfmt::skip]
mod generated;

/// An encoded `FileDescriptorSet` of all messages, for reflection and for the JSON form.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// Contains the messages and the service of rate limits.
pub mod ratelimit {
    pub use super::generated::envoy::{
        config::core::v3::HeaderValue,
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor},
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse, rate_limit_response, rate_limit_service_client,
            rate_limit_service_server,
        },
        r#type::v3::RateLimitUnit,
    };
}

/// Contains the messages and the service of costs that are known later, which are Kuadrant's.
pub mod kuadrant {
    pub use super::generated::kuadrant::service::ratelimit::v1::{
        CommitRequest, CommitResponse, ReserveRequest, ReserveResponse, rate_limit_service_client,
        rate_limit_service_server,
    };
}

/// Contains the messages and the service by which a control plane sends resources.
pub mod discovery {
    pub use super::generated::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{
                DiscoveryRequest, DiscoveryResponse, aggregated_discovery_service_client,
                aggregated_discovery_service_server,
            },
        },
        google::rpc::Status,
    };
}

/// Contains the messages in which a control plane sends rules.
pub mod config {
    pub use super::generated::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
    };
}
