use std::{io, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::{interval, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::{Stream, wrappers::ReceiverStream};

use super::ServerError;

/// Names the files for TLS, all in PEM.
///
/// They are read again within a second after they change. Files that are wrong are logged, and the certificates from before
/// stay in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, followed by those of its issuers.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The authorities of client certificates. With it, a client without a certificate is refused.
    pub client_authorities: Option<PathBuf>,
    /// The name that the certificate of a client must have.
    pub client_name: Option<String>,
}

/// The time between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// The longest time for a handshake, and the most at a time.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HANDSHAKES: usize = 512;

/// The certificates in use.
pub(super) struct ReloadedTls {
    files: TlsFiles,
    content: Content,
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
            Some(name) => Some(
                ServerName::try_from(name)
                    .map_err(|error| ServerError::with("the name of client certificates is not valid", error))?,
            ),
            None => None,
        };
        Ok(Self { files, content, current, client_name })
    }

    /// Returns the connections whose handshakes succeed.
    pub(super) fn incoming(self, listener: TcpListener) -> impl Stream<Item = io::Result<TlsStream<TcpStream>>> {
        let (sender, receiver) = mpsc::channel(16);
        let (current, client_name) = (Arc::clone(&self.current), self.client_name.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = sender.closed() => {}
                () = self.watch() => {}
                () = accept(&listener, &current, client_name, &sender) => {}
            }
        });
        ReceiverStream::new(receiver)
    }

    /// Reads the files again when they change.
    async fn watch(mut self) {
        let mut looks = interval(LOOK);
        let mut was_read = true;
        loop {
            looks.tick().await;
            let files = self.files.clone();
            // Reading blocks, for long where the files lie on a network.
            let Ok(read) = tokio::task::spawn_blocking(move || files.read()).await else { continue };
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
            if content == self.content {
                continue;
            }
            match content.config() {
                Ok(config) => {
                    self.current.store(Arc::new(config));
                    tracing::info!(certificate = %self.files.certificate.display(), "certificates were loaded");
                }
                Err(error) => tracing::error!(%error, "certificates were refused, the old ones stay"),
            }
            self.content = content;
        }
    }
}

impl TlsFiles {
    fn read(&self) -> Result<Content, ServerError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| ServerError::with(format!("cannot read {}", path.display()), error))
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
        let certificates = certificates(&self.certificate, "the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| ServerError::with("the key is no key in PEM", error))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| ServerError::with("TLS cannot be used", error))?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates_of_clients(pem)? {
                    roots
                        .add(authority)
                        .map_err(|error| ServerError::with("an authority of clients is wrong", error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let verifier =
                    verifier.map_err(|error| ServerError::with("the authorities of clients are wrong", error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certificates, key)
            .map_err(|error| ServerError::with("the certificate and the key do not fit", error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn certificates_of_clients(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    certificates(pem, "the file of client authorities")
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(ServerError::new(format!("{what} has no certificate in PEM"))),
        Ok(all) => Ok(all),
        Err(error) => Err(ServerError::with(format!("{what} is not valid"), error)),
    }
}

type Accepted = mpsc::Sender<io::Result<TlsStream<TcpStream>>>;

/// Accepts connections. Each handshake is a task, so that a slow client delays no other.
async fn accept(
    listener: &TcpListener,
    current: &ArcSwap<ServerConfig>,
    client_name: Option<ServerName<'static>>,
    sender: &Accepted,
) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // The process may have no file left. It has again when connections end.
                tracing::warn!(%error, "a connection was not accepted");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let acceptor = TlsAcceptor::from(current.load_full());
        let (sender, client_name) = (sender.clone(), client_name.clone());
        tokio::spawn(async move {
            let _permit = permit;
            match timeout(HANDSHAKE, handshake(&acceptor, stream, client_name.as_ref())).await {
                // The server has ended when nobody takes the connection.
                Ok(Ok(stream)) => drop(sender.send(Ok(stream)).await),
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            }
        });
    }
}

async fn handshake(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    client_name: Option<&ServerName<'static>>,
) -> io::Result<TlsStream<TcpStream>> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    if let Some(name) = client_name {
        let certificate = stream.get_ref().1.peer_certificates().and_then(|all| all.first());
        let certificate = certificate.ok_or_else(|| io::Error::other("the client has no certificate"))?;
        let parsed = ParsedCertificate::try_from(certificate).map_err(io::Error::other)?;
        rustls::client::verify_server_name(&parsed, name).map_err(io::Error::other)?;
    }
    Ok(stream)
}
