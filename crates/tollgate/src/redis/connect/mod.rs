//! Connections: where they come from, and the one that all checks share.
//! Calls and their answers are in `server/`; nothing here knows a check.

mod connection;
mod dial_state;
mod dialer;
#[cfg_attr(not(feature = "pool"), path = "no_pool.rs")]
mod pool;
mod sentinel;
mod shared;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;

pub(in crate::redis) use connection::Connection;
pub(in crate::redis) use dial_state::Numbered;
pub(in crate::redis) use dialer::{Address, ConnectionTemplate, Dialer, Streams};
pub(in crate::redis) use pool::Pool;
pub(in crate::redis) use sentinel::{MasterWatch, Sentinels};
pub(in crate::redis) use shared::{ConnectionSource, SharedConnection};
pub(in crate::redis) use tls::Certificates;
