//! Finds the key of a gRPC call: calls with the same key share a quota.
//!
//! All extractors of [`tollgate_tower::key`] work here as well. [`PeerIp`] and [`ForwardedIp`] work
//! with TLS and without.
//!
//! | extractor | key |
//! |---|---|
//! | [`PeerIp`] | the IP address of the other end of the connection |
//! | [`ForwardedIp`] | the IP address of the client in front of your proxies |
//! | [`Metadata`] | the value of a metadata entry, for example an API key |
//! | [`Bearer`] | the token of the entry `authorization`, digested |
//! | `ClientCertificate` (feature `client-certificate`) | the subject of the client's TLS certificate |
//! | [`RpcMethod`], [`RpcService`] | the called method or service: one quota for all clients, unless it stands in a tuple |
//!
//! A tuple of extractors joins their keys:
//!
//! ```
//! use http::Request;
//! use tollgate::Key;
//! use tollgate_tonic::key::{Metadata, RpcMethod};
//! use tollgate_tower::KeyExtractor;
//!
//! // Each API key has a separate quota for each method.
//! let key = (Metadata::new("x-api-key"), RpcMethod);
//!
//! let call = Request::post("/helloworld.Greeter/SayHello").header("x-api-key", "acme").body(()).unwrap();
//! let found = key.extract(&call.into_parts().0).unwrap().unwrap();
//! assert_eq!(found, Key::from((Key::new("acme"), Key::new("/helloworld.Greeter/SayHello"))));
//! ```

// Extractors that read what only gRPC has are here. Those that HTTP has too are re-exported from
// tollgate-tower.

#[cfg(feature = "client-certificate")]
mod certificate;
mod metadata;
mod method;
mod request;

#[cfg(feature = "client-certificate")]
pub use certificate::ClientCertificate;
pub use metadata::Metadata;
pub use method::{RpcMethod, RpcService};
pub(crate) use request::RequestHead;
pub use request::key_of;
pub use tollgate_tower::key::{
    Bearer, ForwardedIp, Network, NetworkError, PeerIp, PeerNetwork, Prefixes, TrustedProxies,
};
