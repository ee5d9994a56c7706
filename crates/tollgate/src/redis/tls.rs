use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::{
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::{Error, reason::Reason};

/// Whom we believe, and who we are.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    pub(super) roots: Option<Vec<u8>>,
    /// Certificate and key.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    pub(super) fn is_some(&self) -> bool {
        self.roots.is_some() || self.identity.is_some()
    }

    /// A client that speaks TLS, where the address says so; where certificates are `needed` it must.
    pub(super) fn client(&self, info: &ConnectionInfo, needed: bool) -> Result<Option<Client>, Error> {
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return match self.is_some() && needed {
                true => Err(Error::new(Reason::Tls, "certificates are for a store at a rediss:// URL")),
                false => Ok(None),
            };
        }
        if CryptoProvider::get_default().is_none() {
            // Somebody else may be quicker, then theirs is taken.
            let _ = ring::default_provider().install_default();
        }
        // What is no PEM at all would count as a list of none.
        holds_certificate("root certificates", self.roots.as_deref())?;
        holds_certificate("client certificate", self.identity.as_ref().map(|(certificate, _)| &certificate[..]))?;
        let certificates = TlsCertificates {
            root_cert: self.roots.clone(),
            client_tls: self
                .identity
                .clone()
                .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
        };
        let unusable =
            |_| Error::new(Reason::Tls, "the client certificate, its key or the root certificates do not parse as PEM");
        Client::build_with_tls(info.clone(), certificates).map(Some).map_err(unusable)
    }
}

fn holds_certificate(what: &str, pem: Option<&[u8]>) -> Result<(), Error> {
    let holds = |pem| CertificateDer::pem_slice_iter(pem).next().is_some_and(|it| it.is_ok());
    match pem.is_none_or(holds) {
        true => Ok(()),
        false => Err(Error::new(Reason::Tls, format!("the {what} hold no certificate in PEM"))),
    }
}
