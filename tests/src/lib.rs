//! Starts and controls Redis servers, a fault proxy and example programs for tests, and has the
//! [requests](http) and the [series of metrics](Series) that tests of several crates share.
//!
//! The crates use this library in their own tests, so it does not depend on Tollgate or on a Redis
//! client. All servers listen on free ports of 127.0.0.1. They end when their value is dropped, or
//! with the test process if that dies first.
//!
//! It panics when a program is missing or a condition is not met in time, and the message says
//! which. A test that cannot run fails; those of the crates that need a server are skipped aloud where
//! there is none, see [`no_server`].
//!
//! ```
//! use tollgate_tests::{Mode, Proxy, RedisServer, Reply};
//!
//! let server = RedisServer::start();
//! assert_eq!(server.command(&["SET", "greeting", "hello"]), Reply::Simple("OK".into()));
//!
//! let proxy = Proxy::start(server.addr());
//! proxy.set(Mode::Refuse); // connections through the proxy are now refused
//! assert_eq!(server.command(&["GET", "greeting"]).text(), "hello");
//! ```

mod child_guard;
mod client;
mod clock;
mod expiry;
pub mod http;
mod log;
pub mod lying_postgres;
pub mod machine;
pub mod pgbouncer;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod rate_limit_service;
pub mod refusing_state;
mod reply;
mod series;
pub mod server;
mod skipped;
pub mod spans;
pub mod wait;

pub use client::Client;
pub use clock::WallClock;
pub use expiry::expiry_command;
pub use log::Log;
pub use lying_postgres::LyingPostgres;
pub use pgbouncer::PgBouncer;
pub use postgres::PostgresServer;
pub use process::{Process, forget_package};
pub use proxy::{Mode, Proxy};
pub use rate_limit_service::RateLimitService;
pub use refusing_state::RefusingState;
pub use reply::Reply;
pub use series::Series;
pub use server::{
    Authority, Builder, NetworkNamespace, RedisCluster, RedisSentinels, RedisServer, authority,
    network_namespace, no_server,
};
pub use skipped::skipped;
