//! The key extractor that reads the subject of a verified TLS certificate of the client.
//! Addresses of clients come from `tollgate_tower`; metadata and methods are read in `metadata.rs`
//! and `method.rs`.

use der::{Decode, Reader, SliceReader, Tag, TagNumber, Tagged, asn1::AnyRef};
use http::request::Parts;
use tollgate::Key;
use tollgate_tower::{
    KeyExtractor,
    key::{Extraction, KeyError},
};
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};

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
/// The TLS library has verified the certificate already. So what stands before the subject is
/// passed over, and what follows is not read: a certificate with an unusual extension still has a
/// subject.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let mut certificate = fields(certificate)?;
    let mut signed = fields(certificate.tlv_bytes().ok()?)?;
    if signed.peek_tag().ok()? == VERSION {
        signed.tlv_bytes().ok()?;
    }
    for _ in ["number", "algorithm", "issuer", "validity"] {
        signed.tlv_bytes().ok()?;
    }
    let subject = signed.tlv_bytes().ok()?;
    (!fields(subject)?.is_finished()).then_some(subject)
}

/// The tag of a certificate's version. Certificates of version 1 have no such field.
const VERSION: Tag = Tag::ContextSpecific {
    constructed: true,
    number: TagNumber::N0,
};

/// Returns a reader of the fields of a sequence; `None` when the bytes are none.
fn fields(sequence: &[u8]) -> Option<SliceReader<'_>> {
    let sequence = AnyRef::from_der(sequence).ok()?;
    sequence.tag().assert_eq(Tag::Sequence).ok()?;
    SliceReader::new(sequence.value()).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(subject: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let pair = KeyPair::generate().expect("a pair of keys");
        params
            .self_signed(&pair)
            .expect("a certificate")
            .der()
            .to_vec()
    }

    // Replicas of other releases count by the same bytes.
    #[test]
    fn the_key_is_the_subject_as_the_certificate_has_it() {
        let made = certificate(&[(DnType::CountryName, "DE"), (DnType::CommonName, "acme")]);
        let expected = [
            b"\x30\x1c\x31\x0b\x30\x09\x06\x03\x55\x04\x06\x0c\x02DE".as_slice(),
            b"\x31\x0d\x30\x0b\x06\x03\x55\x04\x03\x0c\x04acme",
        ];
        assert_eq!(subject(&made), Some(expected.concat().as_slice()));
    }

    #[test]
    fn what_is_no_certificate_and_what_is_cut_has_no_subject() {
        let made = certificate(&[(DnType::CommonName, "acme")]);
        assert!(subject(&made).is_some());
        for len in 0..made.len() {
            assert_eq!(subject(&made[..len]), None, "{len} bytes");
        }
        for bytes in [b"acme".as_slice(), b"\x30\x02\x30\x00", b"\x31\x02\x30\x00"] {
            assert_eq!(subject(bytes), None, "{bytes:?}");
        }
        assert_eq!(subject(&certificate(&[])), None);
    }

    #[test]
    fn a_certificate_of_version_1_has_a_subject() {
        // Without the version, and with one field of each other kind.
        let fields = b"\x02\x01\x07\x30\x00\x30\x00\x30\x00\x30\x02\x31\x00";
        let signed = [b"\x30\x0d".as_slice(), fields].concat();
        let made = [b"\x30\x0f".as_slice(), &signed].concat();
        assert_eq!(subject(&made), Some(b"\x30\x02\x31\x00".as_slice()));
    }
}
