//! All the action lists of a domain, which turn a request into its descriptors. The table of
//! actions for readers of the documentation stands here too.
//! A single list, and what its actions read, is in `action.rs`.

use http::request::Parts;
use tollgate_tower::key::KeyError;

use super::{Actions, ClientIp, RequestPart};
use crate::Descriptor;

/// Makes the [descriptors](Descriptor) of a request.
///
/// Write the actions in code with [`Actions`], or in the file of the rules with the field
/// `rate_limits`, which has the same form as in a route of Envoy:
///
/// ```
/// use http::Request;
/// use tollgate_rules::{ClientIp, Descriptor, Format, RuleSet};
///
/// let rules = RuleSet::parse(
///     "
///     domain: shop
///     rate_limits:
///       - actions:
///           - request_headers: {header_name: x-tenant, descriptor_key: tenant}
///       - actions:
///           - request_headers: {header_name: x-tenant, descriptor_key: tenant}
///           - path: {descriptor_key: path}
///     descriptors:
///       - {key: tenant, rate_limit: {quota: 600/min}}
///     ",
///     Format::Yaml,
/// )?;
/// let (parts, ()) = Request::get("/export").header("x-tenant", "acme").body(()).unwrap().into_parts();
/// let descriptors = rules.descriptors("shop").unwrap().extract(&parts, &ClientIp::Peer).unwrap();
/// assert_eq!(
///     descriptors,
///     [Descriptor::from([("tenant", "acme")]), Descriptor::from([("tenant", "acme"), ("path", "/export")])],
/// );
/// # Ok::<(), tollgate_rules::RuleErrors>(())
/// ```
///
/// Each list of `actions` makes one descriptor, with one entry for each action:
///
/// | action | fields, those in brackets may be left out | entry |
/// |---|---|---|
/// | `remote_address` | | the address of the client |
/// | `masked_remote_address` | (`v4_prefix_mask_len`), (`v6_prefix_mask_len`) | the network of the client |
/// | `request_headers` | `header_name`, `descriptor_key`, (`skip_if_absent`) | the value of a header field |
/// | `generic_key` | `descriptor_value`, (`descriptor_key`) | a fixed value |
/// | `header_value_match` | `descriptor_value`, `headers`, (`descriptor_key`), (`expect_match`) | a fixed value, when header fields match |
/// | `method`, `path` | (`descriptor_key`) | the method, the path |
/// | `matched_path` | (`descriptor_key`) | the route of axum, with the feature `axum` |
/// | `grpc_service`, `grpc_method` | (`descriptor_key`) | the name `package.Service`, the name `package.Service/Method` |
///
/// Without `descriptor_key`, the key of an entry is the name of the action, with two exceptions:
/// `header_match` for `header_value_match`, and `route` for `matched_path`. Where Envoy reads the
/// header `:path` or `:method`, write `path` or `method`. The last three rows are additions of
/// Tollgate.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    all: Vec<Actions>,
}

impl Descriptors {
    /// Creates an empty list, which makes no descriptors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a descriptor.
    #[must_use]
    pub fn descriptor(mut self, actions: Actions) -> Self {
        self.all.push(actions);
        self
    }

    /// Returns the keys of the entries of all descriptors.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.all.iter().flat_map(Actions::keys)
    }

    /// Returns the parts of a request that the actions read, each once, in the order of the actions.
    ///
    /// ```
    /// use tollgate_rules::{Actions, Descriptors, RequestPart};
    ///
    /// let descriptors = Descriptors::new()
    ///     .descriptor(Actions::new().header("x-tenant", "tenant"))
    ///     .descriptor(Actions::new().header("x-tenant", "tenant").path("path"));
    /// let parts: Vec<_> = descriptors.reads().iter().map(RequestPart::to_string).collect();
    /// assert_eq!(parts, ["the header x-tenant", "the path"]);
    /// ```
    #[must_use]
    pub fn reads(&self) -> Vec<RequestPart> {
        let mut parts = Vec::new();
        for part in self.all.iter().flat_map(Actions::reads) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts
    }

    /// Makes the descriptors of the request with this head. A descriptor for which the request has
    /// no values is left out.
    ///
    /// # Errors
    ///
    /// Fails when an action needs the address of the client and the server does not provide it.
    pub fn extract<'a>(
        &'a self,
        parts: &'a Parts,
        client_ip: &ClientIp,
    ) -> Result<Vec<Descriptor<'a>>, KeyError> {
        self.all
            .iter()
            .filter_map(|actions| actions.extract(parts, client_ip).transpose())
            .collect()
    }
}

impl From<Actions> for Descriptors {
    fn from(actions: Actions) -> Self {
        Self::new().descriptor(actions)
    }
}

impl FromIterator<Actions> for Descriptors {
    fn from_iter<I: IntoIterator<Item = Actions>>(all: I) -> Self {
        Self {
            all: all.into_iter().collect(),
        }
    }
}
