//! The client of a control plane: its options, its connection, and one stream after another.
//! What is answered on a stream is decided in `session.rs`.

use std::{error::Error, time::Duration};

use tokio::{sync::mpsc, time::sleep};
use tokio_stream::wrappers::ReceiverStream;
use tollgate::ForeignText;
use tollgate_rules::{RuleSetBuilder, Rules};
use tonic::{
    Request,
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
    transport::{Channel, Endpoint},
};

use super::{
    AdsTls, Backoff,
    session::{Session, node},
};
use crate::proto::discovery::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;

/// Takes rules from a control plane over ADS, the aggregated discovery service of xDS.
///
/// The control plane sends all rules with each change (state of the world), as resources of the
/// type `ratelimit.config.ratelimit.v3.RateLimitConfig`. Valid rules are in force at once, and the
/// client accepts them (ACK). The client refuses wrong rules with the reason (NACK). The rules from
/// before then stay in force, as they do while the control plane is away.
#[derive(Clone)]
#[must_use = "the client does nothing until `run` is polled"]
pub struct Ads {
    server: String,
    rules: RuleSetBuilder,
    node_id: String,
    node_metadata: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    tls: Option<AdsTls>,
    backoff: Backoff,
    max_message_bytes: usize,
}

/// The longest time for a connection, and the time after which a silent control plane is asked
/// whether it is there.
const CONNECTING: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

impl Ads {
    /// Creates a client of the control plane at `HOST:PORT`.
    pub fn new(server: impl Into<String>) -> Self {
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

    /// Sets the metadata of this service that is sent to the control plane: names and values.
    pub fn node_metadata(mut self, metadata: Vec<(String, String)>) -> Self {
        self.node_metadata = metadata;
        self
    }

    /// Sets gRPC metadata of the calls to the control plane, such as `authorization`: names and
    /// values.
    pub fn headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.headers = headers;
        self
    }

    /// Connects with TLS. By default, the connection is not encrypted.
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

    /// Puts the rules of the control plane in force until the future is dropped.
    ///
    /// A stream that ends is opened again: see [`Backoff`](crate::Backoff).
    pub async fn run(self, rules: Rules) {
        let mut failures = 0;
        let mut version = String::new();
        loop {
            let node = node(&self.node_id, &self.node_metadata);
            let mut session = Session::new(node, self.rules.clone(), rules.clone(), version);
            let result = self.stream(&mut session).await;
            failures = if session.has_rules() { 1 } else { failures + 1 };
            version = session.into_version();
            let wait = self.backoff.wait(failures, fastrand::f64());
            let reason = result
                .err()
                .map_or_else(|| "it closed the stream".to_owned(), |error| chain(&*error));
            tracing::warn!(
                server = self.server,
                wait_ms = wait.as_millis(),
                reason = %ForeignText(&reason),
                "the control plane is away, the rules stay"
            );
            sleep(wait).await;
        }
    }

    /// Serves one stream until it ends.
    async fn stream(&self, session: &mut Session) -> Result<(), Failure> {
        let channel = self.connect().await?;
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        client = client.max_decoding_message_size(self.max_message_bytes);
        // The first request lies in the channel before the call: a server may answer the call only
        // after it.
        let (requests, outgoing) = mpsc::channel(8);
        requests.send(session.first()).await?;
        let mut request = Request::new(ReceiverStream::new(outgoing));
        for (name, value) in &self.headers {
            let name: AsciiMetadataKey = name.parse()?;
            request
                .metadata_mut()
                .insert(name, value.parse::<AsciiMetadataValue>()?);
        }
        let mut responses = client
            .stream_aggregated_resources(request)
            .await?
            .into_inner();
        while let Some(response) = responses.message().await? {
            if let Some(answer) = session.answer(response) {
                requests.send(answer).await?;
            }
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Channel, Failure> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.server))?
            .connect_timeout(CONNECTING)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_while_idle(true);
        let endpoint = match &self.tls {
            Some(tls) => endpoint.tls_config(tls.config()?)?,
            None => endpoint,
        };
        Ok(endpoint.connect().await?)
    }
}

// Leaves out the values of the headers, which may be secrets.
tollgate::debug_fields! { Ads: server, node_id, tls, backoff, .. }

/// Returns an error and its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
