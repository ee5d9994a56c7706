//! The key extractor that reads the subject of a verified TLS certificate of the client.
//! Addresses of clients come from `tollgate_tower`; metadata and methods are read in `metadata.rs`
//! and `method.rs`.

use http::request::Parts;
use tollgate::Key;
use tollgate_tower::{
    KeyExtractor,
    key::{Extraction, KeyError},
};
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use x509_parser::{certificate::X509CertificateParser, nom::Parser};

/// Uses the subject of the client's TLS certificate as the key.
///
/// The key stays the same when the certificate is renewed with the same subject. The server must
/// request certificates from clients: see `ServerTlsConfig::client_ca_root` of tonic. A server
/// without TLS answers every call with `INTERNAL`, and the log has the reason.
///
/// The server answers a call with `INVALID_ARGUMENT` when the client sent no certificate, and when
/// the certificate has no subject. Some certificates have only alternative names.
///
/// **Two clients with the same subject share a quota.** The certificate authority assigns the
/// subjects, so two authorities may give the same subject to different clients.
///
/// ```
/// use http::Request;
/// use tollgate_tonic::key::ClientCertificate;
/// use tollgate_tower::{KeyExtractor, key::KeyErrorKind};
///
/// // A request without TLS: the service is set up wrongly.
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
                "the call did not arrive over the TLS of tonic's server: \
                 set a `tls_config` that requests client certificates",
            )
        })?;
        let certificates = info.peer_certs().unwrap_or_default();
        let first = certificates
            .first()
            .ok_or_else(|| KeyError::missing("the client sent no certificate"))?;
        match subject(first) {
            Some(subject) => Ok(Some(Key::bytes(subject))),
            None => Err(KeyError::missing("the client's certificate has no subject")),
        }
    }
}

/// Returns the subject of a certificate in DER; `None` when the subject is empty or the bytes are
/// not a certificate.
///
/// The TLS library has verified the certificate already. Extensions are not parsed, because a
/// certificate with an unusual extension still has a subject.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate) = X509CertificateParser::new()
        .with_deep_parse_extensions(false)
        .parse(certificate)
        .ok()?;
    let subject = &certificate.tbs_certificate.subject;
    subject.iter().next().is_some().then(|| subject.as_raw())
}
