//! Connections: where they come from, and the one that all checks share.
//! Calls and their answers are in `server/`; nothing here knows a check.

// The dialer opens the stream that a connection watches, and TLS wraps it: `dialer`, `connection` and
// `tls` know each other.

mod connection;
mod dial_state;
mod dialer;
mod pool;
mod sentinel;
mod shared;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;

pub(crate) use connection::Connection;
pub(crate) use dial_state::Numbered;
pub(crate) use dialer::{Address, ConnectionTemplate, Dialer, Streams};
pub(crate) use pool::Pool;
pub(crate) use sentinel::{MasterWatch, Sentinels};
pub(crate) use shared::{ConnectionSource, SharedConnection};
pub(crate) use tls::Certificates;
