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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const INTEGER: u8 = 0x02;
    const BIT_STRING: u8 = 0x03;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    const UTF8_STRING: u8 = 0x0c;
    const UTC_TIME: u8 = 0x17;
    const VERSION: u8 = 0xa0;

    /// Encodes one DER element.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut element = vec![tag];
        match content.len() {
            short @ ..128 => element.push(short as u8),
            long => element.extend([0x82, (long >> 8) as u8, long as u8]),
        }
        element.extend_from_slice(content);
        element
    }

    /// Encodes a name with one attribute, the common name.
    fn common_name(name: &str) -> Vec<u8> {
        let attribute = [
            element(OBJECT_IDENTIFIER, &[0x55, 4, 3]),
            element(UTF8_STRING, name.as_bytes()),
        ]
        .concat();
        element(SEQUENCE, &element(SET, &element(SEQUENCE, &attribute)))
    }

    /// Encodes a certificate by RFC 5280, section 4.1, with a signature that is not valid.
    fn certificate(has_version: bool, subject: &[u8]) -> Vec<u8> {
        let version = if has_version {
            element(VERSION, &element(INTEGER, &[2]))
        } else {
            Vec::new()
        };
        // Ed25519, RFC 8410.
        let algorithm = element(SEQUENCE, &element(OBJECT_IDENTIFIER, &[0x2b, 0x65, 0x70]));
        let times = [
            element(UTC_TIME, b"250101000000Z"),
            element(UTC_TIME, b"350101000000Z"),
        ]
        .concat();
        let public_key = [&algorithm[..], &element(BIT_STRING, &[0; 33])].concat();
        let to_be_signed = [
            version,
            element(INTEGER, &[7]),
            algorithm.clone(),
            common_name("Test authority"),
            element(SEQUENCE, &times),
            subject.to_vec(),
            element(SEQUENCE, &public_key),
        ];
        let signature = element(BIT_STRING, &[0; 65]);
        element(
            SEQUENCE,
            &[
                element(SEQUENCE, &to_be_signed.concat()),
                algorithm,
                signature,
            ]
            .concat(),
        )
    }

    #[test]
    fn the_subject_is_found_in_certificates_with_and_without_a_version() {
        for name in [common_name("acme"), common_name(&"a".repeat(300))] {
            assert_eq!(subject(&certificate(true, &name)), Some(&name[..]));
            assert_eq!(subject(&certificate(false, &name)), Some(&name[..]));
        }
    }

    #[test]
    fn an_empty_subject_is_no_subject() {
        assert_eq!(subject(&certificate(true, &element(SEQUENCE, b""))), None);
    }

    #[test]
    fn bytes_that_are_not_a_whole_certificate_have_no_subject() {
        let whole = certificate(true, &common_name("acme"));
        assert!((0..whole.len()).all(|length| subject(&whole[..length]).is_none()));
        assert_eq!(subject(&[SEQUENCE, 0x80, 0, 0]), None);
        assert_eq!(subject(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            subject(&bytes);
            let mut certificate = certificate(true, &common_name("acme"));
            for (at, byte) in changes {
                let at = at.index(certificate.len());
                certificate[at] = byte;
            }
            subject(&certificate);
        }
    }
}
