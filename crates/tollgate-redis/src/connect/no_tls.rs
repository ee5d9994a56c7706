//! Stands in without the feature: no store has certificates, and the client library refuses a
//! `rediss://` URL.
//! With the feature, `tls.rs` has the same names.

use redis::{Client, ConnectionInfo, RedisResult};

use super::dialer::Stream;
use tollgate_core::Error;

#[derive(Clone, Default)]
pub(crate) struct Certificates(());

impl Certificates {
    pub(crate) fn is_some(&self) -> bool {
        false
    }

    pub(crate) fn client(&self, _: &ConnectionInfo, _: bool) -> Result<Option<Client>, Error> {
        Ok(None)
    }

    pub(super) fn connector(&self, _: &str) -> Option<Connector> {
        None
    }
}

/// There is none.
pub(super) enum Connector {}

impl Connector {
    pub(super) async fn connect<S>(self, _: S) -> RedisResult<Box<dyn Stream>> {
        match self {}
    }
}
