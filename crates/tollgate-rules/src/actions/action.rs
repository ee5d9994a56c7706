//! One list of actions: what each reads of a request, and the entry that it makes.
//! How a file writes actions is in `compile/actions.rs`. The descriptors of a request are gathered
//! in `descriptors.rs`.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::{HeaderMap, HeaderName, request::Parts};
use tollgate_tower::key::{ForwardedIp, KeyError, PeerIp};

use super::RequestPart;
use crate::Descriptor;

/// A list of actions that make one descriptor from a request: one entry for each action, in order.
///
/// When an action finds no value, the request has no such descriptor, unless the action is
/// optional.
///
/// ```
/// use http::Request;
/// use tollgate_rules::{Actions, ClientIp, Descriptor, Descriptors};
///
/// let descriptors = Descriptors::from(Actions::new().header("x-tenant", "tenant").path("path"));
///
/// let (parts, ()) = Request::get("http://example.com/export").header("x-tenant", "acme").body(()).unwrap().into_parts();
/// let made = descriptors.extract(&parts, &ClientIp::Peer).unwrap();
/// assert_eq!(made, [Descriptor::from([("tenant", "acme"), ("path", "/export")])]);
///
/// let (parts, ()) = Request::get("http://example.com/export").body(()).unwrap().into_parts();
/// assert_eq!(descriptors.extract(&parts, &ClientIp::Peer).unwrap(), []);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Actions {
    actions: Vec<Action>,
}

#[derive(Clone, Debug)]
struct Action {
    key: Box<str>,
    source: Source,
}

/// Selects the value of the entry of an action.
#[derive(Clone, Debug)]
enum Source {
    ClientIp,
    Network {
        v4: u8,
        v6: u8,
    },
    Header {
        name: HeaderName,
        is_optional: bool,
    },
    Fixed(Box<str>),
    Match {
        value: Box<str>,
        expected: bool,
        headers: Box<[HeaderMatch]>,
    },
    Method,
    Path,
    MatchedPath,
    GrpcMethod,
    GrpcService,
}

/// The result of one action.
enum EntryValue<'a> {
    Some(Cow<'a, str>),
    /// The entry is left out.
    Skip,
    /// There is no descriptor.
    None,
}

impl Actions {
    /// Creates a list without actions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn add(mut self, key: impl Into<Box<str>>, source: Source) -> Self {
        self.actions.push(Action {
            key: key.into(),
            source,
        });
        self
    }

    /// Appends the address of the client, as [`ClientIp`] finds it.
    ///
    /// **The owner of an IPv6 network has a separate quota for each of its addresses.** Set
    /// `prefix_v6` in the rule, or use [`client_network`](Self::client_network).
    #[must_use]
    pub fn client_ip(self, key: impl Into<Box<str>>) -> Self {
        self.add(key, Source::ClientIp)
    }

    /// Appends the network of the client, such as `192.0.2.0/24`, with these prefix lengths in
    /// bits.
    ///
    /// # Panics
    ///
    /// Panics when `v4` is above 32 or `v6` above 128.
    #[must_use]
    pub fn client_network(self, key: impl Into<Box<str>>, v4: u8, v6: u8) -> Self {
        assert!(
            v4 <= 32 && v6 <= 128,
            "prefix lengths must be at most 32 and 128, got {v4} and {v6}"
        );
        self.add(key, Source::Network { v4, v6 })
    }

    /// Appends the value of a header field. When the field is missing or empty, the request has no
    /// descriptor.
    ///
    /// The values of a repeated field are joined by commas. A value that is not UTF-8 is read as
    /// Latin-1.
    ///
    /// # Panics
    ///
    /// Panics when `name` is no valid header name in lower case.
    #[must_use]
    pub fn header(self, name: &'static str, key: impl Into<Box<str>>) -> Self {
        self.header_name(HeaderName::from_static(name), key, false)
    }

    /// Appends the value of a header field. When the field is missing or empty, the entry is left
    /// out.
    ///
    /// # Panics
    ///
    /// Panics when `name` is no valid header name in lower case.
    #[must_use]
    pub fn optional_header(self, name: &'static str, key: impl Into<Box<str>>) -> Self {
        self.header_name(HeaderName::from_static(name), key, true)
    }

    pub(crate) fn header_name(
        self,
        name: HeaderName,
        key: impl Into<Box<str>>,
        is_optional: bool,
    ) -> Self {
        self.add(key, Source::Header { name, is_optional })
    }

    /// Appends a fixed value.
    #[must_use]
    pub fn fixed(self, key: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.add(key, Source::Fixed(value.into()))
    }

    /// Appends a fixed value when all header fields match. Otherwise the request has no descriptor.
    #[must_use]
    pub fn when(
        self,
        key: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        headers: impl IntoIterator<Item = HeaderMatch>,
    ) -> Self {
        self.matched(key, value, true, headers.into_iter().collect())
    }

    pub(crate) fn matched(
        self,
        key: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        expected: bool,
        headers: Box<[HeaderMatch]>,
    ) -> Self {
        self.add(
            key,
            Source::Match {
                value: value.into(),
                expected,
                headers,
            },
        )
    }

    /// Appends the method, such as `GET`.
    #[must_use]
    pub fn method(self, key: impl Into<Box<str>>) -> Self {
        self.add(key, Source::Method)
    }

    /// Appends the path as the client wrote it.
    ///
    /// **A client that can write a path in several ways has a separate quota for each**, because
    /// the path is not normalised.
    #[must_use]
    pub fn path(self, key: impl Into<Box<str>>) -> Self {
        self.add(key, Source::Path)
    }

    /// Appends the route of an axum router, such as `/users/{id}`. When no route matched, the
    /// request has no descriptor. The same happens without the feature `axum`.
    #[must_use]
    pub fn matched_path(self, key: impl Into<Box<str>>) -> Self {
        self.add(key, Source::MatchedPath)
    }

    /// Appends the full name of the gRPC method, such as `package.Service/Method`.
    #[must_use]
    pub fn grpc_method(self, key: impl Into<Box<str>>) -> Self {
        self.add(key, Source::GrpcMethod)
    }

    /// Appends the full name of the gRPC service, such as `package.Service`.
    #[must_use]
    pub fn grpc_service(self, key: impl Into<Box<str>>) -> Self {
        self.add(key, Source::GrpcService)
    }

    /// Returns the keys of the entries.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.actions.iter().map(|action| &*action.key)
    }

    /// Returns what the actions read of a request.
    pub(super) fn reads(&self) -> impl Iterator<Item = RequestPart> {
        self.actions.iter().flat_map(|action| action.source.reads())
    }

    /// Makes the descriptor of a request.
    pub(super) fn extract<'a>(
        &'a self,
        parts: &'a Parts,
        client_ip: &ClientIp,
    ) -> Result<Option<Descriptor<'a>>, KeyError> {
        let mut descriptor = Descriptor::new();
        for action in &self.actions {
            match action.source.value(parts, client_ip)? {
                EntryValue::Some(value) => descriptor.push(&*action.key, value),
                EntryValue::Skip => {}
                EntryValue::None => return Ok(None),
            }
        }
        Ok((!descriptor.entries().is_empty()).then_some(descriptor))
    }
}

impl Source {
    fn reads(&self) -> Vec<RequestPart> {
        match self {
            Self::ClientIp | Self::Network { .. } => vec![RequestPart::ClientAddress],
            Self::Header { name, .. } => vec![RequestPart::Header(name.clone())],
            Self::Fixed(_) => Vec::new(),
            Self::Match { headers, .. } => headers
                .iter()
                .map(|header| RequestPart::Header(header.name.clone()))
                .collect(),
            Self::Method => vec![RequestPart::Method],
            Self::Path | Self::GrpcMethod | Self::GrpcService => vec![RequestPart::Path],
            Self::MatchedPath => vec![RequestPart::Route],
        }
    }

    fn value<'a>(
        &'a self,
        parts: &'a Parts,
        client_ip: &ClientIp,
    ) -> Result<EntryValue<'a>, KeyError> {
        let or_none =
            |value: Option<Cow<'a, str>>| value.map_or(EntryValue::None, EntryValue::Some);
        Ok(match self {
            Self::ClientIp => EntryValue::Some(client_ip.address(parts)?.to_string().into()),
            Self::Network { v4, v6 } => {
                EntryValue::Some(network(client_ip.address(parts)?, *v4, *v6).into())
            }
            Self::Header { name, is_optional } => match header_value(&parts.headers, name) {
                Some(value) if !value.is_empty() => EntryValue::Some(value),
                _ if *is_optional => EntryValue::Skip,
                _ => EntryValue::None,
            },
            Self::Fixed(value) => EntryValue::Some((&**value).into()),
            Self::Match {
                value,
                expected,
                headers,
            } => {
                let is_match = headers.iter().all(|header| header.matches(&parts.headers));
                or_none((is_match == *expected).then_some((&**value).into()))
            }
            Self::Method => EntryValue::Some(parts.method.as_str().into()),
            Self::Path => EntryValue::Some(parts.uri.path().into()),
            Self::MatchedPath => or_none(matched_path(parts).map(Cow::from)),
            Self::GrpcMethod => or_none(grpc(parts.uri.path()).map(|(_, path)| path.into())),
            Self::GrpcService => or_none(grpc(parts.uri.path()).map(|(service, _)| service.into())),
        })
    }
}

fn network(address: IpAddr, v4: u8, v6: u8) -> String {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(v4)).unwrap_or(0);
            format!("{}/{v4}", Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(v6)).unwrap_or(0);
            format!("{}/{v6}", Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(feature = "axum")]
fn matched_path(parts: &Parts) -> Option<&str> {
    parts
        .extensions
        .get::<axum::extract::MatchedPath>()
        .map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn matched_path(_: &Parts) -> Option<&str> {
    None
}

/// Returns the service of a gRPC path, and the path without its first slash.
fn grpc(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    let (service, method) = path.split_once('/')?;
    (!service.is_empty() && !method.is_empty() && !method.contains('/')).then_some((service, path))
}

/// Tests a header field of a request, for [`Actions::when`].
///
/// The values of a repeated field are joined by commas before the test.
///
/// ```
/// use http::{HeaderName, Request};
/// use tollgate_rules::{Actions, ClientIp, Descriptor, Descriptors, HeaderMatch};
///
/// let is_bot = HeaderMatch::contains(HeaderName::from_static("user-agent"), "bot").ignore_case();
/// let descriptors = Descriptors::from(Actions::new().when("client", "bot", [is_bot]));
///
/// let (parts, ()) = Request::builder().header("user-agent", "ExampleBot/2").body(()).unwrap().into_parts();
/// let made = descriptors.extract(&parts, &ClientIp::Peer).unwrap();
/// assert_eq!(made, [Descriptor::from([("client", "bot")])]);
/// ```
#[derive(Clone, Debug)]
pub struct HeaderMatch {
    name: HeaderName,
    test: Test,
    ignores_case: bool,
    is_inverted: bool,
}

#[derive(Clone, Debug)]
enum Test {
    Present,
    Exact(Box<str>),
    Prefix(Box<str>),
    Suffix(Box<str>),
    Contains(Box<str>),
}

impl HeaderMatch {
    fn new(name: HeaderName, test: Test) -> Self {
        Self {
            name,
            test,
            ignores_case: false,
            is_inverted: false,
        }
    }

    /// Matches when the field is present.
    #[must_use]
    pub fn present(name: HeaderName) -> Self {
        Self::new(name, Test::Present)
    }

    /// Matches when the value is this text.
    #[must_use]
    pub fn exact(name: HeaderName, value: impl Into<Box<str>>) -> Self {
        Self::new(name, Test::Exact(value.into()))
    }

    /// Matches when the value starts with this text.
    #[must_use]
    pub fn prefix(name: HeaderName, value: impl Into<Box<str>>) -> Self {
        Self::new(name, Test::Prefix(value.into()))
    }

    /// Matches when the value ends with this text.
    #[must_use]
    pub fn suffix(name: HeaderName, value: impl Into<Box<str>>) -> Self {
        Self::new(name, Test::Suffix(value.into()))
    }

    /// Matches when the value contains this text.
    #[must_use]
    pub fn contains(name: HeaderName, value: impl Into<Box<str>>) -> Self {
        Self::new(name, Test::Contains(value.into()))
    }

    /// Compares ASCII letters of both cases as equal.
    #[must_use]
    pub fn ignore_case(mut self) -> Self {
        self.ignores_case = true;
        self
    }

    /// Inverts the test.
    #[must_use]
    pub fn invert(mut self) -> Self {
        self.is_inverted = !self.is_inverted;
        self
    }

    /// Returns whether the header fields match. A missing field has no value and matches no text.
    pub(super) fn matches(&self, headers: &HeaderMap) -> bool {
        self.tests(headers) != self.is_inverted
    }

    fn tests(&self, headers: &HeaderMap) -> bool {
        let Some(value) = header_value(headers, &self.name) else {
            return false;
        };
        let lower = |text: &str| {
            if self.ignores_case {
                text.to_ascii_lowercase()
            } else {
                text.to_owned()
            }
        };
        match &self.test {
            Test::Present => true,
            Test::Exact(text) => lower(&value) == lower(text),
            Test::Prefix(text) => lower(&value).starts_with(&lower(text)),
            Test::Suffix(text) => lower(&value).ends_with(&lower(text)),
            Test::Contains(text) => lower(&value).contains(&lower(text)),
        }
    }
}

/// Returns the value of a header field. Several values are joined by commas (RFC 9110, section
/// 5.3).
pub(super) fn header_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    let text = |bytes: &'a [u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    };
    let mut values = headers
        .get_all(name)
        .iter()
        .map(|value| text(value.as_bytes()));
    let first = values.next()?;
    Some(values.fold(first, |joined, value| {
        Cow::Owned(format!("{joined},{value}"))
    }))
}

/// Selects where the address of a client is read.
///
/// The default is the peer of the connection. **Behind a proxy, all requests come from the proxy:**
/// use a [`ForwardedIp`] there.
///
/// ```
/// use tollgate_rules::ClientIp;
/// use tollgate_tower::key::{ForwardedIp, TrustedProxies};
///
/// let proxies = TrustedProxies::networks(["10.0.0.0/8".parse().unwrap()]);
/// let client_ip = ClientIp::from(ForwardedIp::x_forwarded_for(proxies));
/// assert!(matches!(client_ip, ClientIp::Forwarded(_)));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ClientIp {
    /// The address at the other end of the connection.
    #[default]
    Peer,
    /// The address that trusted proxies name in a header field. Boxed, because it is much larger.
    Forwarded(Box<ForwardedIp>),
}

impl From<ForwardedIp> for ClientIp {
    fn from(forwarded: ForwardedIp) -> Self {
        Self::Forwarded(Box::new(forwarded))
    }
}

impl ClientIp {
    pub(crate) fn address(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        match self {
            Self::Peer => PeerIp.address(parts),
            Self::Forwarded(forwarded) => forwarded.address(parts),
        }
    }
}
