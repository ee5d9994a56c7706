//! Connections: where they come from, and the one that all checks share.

mod address;
mod dial_state;
mod pool;
mod sentinel;
mod shared;
#[cfg(feature = "tls")]
mod tls;

pub(in crate::redis) use address::{Address, ConnectionTemplate};
pub(in crate::redis) use pool::Pool;
pub(in crate::redis) use sentinel::{MasterWatch, Sentinels};
pub(in crate::redis) use shared::{Connection, ConnectionSource, SharedConnection};
#[cfg(feature = "tls")]
pub(in crate::redis) use tls::Certificates;
