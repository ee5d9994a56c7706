//! Calls over TLS: the peer's address and the client's certificate.

use std::net::SocketAddr;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tollgate::Limiter;
use tollgate_tonic::key::{ClientCertificate, Metadata, PeerIp};
use tollgate_tower::KeyExtractor;
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig, Identity, Server, ServerTlsConfig},
};

use crate::support::*;

/// Signs certificates for servers and clients.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "Test authority");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn sign(&self, subject: Option<&str>) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(subject) = subject {
            params.distinguished_name.push(DnType::CommonName, subject);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity::from_pem(certificate.pem(), key.serialize_pem())
    }

    pub(crate) async fn server(&self, limiter: Limiter, key: impl KeyExtractor) -> SocketAddr {
        let tls = ServerTlsConfig::new()
            .identity(self.sign(Some("server")))
            .client_ca_root(Certificate::from_pem(&self.pem))
            .client_auth_optional(true);
        let mut server = Server::builder()
            .tls_config(tls)
            .unwrap()
            .layer(tollgate_tonic::layer(limiter, key));
        serve(server.add_service(EchoServer::new(Echoing))).await
    }

    async fn client(&self, server: SocketAddr, identity: Option<Identity>) -> EchoClient<Channel> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.pem))
            .domain_name("localhost");
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        let endpoint = Channel::from_shared(format!("https://{server}"))
            .unwrap()
            .tls_config(tls)
            .unwrap();
        EchoClient::new(endpoint.connect().await.unwrap())
    }
}

#[tokio::test]
async fn calls_of_each_kind_are_allowed_and_denied_over_tls() {
    let authority = Authority::new();
    let server = authority
        .server(limiter(MANY), Metadata::new("x-api-key"))
        .await;
    for result in call_each_method(&mut authority.client(server, None).await).await {
        result.unwrap();
    }
    let server = authority
        .server(limiter(TWO), Metadata::new("x-api-key"))
        .await;
    let mut client = authority.client(server, None).await;
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
    for result in call_each_method(&mut client).await {
        assert_eq!(result.unwrap_err().code(), Code::ResourceExhausted);
    }
}

#[tokio::test]
async fn the_peer_address_is_found_with_and_without_tls() {
    let authority = Authority::new();
    let server = authority.server(limiter(TWO), PeerIp).await;
    assert_eq!(
        codes(&mut authority.client(server, None).await, "acme", 3).await,
        TWO_OF_THREE
    );
    let mut plain = client_behind(tollgate_tonic::layer(limiter(TWO), PeerIp)).await;
    assert_eq!(codes(&mut plain, "acme", 3).await, TWO_OF_THREE);
}

#[tokio::test]
async fn a_renewed_certificate_with_the_same_subject_has_the_same_key() {
    let authority = Authority::new();
    let server = authority.server(limiter(TWO), ClientCertificate).await;
    let mut acme = authority
        .client(server, Some(authority.sign(Some("acme"))))
        .await;
    assert_eq!(codes(&mut acme, "", 2).await, TWO_OF_THREE[..2]);
    let mut renewed = authority
        .client(server, Some(authority.sign(Some("acme"))))
        .await;
    assert_eq!(codes(&mut renewed, "", 1).await, TWO_OF_THREE[2..]);
    let mut other = authority
        .client(server, Some(authority.sign(Some("other"))))
        .await;
    assert_eq!(codes(&mut other, "", 3).await, TWO_OF_THREE);
}

#[tokio::test]
async fn a_client_without_certificate_or_subject_has_no_key() {
    let authority = Authority::new();
    let server = authority.server(limiter(TWO), ClientCertificate).await;
    for (identity, expected) in [
        (None, "the client sent no certificate"),
        (
            Some(authority.sign(None)),
            "the client's certificate has no subject",
        ),
    ] {
        let status = authority
            .client(server, identity)
            .await
            .unary(message("hello"))
            .await
            .unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::InvalidArgument, expected)
        );
    }
}
