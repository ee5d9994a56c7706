//! A certificate authority for tests, and its certificates.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

use crate::server::RedisServer;

/// A certificate authority that no platform trusts.
#[derive(Debug)]
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both in PEM; for `localhost` and 127.0.0.1 unless created for another
/// name.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// Creates an authority with a new key.
    ///
    /// # Panics
    ///
    /// When no key can be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// Returns its own certificate in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Signs a valid certificate.
    #[must_use]
    pub fn sign(&self) -> Signed {
        self.signed(|_| ())
    }

    /// Signs a certificate that expired: it was valid in 2020.
    #[must_use]
    pub fn sign_expired(&self) -> Signed {
        self.signed(|params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }

    /// Signs a certificate for `elsewhere.test` only.
    #[must_use]
    pub fn sign_elsewhere(&self) -> Signed {
        self.signed(|params| {
            params.subject_alt_names = vec![SanType::DnsName(
                "elsewhere.test".try_into().expect("a name"),
            )];
        })
    }

    /// Starts a server with this certificate. It requires a client certificate of this authority
    /// where `asks` is set.
    #[must_use]
    pub fn server(&self, signed: &Signed, asks: bool) -> RedisServer {
        RedisServer::builder()
            .tls(&self.pem, &signed.certificate, &signed.key, asks)
            .start()
    }

    fn signed(&self, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("parameters");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("a certificate")
            .pem();
        Signed {
            certificate,
            key: key.serialize_pem(),
        }
    }
}
