use http::request::Parts;
use tollgate::Key;
use tollgate_tower::{
    KeyExtractor,
    key::{Extraction, KeyError},
};
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};

use crate::certificate::subject;

/// The subject of the certificate that the client showed.
///
/// It stays the same when the certificate is renewed. Whoever signs the clients' certificates says
/// who shares a quota: with several authorities, two clients may have one subject.
///
/// A client without a certificate, and one whose certificate has no subject (some carry only
/// alternative names), has no key.
///
/// The server has to ask for certificates: `ServerTlsConfig::client_ca_root` of tonic. Without TLS
/// every call is answered with `INTERNAL`, and the log says why.
///
/// ```
/// use http::Request;
/// use tollgate_tonic::key::ClientCertificate;
/// use tollgate_tower::{KeyExtractor, key::KeyErrorKind};
///
/// let (parts, ()) = Request::new(()).into_parts();
/// assert_eq!(ClientCertificate.extract(&parts).unwrap_err().kind(), KeyErrorKind::Misconfigured);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientCertificate;

impl KeyExtractor for ClientCertificate {
    fn extract(&self, parts: &Parts) -> Extraction {
        let info = parts.extensions.get::<TlsConnectInfo<TcpConnectInfo>>();
        let info = info.ok_or_else(|| {
            KeyError::misconfigured(
                "calls do not come over TLS of tonic's server: give it a `tls_config` that asks for client certificates",
            )
        })?;
        let certificates = info.peer_certs().unwrap_or_default();
        let first = certificates.first().ok_or_else(|| KeyError::missing("the client showed no certificate"))?;
        match subject(first) {
            Some(subject) => Ok(Some(Key::bytes(subject))),
            None => Err(KeyError::missing("the client's certificate has no subject")),
        }
    }
}
