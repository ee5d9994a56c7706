//! TLS for gRPC.

use std::{fs, path::Path};

use tempfile::TempDir;
use tollgate_envoy::{
    GrpcListen, Health, Server, TlsFiles,
    proto::ratelimit::{
        rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
    },
};
use tollgate_tests::{Authority, authority::Signed, wait};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::support::{LIMIT, Running, service, tenant};

/// The files of a server.
struct Files {
    directory: TempDir,
}

impl Files {
    fn new(signed: &Signed) -> Self {
        let files = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        files.write(signed);
        files
    }

    fn write(&self, signed: &Signed) {
        fs::write(self.path("key.pem"), &signed.key).unwrap();
        fs::write(self.path("certificate.pem"), &signed.certificate).unwrap();
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn plain(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.path("certificate.pem"),
            key: self.path("key.pem"),
            client_authorities: None,
            client_name: None,
        }
    }

    fn mutual(&self, clients: &Authority, name: Option<&str>) -> TlsFiles {
        fs::write(self.path("clients.pem"), clients.pem()).unwrap();
        TlsFiles {
            client_authorities: Some(self.path("clients.pem")),
            client_name: name.map(str::to_owned),
            ..self.plain()
        }
    }
}

/// Makes a call on a connection of its own.
async fn call(
    server: &Running,
    authority: &Authority,
    identity: Option<&Signed>,
) -> Result<Code, String> {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority.pem()))
        .domain_name("localhost");
    if let Some(signed) = identity {
        tls = tls.identity(Identity::from_pem(&signed.certificate, &signed.key));
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", server.grpc))
        .unwrap()
        .tls_config(tls)
        .unwrap();
    let channel = endpoint
        .connect()
        .await
        .map_err(|error| error.to_string())?;
    let answer = RateLimitServiceClient::new(channel)
        .should_rate_limit(tenant("acme"))
        .await;
    answer
        .map(|answer| answer.into_inner().overall_code())
        .map_err(|status| status.to_string())
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_is_served_and_no_other() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let files = Files::new(&ours.sign());
    let server = Running::start_with(service(), |server| server.tls(files.plain())).await;
    assert_eq!(call(&server, &ours, None).await, Ok(Code::Ok));
    assert!(call(&server, &other, None).await.is_err());
    // A client without TLS gets no answer.
    let plain = Endpoint::from_shared(format!("http://{}", server.grpc))
        .unwrap()
        .connect()
        .await;
    if let Ok(channel) = plain {
        assert!(
            RateLimitServiceClient::new(channel)
                .should_rate_limit(tenant("acme"))
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn a_client_needs_a_certificate_of_the_right_authority_and_name() {
    let (ours, clients, other) = (
        Authority::new("ours"),
        Authority::new("clients"),
        Authority::new("other"),
    );
    let files = Files::new(&ours.sign());
    let tls = files.mutual(&clients, Some("localhost"));
    let server = Running::start_with(service(), |server| server.tls(tls)).await;
    assert_eq!(
        call(&server, &ours, Some(&clients.sign())).await,
        Ok(Code::Ok)
    );
    assert!(call(&server, &ours, None).await.is_err());
    assert!(call(&server, &ours, Some(&other.sign())).await.is_err());
    assert!(
        call(&server, &ours, Some(&clients.sign_expired()))
            .await
            .is_err()
    );
    assert!(
        call(&server, &ours, Some(&clients.sign_elsewhere()))
            .await
            .is_err()
    );
    assert_eq!(
        call(&server, &ours, Some(&clients.sign())).await,
        Ok(Code::Ok)
    );
}

#[tokio::test]
async fn changed_certificates_are_used_and_wrong_ones_are_not() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let files = Files::new(&first.sign());
    let server = Running::start_with(service(), |server| server.tls(files.plain())).await;
    assert_eq!(call(&server, &first, None).await, Ok(Code::Ok));
    fs::write(files.path("certificate.pem"), "no certificate").unwrap();
    assert_eq!(call(&server, &first, None).await, Ok(Code::Ok));
    files.write(&second.sign());
    wait::until_async("the second certificate", LIMIT, async || {
        call(&server, &second, None).await.is_ok()
    })
    .await;
    assert!(call(&server, &first, None).await.is_err());
}

#[tokio::test]
async fn files_that_are_wrong_at_the_start_are_named() {
    let authority = Authority::new("ours");
    let files = Files::new(&authority.sign());
    let bind = async |tls| {
        let server = Server::builder(service(), Health::new().await)
            .grpc(GrpcListen::Tcp("127.0.0.1".to_owned(), 0));
        server.tls(tls).bind().await.unwrap_err().to_string()
    };
    let missing = TlsFiles {
        key: Path::new("/nowhere/key.pem").to_owned(),
        ..files.plain()
    };
    let message = bind(missing).await;
    assert!(
        message.starts_with("cannot read /nowhere/key.pem"),
        "{message}"
    );
    fs::write(files.path("key.pem"), authority.sign().key).unwrap();
    let message = bind(files.plain()).await;
    assert!(
        message.starts_with("the certificate and the key do not fit"),
        "{message}"
    );
    fs::write(files.path("certificate.pem"), "").unwrap();
    assert_eq!(
        bind(files.plain()).await,
        "the certificate has no certificate in PEM"
    );
}
