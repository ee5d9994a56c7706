//! What the project's tests start and steer: Redis servers, a fault proxy, example programs.
//!
//! The crates use this library in their own tests, so it knows nothing of Tollgate, and needs no Redis client: it
//! speaks the little it has to say to a server by itself. Everything it starts listens on 127.0.0.1 on a free port and
//! ends with the value that started it, or with the test process if that dies first.
//!
//! It panics where something is missing or does not come about in time, and says what: a test that cannot run has
//! failed, it is never skipped.
//!
//! ```
//! use tollgate_tests::{Mode, Proxy, RedisServer, Reply};
//!
//! let server = RedisServer::start();
//! assert_eq!(server.command(&["SET", "greeting", "hello"]), Reply::Simple("OK".into()));
//!
//! let proxy = Proxy::start(server.addr());
//! proxy.set(Mode::Refuse); // whoever goes through the proxy is now turned away
//! assert_eq!(server.command(&["GET", "greeting"]).text(), "hello");
//! ```

pub mod authority;
mod child_guard;
mod client;
mod clock;
mod log;
pub mod machine;
pub mod network_namespace;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod refusing_state;
mod reply;
pub mod server;
pub mod wait;

pub use authority::Authority;
pub use client::Client;
pub use clock::WallClock;
pub use log::Log;
pub use network_namespace::NetworkNamespace;
pub use process::Process;
pub use proxy::{Mode, Proxy};
pub use refusing_state::RefusingState;
pub use reply::Reply;
pub use server::{Builder, RedisCluster, RedisSentinels, RedisServer};
