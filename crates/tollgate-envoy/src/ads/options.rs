use std::{fmt, path::PathBuf};

use tollgate_rules::RuleSetBuilder;

use super::Backoff;

/// The options of a client of a control plane.
#[derive(Clone)]
pub(super) struct AdsOptions {
    pub(super) server: String,
    pub(super) rules: RuleSetBuilder,
    pub(super) node_id: String,
    pub(super) node_metadata: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) tls: Option<AdsTls>,
    pub(super) backoff: Backoff,
    pub(super) max_message_bytes: usize,
}

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

impl AdsOptions {
    pub(super) fn new(server: String) -> Self {
        Self {
            server,
            rules: RuleSetBuilder::default(),
            node_id: "default".to_owned(),
            node_metadata: Vec::new(),
            headers: Vec::new(),
            tls: None,
            backoff: Backoff::default(),
            max_message_bytes: 4 << 20,
        }
    }
}

impl fmt::Debug for AdsOptions {
    /// Leaves out the values of the headers, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdsOptions")
            .field("server", &self.server)
            .field("node_id", &self.node_id)
            .field("tls", &self.tls)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}
