use std::{error::Error, fs, time::Duration};

use tokio::{sync::mpsc, time::sleep};
use tokio_stream::wrappers::ReceiverStream;
use tollgate_rules::Rules;
use tonic::{
    Request,
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::{
    options::{AdsOptions, AdsTls},
    session::Session,
};
use crate::proto::discovery::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;

/// Takes rules from a control plane over ADS, the aggregated discovery service of xDS.
///
/// The control plane sends all rules with each change (state of the world), as resources of the
/// type `ratelimit.config.ratelimit.v3.RateLimitConfig`. Valid rules are in force at once, and the
/// client accepts them (ACK). The client refuses wrong rules with the reason (NACK). The rules from
/// before then stay in force, as they do while the control plane is away.
#[derive(Clone, Debug)]
#[must_use = "the client does nothing until `run` is polled"]
pub struct Ads {
    options: AdsOptions,
}

/// The longest time for a connection, and the time after which a silent control plane is asked
/// whether it is there.
const CONNECTING: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

impl Ads {
    pub(super) fn new(options: AdsOptions) -> Self {
        Self { options }
    }

    /// Puts the rules of the control plane in force until the future is dropped.
    ///
    /// A stream that ends is opened again: see [`Backoff`](crate::Backoff).
    pub async fn run(self, rules: Rules) {
        let mut failures = 0;
        let mut version = String::new();
        loop {
            let mut session = Session::new(&self.options, rules.clone(), version);
            let result = self.stream(&mut session).await;
            failures = if session.has_rules() { 1 } else { failures + 1 };
            version = session.into_version();
            let wait = self.options.backoff.wait(failures, fastrand::f64());
            let reason = result
                .err()
                .map_or_else(|| "it closed the stream".to_owned(), |error| chain(&*error));
            tracing::warn!(
                server = self.options.server,
                wait_ms = wait.as_millis(),
                reason,
                "the control plane is away, the rules stay"
            );
            sleep(wait).await;
        }
    }

    /// Serves one stream until it ends.
    async fn stream(&self, session: &mut Session) -> Result<(), Failure> {
        let channel = self.connect().await?;
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        client = client.max_decoding_message_size(self.options.max_message_bytes);
        // The first request lies in the channel before the call: a server may answer the call only
        // after it.
        let (requests, outgoing) = mpsc::channel(8);
        requests.send(session.first()).await?;
        let mut request = Request::new(ReceiverStream::new(outgoing));
        for (name, value) in &self.options.headers {
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
        let scheme = if self.options.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.options.server))?
            .connect_timeout(CONNECTING)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_while_idle(true);
        let endpoint = match &self.options.tls {
            Some(tls) => endpoint.tls_config(tls_config(tls)?)?,
            None => endpoint,
        };
        Ok(endpoint.connect().await?)
    }
}

fn tls_config(tls: &AdsTls) -> Result<ClientTlsConfig, Failure> {
    let read = |path: &std::path::Path| {
        fs::read(path)
            .map_err(|error| Failure::from(format!("cannot read {}: {error}", path.display())))
    };
    let mut config = match &tls.authorities {
        Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    if let Some(name) = &tls.name {
        config = config.domain_name(name);
    }
    Ok(config)
}

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
