use std::{io, sync::Arc};

use futures_util::future::select_ok;
#[cfg(unix)]
use redis::ConnectionAddr::Unix;
use redis::{
    AsyncConnectionConfig, Client,
    ConnectionAddr::Tcp,
    ConnectionInfo, RedisResult,
    aio::MultiplexedConnection,
    io::tcp::{TcpSettings, socket2::SockRef},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};

use super::wire::{Driver, Watched, Wire};

/// Opens connections to one server.
#[derive(Clone)]
pub(in crate::redis) struct Dialer {
    client: Client,
}

/// A new connection, with the record of what happens on it.
pub(super) struct Opened {
    pub(super) multiplexed: MultiplexedConnection,
    pub(super) wire: Arc<Wire>,
    /// The task that drives the connection. `None` when the client library drives it.
    pub(super) driver: Option<Driver>,
}

impl Dialer {
    pub(in crate::redis) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Connects, and sends user, password and database.
    ///
    /// The stream is opened here where that is possible. The client library tells neither when its connection ends, nor
    /// whether a call that failed was sent. A TLS client of the application keeps its settings to itself, so the client
    /// library opens that connection.
    pub(super) async fn open(&self) -> RedisResult<Opened> {
        let info = self.client.get_connection_info();
        match info.addr() {
            Tcp(host, port) => watch(info, tcp(host, *port, info.tcp_settings()).await?).await,
            #[cfg(unix)]
            Unix(path) => watch(info, tokio::net::UnixStream::connect(path).await?).await,
            _ => {
                let config = unlimited();
                let multiplexed = self.client.get_multiplexed_async_connection_with_config(&config).await?;
                Ok(Opened { multiplexed, wire: Wire::unwatched(), driver: None })
            }
        }
    }
}

/// Returns the settings without limits. Each check has its own deadline, and the shared connection limits the time for
/// connecting.
fn unlimited() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None)
}

async fn watch<S>(info: &ConnectionInfo, stream: S) -> RedisResult<Opened>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let wire = Wire::watched();
    let stream = Watched::new(stream, &wire);
    let opened = MultiplexedConnection::new_with_config(info.redis_settings(), stream, unlimited()).await?;
    let (multiplexed, driver) = opened;
    Ok(Opened { multiplexed, wire, driver: Some(Driver::start(driver)) })
}

/// Connects to the first address of the host that accepts.
async fn tcp(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    let (stream, _) = select_ok(addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)))).await?;
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(&stream);
    if let Some(keep_alive) = settings.keepalive() {
        socket.set_tcp_keepalive(keep_alive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(stream)
}
