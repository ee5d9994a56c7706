//! Certificates and keys for the connection to a control plane.
//! Those that the server shows to its own clients are in `server/tls.rs`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Sets the files for TLS to a control plane. All are in PEM, and are read for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdsTls {
    /// The CA certificates that verify the control plane. `None` stands for the CA certificates of
    /// the platform.
    pub authorities: Option<PathBuf>,
    /// The certificate and the private key of this client.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the certificate of the control plane must have. `None` stands for the host of
    /// the address.
    pub name: Option<String>,
}

impl AdsTls {
    /// Reads the files. Returns the text of an error if that fails.
    pub(super) fn config(&self) -> Result<ClientTlsConfig, String> {
        let read = |path: &Path| {
            fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        let mut config = match &self.authorities {
            Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        if let Some(name) = &self.name {
            config = config.domain_name(name);
        }
        Ok(config)
    }
}
