use tollgate_rules::RuleSetBuilder;

use super::{AdsTls, Backoff, client::Ads, options::AdsOptions};

/// Sets options and builds an [`Ads`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct AdsBuilder(AdsOptions);

impl Ads {
    /// Returns a builder for a client of the control plane at `HOST:PORT`.
    pub fn builder(server: impl Into<String>) -> AdsBuilder {
        AdsBuilder(AdsOptions::new(server.into()))
    }
}

impl AdsBuilder {
    /// Sets the options of the rules.
    pub fn rules(mut self, rules: RuleSetBuilder) -> Self {
        self.0.rules = rules;
        self
    }

    /// Sets the name under which the control plane knows this service. The default is `default`.
    pub fn node_id(mut self, id: impl Into<String>) -> Self {
        self.0.node_id = id.into();
        self
    }

    /// Sets the metadata of this service that is sent to the control plane: names and values.
    pub fn node_metadata(mut self, metadata: Vec<(String, String)>) -> Self {
        self.0.node_metadata = metadata;
        self
    }

    /// Sets gRPC metadata of the calls to the control plane, such as `authorization`: names and
    /// values.
    pub fn headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.0.headers = headers;
        self
    }

    /// Connects with TLS. By default, the connection is not encrypted.
    pub fn tls(mut self, tls: AdsTls) -> Self {
        self.0.tls = Some(tls);
        self
    }

    /// Sets the waits between two connections.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.0.backoff = backoff;
        self
    }

    /// Sets the most bytes of a response. The default is 4 MiB.
    pub fn max_message_bytes(mut self, max: usize) -> Self {
        self.0.max_message_bytes = max;
        self
    }

    /// Builds the client.
    pub fn build(self) -> Ads {
        Ads::new(self.0)
    }
}
