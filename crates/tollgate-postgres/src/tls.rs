//! TLS to the server, by rustls with the platform's certificates.
//! Whether a URL asks for TLS is read in `builder.rs`.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio_postgres_rustls::MakeRustlsConnect;
use tollgate::{Error, ErrorKind};

/// Returns what begins TLS on a connection.
pub(crate) fn connector() -> Result<MakeRustlsConnect, Error> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::with_source(ErrorKind::Tls, "TLS cannot be used", error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
