//! Serves gRPC, HTTP, debug pages and metrics, and ends gracefully.
//! Nothing here knows a rule or a limit: requests are decided in `service/`.

mod builder;
mod connection;
mod error;
mod grpc;
mod listen;
mod options;
mod port;
mod reading;
mod run;
mod tls;
mod unread;

pub use builder::ServerBuilder;
pub use error::ServerError;
pub use listen::GrpcListen;
pub use run::Server;
pub use tls::TlsFiles;
