use std::{fmt, path::PathBuf, time::Duration};

use tollgate_rules::RuleSetBuilder;

use super::{Backoff, client::Ads};

/// Sets options and builds an [`Ads`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct AdsBuilder {
    pub(super) server: String,
    pub(super) rules: RuleSetBuilder,
    pub(super) node_id: String,
    pub(super) node_metadata: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) tls: Option<AdsTls>,
    pub(super) backoff: Backoff,
    pub(super) max_message_bytes: usize,
}

/// Sets the files for TLS to a control plane. All are in PEM, and are read for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdsTls {
    /// The certificates of the authorities of the control plane. Without them, those of the platform.
    pub authorities: Option<PathBuf>,
    /// The certificate and the key of the client.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the certificate of the control plane must have. Without it, the host of the address.
    pub name: Option<String>,
}

impl AdsBuilder {
    pub(super) fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            rules: RuleSetBuilder::default(),
            node_id: "default".to_owned(),
            node_metadata: Vec::new(),
            headers: Vec::new(),
            tls: None,
            backoff: Backoff::default(),
            max_message_bytes: 4 << 20,
        }
    }

    /// Sets the options of the rules.
    pub fn rules(mut self, rules: RuleSetBuilder) -> Self {
        self.rules = rules;
        self
    }

    /// Sets the name under which the control plane knows this service. The default is `default`.
    pub fn node_id(mut self, id: impl Into<String>) -> Self {
        self.node_id = id.into();
        self
    }

    /// Sets fields that the control plane is told.
    pub fn node_metadata(mut self, metadata: Vec<(String, String)>) -> Self {
        self.node_metadata = metadata;
        self
    }

    /// Sets gRPC metadata of the stream, such as an authorization.
    pub fn headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.headers = headers;
        self
    }

    /// Connects with TLS.
    pub fn tls(mut self, tls: AdsTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the waits between two connections.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the most bytes of a response. The default is 4 MiB.
    pub fn max_message_bytes(mut self, max: usize) -> Self {
        self.max_message_bytes = max;
        self
    }

    /// Builds the client.
    #[must_use]
    pub fn build(self) -> Ads {
        Ads::with(self)
    }

    /// The longest time for a connection.
    pub(super) const CONNECTING: Duration = Duration::from_secs(10);
}

impl fmt::Debug for AdsBuilder {
    /// Leaves out the values of the headers, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdsBuilder")
            .field("server", &self.server)
            .field("node_id", &self.node_id)
            .field("tls", &self.tls)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}
