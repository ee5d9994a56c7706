//! TLS of the server: certificates that are read again when they change, and the handshake with a
//! client.
//! TLS to a control plane is in `ads/tls.rs`.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier},
};
use tokio::{
    net::TcpStream,
    time::{interval, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::ServerError;

/// Names the files for TLS, all in PEM.
///
/// The server reads the files again within a second after they change. If they are wrong, it logs
/// the mistake, and the certificates from before stay in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, followed by the certificates of its issuers.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The CA certificates that verify clients. A client without a certificate is then refused.
    /// With `None`, clients need no certificate.
    pub client_authorities: Option<PathBuf>,
    /// The name that the certificate of a client must have. `None` allows any name.
    pub client_name: Option<String>,
}

/// The time between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// The longest time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The certificates in use.
pub(super) struct ReloadedTls {
    files: TlsFiles,
    /// The content at the start.
    content: Arc<Content>,
    current: Arc<ArcSwap<ServerConfig>>,
    client_name: Option<ServerName<'static>>,
}

/// The content of the files.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authorities: Option<Vec<u8>>,
}

impl ReloadedTls {
    pub(super) fn load(files: TlsFiles) -> Result<Self, ServerError> {
        let content = files.read()?;
        let current = Arc::new(ArcSwap::from_pointee(content.config()?));
        let client_name = match files.client_name.clone() {
            Some(name) => Some(ServerName::try_from(name).map_err(|error| {
                ServerError::with("the name of client certificates is not valid", error)
            })?),
            None => None,
        };
        Ok(Self {
            files,
            content: Arc::new(content),
            current,
            client_name,
        })
    }

    /// Makes the handshake on a connection. `None` is one that failed, or took too long.
    pub(super) fn accept(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = Option<TlsStream<TcpStream>>> + use<> {
        let (acceptor, client_name) = (
            TlsAcceptor::from(self.current.load_full()),
            self.client_name.clone(),
        );
        async move {
            match timeout(
                HANDSHAKE,
                handshake(&acceptor, stream, client_name.as_ref()),
            )
            .await
            {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            }
            None
        }
    }

    /// Reads the files again when they change, until the future is dropped.
    pub(super) async fn watch(&self) {
        let mut looks = interval(LOOK);
        let mut known = Arc::clone(&self.content);
        let mut was_read = true;
        loop {
            looks.tick().await;
            let files = self.files.clone();
            // Reading blocks, for long where the files lie on a network.
            let Ok(read) = tokio::task::spawn_blocking(move || files.read()).await else {
                continue;
            };
            let content = match read {
                Ok(content) => content,
                Err(error) => {
                    if std::mem::replace(&mut was_read, false) {
                        tracing::error!(%error, "certificates were not read, the old ones stay");
                    }
                    continue;
                }
            };
            was_read = true;
            if content == *known {
                continue;
            }
            match content.config() {
                Ok(config) => {
                    self.current.store(Arc::new(config));
                    tracing::info!(certificate = %self.files.certificate.display(), "certificates were loaded");
                }
                Err(error) => {
                    tracing::error!(%error, "certificates were refused, the old ones stay");
                }
            }
            known = Arc::new(content);
        }
    }
}

impl TlsFiles {
    fn read(&self) -> Result<Content, ServerError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| {
                ServerError::with(format!("cannot read {}", path.display()), error)
            })
        };
        Ok(Content {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            client_authorities: self.client_authorities.as_ref().map(read).transpose()?,
        })
    }
}

impl Content {
    fn config(&self) -> Result<ServerConfig, ServerError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let own = certificates(&self.certificate, "the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| ServerError::with("the key is no key in PEM", error))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| ServerError::with("TLS cannot be used", error))?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(pem, "the file of client authorities")? {
                    roots.add(authority).map_err(|error| {
                        ServerError::with("an authority of clients is wrong", error)
                    })?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let verifier = verifier.map_err(|error| {
                    ServerError::with("the authorities of clients are wrong", error)
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(own, key)
            .map_err(|error| ServerError::with("the certificate and the key do not fit", error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(ServerError::new(format!(
            "{what} has no certificate in PEM"
        ))),
        Ok(all) => Ok(all),
        Err(error) => Err(ServerError::with(format!("{what} is not valid"), error)),
    }
}

async fn handshake(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    client_name: Option<&ServerName<'static>>,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = acceptor.accept(stream).await?;
    if let Some(name) = client_name {
        let certificate = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(|all| all.first());
        let certificate =
            certificate.ok_or_else(|| io::Error::other("the client has no certificate"))?;
        let parsed = ParsedCertificate::try_from(certificate).map_err(io::Error::other)?;
        rustls::client::verify_server_name(&parsed, name).map_err(io::Error::other)?;
    }
    Ok(stream)
}
