//! Extractors that find the [`Key`](tollgate_core::Key) of a request: each layer needs one.
//!
//! Requests with the same key share a quota. There is no default extractor. Choose one. Its page
//! says how a client could avoid the limit. An extractor that asks for nothing is written by its
//! name alone. One that asks for something has a constructor that takes it:
//!
//! | extractor | requests with the same quota |
//! |---|---|
//! | [`PeerIp`] | from the same address at the other end of the connection |
//! | [`ForwardedIp`] | from the same client address in front of trusted proxies |
//! | [`Header`] | with the same value of a header, such as an API key |
//! | [`Bearer`] | with the same token in `Authorization` |
//! | [`FromExtension`] | with the same value, such as a user, that an outer layer has inserted |
//! | [`RequestMethod`], [`RequestPath`], `MatchedRoute` | with the same method, path or route; mostly in a tuple with another extractor |
//! | [`Global`] | all requests |
//! | [`key_fn`] | with the same result of a closure |
//!
//! With [`Prefixes`], `PeerIp` and `ForwardedIp` return nested keys: use them against clients that
//! own a large network. [`Networks`] lists networks that are never limited, or never served.
//!
//! ```
//! use http::Request;
//! use tollgate::Key;
//! use tollgate_tower::{KeyExtractor, key::{Global, Header}};
//!
//! let by_api_key = Header::new("x-api-key").or(Global);
//! let key = |request: Request<()>| by_api_key.extract(&request.into_parts().0).unwrap();
//! let request = Request::builder().header("x-api-key", "acme");
//! assert_eq!(key(request.body(()).unwrap()), Some(Key::new("acme")));
//! assert_eq!(key(Request::new(())), Some(Key::new("all"))); // `Global` has one key for all.
//! ```
//!
//! To combine extractors:
//!
//! - A tuple of extractors joins their keys into one key. Put an extractor of nested keys first or
//!   last.
//! - [`KeyExtractor::with_branch`] puts two keys side by side, each with policies of its own.
//! - [`KeyExtractor::or`] tries a second extractor when the first finds no key.
//! - [`KeyExtractor::or_exempt`] exempts requests without a key from the limit.
//! - [`KeyExtractor::or_status`] and [`KeyExtractor::or_unauthorized`] set the status of requests
//!   without a key, which is 400 by default.

// Extractors for HTTP, and what they are made of. Those that only gRPC has are in tollgate-tonic;
// the key itself is a type of the core.

mod bearer;
mod extension;
mod extractor;
mod forwarded;
mod function;
mod global;
mod header;
mod network;
mod networks;
mod peer;
mod prefixes;
mod route;

#[cfg(test)]
mod tests;

pub use bearer::Bearer;
pub use extension::{ExtensionKey, FromExtension};
pub use extractor::{
    BoxedKey, EXEMPT, Extraction, ExtractorOf, KeyError, KeyErrorKind, KeyExtractor, Or, OrExempt,
    OrStatus, WithBranch,
};
pub use forwarded::{ForwardedIp, TrustedProxies};
pub use function::{IntoExtraction, KeyFn, key_fn};
pub use global::Global;
pub use header::Header;
pub use network::{Network, NetworkError};
pub use networks::{NetworkVerdict, Networks};
pub use peer::{PeerIp, PeerNetwork};
pub use prefixes::Prefixes;
#[cfg(feature = "axum")]
pub use route::MatchedRoute;
pub use route::{RequestMethod, RequestPath};
