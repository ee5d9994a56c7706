//! Certificates of a store, and the TLS settings that follow from them.
//! Without the feature `tls`, `no_tls.rs` has the same names.

use std::sync::{Arc, OnceLock};

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisResult, TlsCertificates,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use super::dialer::Stream;
use tollgate_core::Error;

/// The trusted root certificates and the client certificate, both in PEM.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    pub(crate) roots: Option<Vec<u8>>,
    /// The client certificate and its key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The settings of all connections, made with the first one. Reading the platform's
    /// certificates takes longer than a check may wait.
    config: Arc<OnceLock<Option<Arc<ClientConfig>>>>,
}

impl Certificates {
    pub(crate) fn is_some(&self) -> bool {
        self.roots.is_some() || self.identity.is_some()
    }

    /// Returns a TLS client when the address asks for TLS. Fails when certificates are set and
    /// `needed`, and the address does not ask for TLS.
    pub(crate) fn client(
        &self,
        info: &ConnectionInfo,
        needed: bool,
    ) -> Result<Option<Client>, Error> {
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return match self.is_some() && needed {
                true => Err(Error::config("certificates need a rediss:// URL")),
                false => Ok(None),
            };
        }
        if CryptoProvider::get_default().is_none() {
            // Another thread may install a provider first. That one is then used.
            let _ = ring::default_provider().install_default();
        }
        // Text that is not PEM would count as an empty list.
        holds_certificate("root certificates", self.roots.as_deref())?;
        holds_certificate(
            "client certificate",
            self.identity
                .as_ref()
                .map(|(certificate, _)| &certificate[..]),
        )?;
        let certificates = TlsCertificates {
            root_cert: self.roots.clone(),
            client_tls: self
                .identity
                .clone()
                .map(|(client_cert, client_key)| ClientTlsConfig {
                    client_cert,
                    client_key,
                }),
        };
        let unusable = |_| {
            Error::config(
                "the client certificate, its key or the root certificates are not valid PEM",
            )
        };
        Client::build_with_tls(info.clone(), certificates)
            .map(Some)
            .map_err(unusable)
    }

    /// Returns what makes a TLS connection to this host. Returns `None` without a trusted root
    /// certificate: the client library may have roots of its own.
    pub(super) fn connector(&self, host: &str) -> Option<Connector> {
        let config = self
            .config
            .get_or_init(|| self.make_config().map(Arc::new))
            .clone()?;
        Some(Connector {
            tls: config.into(),
            name: ServerName::try_from(host.to_owned()).ok()?,
        })
    }

    fn make_config(&self) -> Option<ClientConfig> {
        let mut roots = RootCertStore::empty();
        match &self.roots {
            Some(pem) => {
                roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten())
            }
            None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        };
        if roots.is_empty() {
            return None;
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else {
            return Some(config.with_no_client_auth());
        };
        let chain = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .ok()?;
        config
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).ok()?)
            .ok()
    }
}

/// Makes a TLS connection to a host.
pub(super) struct Connector {
    tls: TlsConnector,
    name: ServerName<'static>,
}

impl Connector {
    pub(super) async fn connect<S: Stream + 'static>(
        self,
        stream: S,
    ) -> RedisResult<Box<dyn Stream>> {
        Ok(Box::new(self.tls.connect(self.name, stream).await?))
    }
}

fn holds_certificate(what: &str, pem: Option<&[u8]>) -> Result<(), Error> {
    let holds = |pem| {
        CertificateDer::pem_slice_iter(pem)
            .next()
            .is_some_and(|it| it.is_ok())
    };
    match pem.is_none_or(holds) {
        true => Ok(()),
        false => Err(Error::config(format!(
            "the {what} contain no certificate in PEM"
        ))),
    }
}
