//! Stands in without the feature: no store has certificates, and the client library refuses a
//! `rediss://` URL.
//! With the feature, `tls.rs` has the same names.

use redis::{Client, ConnectionInfo, RedisResult};

use super::dialer::Stream;
use crate::Error;

#[derive(Clone, Default)]
pub(in crate::redis) struct Certificates(());

impl Certificates {
    pub(in crate::redis) fn is_some(&self) -> bool {
        false
    }

    pub(in crate::redis) fn client(
        &self,
        _: &ConnectionInfo,
        _: bool,
    ) -> Result<Option<Client>, Error> {
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
