//! Who is limited: extractors for gRPC calls. Those of [`tollgate_tower::key`] work here as well,
//! [`PeerIp`] and [`ForwardedIp`](tollgate_tower::key::ForwardedIp) with and without TLS.
//!
//! | extractor | whose quota is spent |
//! |---|---|
//! | [`PeerIp`] | the other end of the connection's |
//! | [`Metadata`] | whoever sends this value, an API key for example |
//! | [`ClientCertificate`] | the subject of the certificate that the client showed |
//! | [`Method`], [`Service`] | everybody's who calls it; in a tuple, each caller's for it |
//!
//! ```
//! use tollgate_tonic::key::{Metadata, Method};
//!
//! // Each API key has the quota for each method by itself.
//! let key = (Metadata::new("x-api-key"), Method);
//! # let _: &dyn tollgate_tower::KeyExtractor = &key;
//! ```

mod certificate;
mod head;
mod metadata;
mod path;

pub use certificate::ClientCertificate;
pub(crate) use head::Head;
pub use head::key_of;
pub use metadata::Metadata;
pub use path::{Method, Service};
pub use tollgate_tower::key::PeerIp;
