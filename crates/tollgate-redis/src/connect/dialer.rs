//! Opens one connection to one server: address, TLS, sign-in, and new passwords while it lives.
//! When it is opened is decided in `shared.rs`; what is known of it afterwards is in `connection/`.

use std::{io, pin::Pin, sync::Arc};

use futures_util::future::select_ok;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisResult,
    aio::{MultiplexedConnection, PubSub},
    io::tcp::{TcpSettings, socket2::SockRef},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    task::JoinSet,
    time::sleep,
};

use super::{
    connection::{Bounded, Driver, Watched, Wire},
    tls::{Certificates, Connector},
};
use crate::protocol::{self, ErrorClass, ReplyBound, StreamError};
use tollgate_core::{Error, ErrorKind, ForeignText};
use tollgate_remote::credentials::{Credentials, Provider};

/// Opens connections to one server.
pub(crate) struct Dialer {
    client: Client,
    /// Opens the streams. `None` when the address of the client leads to the server.
    streams: Option<Streams>,
    /// The words for the server in errors and in the log.
    server: String,
    /// The certificates of the store. A client of the application has its own.
    certificates: Option<Certificates>,
    /// Is asked for user and password. `None` when they are those of the client.
    provider: Option<Provider>,
}

/// A function of the application that opens streams to the server.
#[derive(Clone)]
pub(crate) struct Streams(Arc<dyn Fn() -> Opening + Send + Sync>);

type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

impl Streams {
    /// The words for the server, whose address is not known.
    const SERVER: &str = "the redis server that the application dials";

    pub(crate) fn new<F, D, S>(dial: F) -> Self
    where
        F: Fn() -> D + Send + Sync + 'static,
        D: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self(Arc::new(move || {
            let dialled = dial();
            Box::pin(async move { Ok(Box::new(dialled.await?) as Box<dyn Stream>) })
        }))
    }
}

/// A new connection and its record.
pub(super) struct Opened {
    pub(super) multiplexed: MultiplexedConnection,
    pub(super) wire: Arc<Wire>,
    /// The task that drives the connection. `None` when the client library drives it.
    pub(super) driver: Option<Driver>,
    /// The task that signs it in again, if it is needed.
    pub(super) renewal: JoinSet<()>,
    /// The server is spoken to without TLS, and may expect it.
    pub(super) may_want_tls: bool,
}

impl Opened {
    pub(super) fn driven_elsewhere(multiplexed: MultiplexedConnection) -> Self {
        Self {
            multiplexed,
            wire: Wire::unwatched(),
            driver: None,
            renewal: JoinSet::new(),
            may_want_tls: false,
        }
    }
}

impl Dialer {
    /// Dials by the settings of this client, with the certificates of the store and as the user that
    /// a provider names, where there are any.
    pub(crate) fn new(
        client: Client,
        certificates: Option<&Certificates>,
        provider: Option<&Provider>,
    ) -> Self {
        let server = match client.get_connection_info().addr() {
            // A Sentinel or a server of a cluster may have named the host.
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                let shown = ForeignText(host);
                match host.contains(':') {
                    true => format!("redis at [{shown}]:{port}"),
                    false => format!("redis at {shown}:{port}"),
                }
            }
            // A path is not shown: it may be meant to be secret.
            _ => "redis at a unix socket".to_owned(),
        };
        Self {
            client,
            streams: None,
            server,
            certificates: certificates.cloned(),
            provider: provider.cloned(),
        }
    }

    /// Opens the streams by a function of the application. The address of the client has the name
    /// for TLS alone.
    pub(crate) fn with_streams(self, streams: Streams) -> Self {
        Self {
            streams: Some(streams),
            server: Streams::SERVER.to_owned(),
            ..self
        }
    }

    pub(super) fn provider(&self) -> Option<&Provider> {
        self.provider.as_ref()
    }

    /// Returns whether the server is spoken to without TLS where it may expect it.
    fn may_want_tls(&self) -> bool {
        let info = self.client.get_connection_info();
        self.streams.is_none() && matches!(info.addr(), ConnectionAddr::Tcp(..))
    }

    /// Returns the words for the server: `redis at`, and its host and port.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Connects, and sends user, password and database. When the server refuses the credentials of
    /// a provider, tries those that it has now.
    pub(super) async fn open(&self, bound: &ReplyBound) -> Result<Opened, Error> {
        let Some(provider) = &self.provider else {
            return self.open_as(&self.client, bound).await;
        };
        let unknown = |error| {
            let message = format!("cannot connect to {}: {error}", self.server);
            Error::new(ErrorKind::Authentication, message)
        };
        let mut credentials = provider.newest().await.map_err(unknown)?;
        let mut opened = self.open_with(&credentials, bound).await;
        let is_refusal = |error: &Error| error.kind() == ErrorKind::Authentication;
        if opened.as_ref().is_err_and(is_refusal)
            && let Some(others) = provider.instead_of(&credentials).await.map_err(unknown)?
        {
            opened = self.open_with(&others, bound).await;
            credentials = others;
        }
        let mut opened = opened?;
        let user = self.client.get_connection_info().redis_settings();
        let renewal = Renewal {
            provider: provider.clone(),
            credentials,
            user: user.username().map(str::to_owned),
            connection: opened.multiplexed.clone(),
            wire: Arc::clone(&opened.wire),
        };
        opened.renewal.spawn(renewal.run());
        Ok(opened)
    }

    async fn open_with(
        &self,
        credentials: &Credentials,
        bound: &ReplyBound,
    ) -> Result<Opened, Error> {
        let info = self.client.get_connection_info().clone();
        let mut settings = info.redis_settings().clone();
        if let Some(user) = credentials.user() {
            settings = settings.set_username(user);
        }
        let settings = settings.set_password(credentials.password());
        let client = Client::open(info.set_redis_settings(settings))
            .map_err(|error| protocol::error(&error))?;
        self.open_as(&client, bound).await
    }

    async fn open_as(&self, client: &Client, bound: &ReplyBound) -> Result<Opened, Error> {
        self.try_open(client, bound)
            .await
            .map_err(|error| protocol::connecting(&self.server, self.may_want_tls(), &error))
    }

    async fn try_open(&self, client: &Client, bound: &ReplyBound) -> RedisResult<Opened> {
        let (settings, wire) = (
            client.get_connection_info().redis_settings(),
            Wire::watched(),
        );
        let Some(stream) = self.stream(bound, &wire).await? else {
            let multiplexed = client
                .get_multiplexed_async_connection_with_config(&unlimited())
                .await?;
            return Ok(Opened::driven_elsewhere(multiplexed));
        };
        let (multiplexed, driver) =
            MultiplexedConnection::new_with_config(settings, stream, unlimited()).await?;
        let driver = Driver::start(driver, &wire);
        Ok(Opened {
            driver: Some(driver),
            wire,
            may_want_tls: self.may_want_tls(),
            ..Opened::driven_elsewhere(multiplexed)
        })
    }

    /// Connects for messages, and sends user and password.
    pub(super) async fn listen(&self) -> RedisResult<PubSub> {
        match self
            .stream(&ReplyBound::default(), &Wire::watched())
            .await?
        {
            Some(stream) => {
                PubSub::new(self.client.get_connection_info().redis_settings(), stream).await
            }
            None => self.client.get_async_pubsub().await,
        }
    }

    /// Opens the stream here where that is possible.
    ///
    /// The client library reports neither when its connection ends, nor whether a call that failed
    /// was sent, and it keeps a reply of any length. A TLS client of the application keeps its
    /// settings to itself, so the client library opens that connection.
    async fn stream(
        &self,
        bound: &ReplyBound,
        wire: &Arc<Wire>,
    ) -> RedisResult<Option<Bounded<Box<dyn Stream>>>> {
        let info = self.client.get_connection_info();
        if let Some(Streams(open)) = &self.streams {
            let stream = Watched::new(open().await?, wire);
            let stream: Box<dyn Stream> = match info.addr() {
                ConnectionAddr::TcpTls { host, .. } => self.over_tls(host, stream).await?,
                _ => Box::new(stream),
            };
            return Ok(Some(Bounded::new(stream, bound, wire)));
        }
        let stream: Box<dyn Stream> = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Box::new(Watched::new(
                tcp(host, *port, info.tcp_settings()).await?,
                wire,
            )),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Box::new(Watched::new(
                tokio::net::UnixStream::connect(path).await?,
                wire,
            )),
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                ..
            } => {
                let Some(connector) = self.connector(host) else {
                    return Ok(None);
                };
                let stream = tcp(host, *port, info.tcp_settings()).await?;
                connector.connect(Watched::new(stream, wire)).await?
            }
            _ => return Ok(None),
        };
        Ok(Some(Bounded::new(stream, bound, wire)))
    }
}

impl Dialer {
    fn connector(&self, host: &str) -> Option<Connector> {
        self.certificates.as_ref()?.connector(host)
    }

    /// Speaks TLS on a stream of the application, to a server of this name.
    async fn over_tls(
        &self,
        host: &str,
        stream: Watched<Box<dyn Stream>>,
    ) -> RedisResult<Box<dyn Stream>> {
        let Some(connector) = self.connector(host) else {
            let none =
                "there is no trusted root certificate, or the name in server_url is not valid";
            return Err(StreamError::error(ErrorKind::Config, none).into());
        };
        connector.connect(stream).await
    }
}

/// Signs a connection in again with each new credentials, so that it outlives those before. The
/// commands around `AUTH` are executed as ever.
struct Renewal {
    provider: Provider,
    /// The credentials that the server accepted last.
    credentials: Credentials,
    /// The user of credentials that name none.
    user: Option<String>,
    connection: MultiplexedConnection,
    wire: Arc<Wire>,
}

impl Renewal {
    async fn run(mut self) {
        loop {
            let newer = self.provider.changed_from(&self.credentials).await;
            let mut sign_in = redis::cmd("AUTH");
            if let Some(user) = newer.user().or(self.user.as_deref()) {
                sign_in.arg(user);
            }
            sign_in.arg(newer.password());
            self.wire.asks(1);
            match sign_in.query_async::<()>(&mut self.connection).await {
                Ok(()) => self.credentials = newer,
                Err(error) if ErrorClass::of(&error) == ErrorClass::BrokenConnection => return,
                Err(error) => {
                    // The server may not know them yet. The old ones remain in force.
                    let error = protocol::error(&error);
                    tracing::debug!(%error, "redis refuses credentials on a live connection");
                    sleep(Provider::RETRY).await;
                    let _ = self.provider.instead_of(&newer).await;
                }
            }
        }
    }
}

/// The calls that the connection accepts before its task has written the first one.
const MOST_UNWRITTEN: usize = 1_024;

/// Returns the settings without limits of time. Each check has its own deadline, and the shared
/// connection limits the time for connecting.
fn unlimited() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(MOST_UNWRITTEN)
}

/// A stream to a server, with TLS or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connects to the first address of the host that accepts.
async fn tcp(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port))
        .await
        .map(Iterator::collect)
        .unwrap_or_default();
    if addresses.is_empty() {
        return Err(StreamError::error(
            ErrorKind::Unavailable,
            "the name of the host was not found",
        ));
    }
    let (stream, _) = select_ok(
        addresses
            .into_iter()
            .map(|address| Box::pin(TcpStream::connect(address))),
    )
    .await?;
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(&stream);
    if let Some(keep_alive) = settings.keepalive() {
        socket.set_tcp_keepalive(keep_alive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(stream)
}

/// Names a server: host and port.
pub(crate) type Address = (String, u16);

/// The settings for servers whose addresses become known at run time, from Sentinels or from
/// a cluster.
pub(crate) struct ConnectionTemplate {
    pub(crate) info: ConnectionInfo,
    pub(crate) tls: Certificates,
    pub(crate) provider: Option<Provider>,
}

impl ConnectionTemplate {
    /// Returns the dialer for the server at this address.
    pub(crate) fn dialer(&self, (host, port): &Address) -> Result<Dialer, Error> {
        let (host, port) = (host.clone(), *port);
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        let info = self.info.clone().set_addr(addr);
        let client = match self.tls.client(&info, false)? {
            Some(client) => client,
            None => Client::open(info).map_err(|error| protocol::error(&error))?,
        };
        Ok(Dialer::new(client, Some(&self.tls), self.provider.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    fn server(host: &str) -> String {
        let info = "redis://known:1".into_connection_info().expect("a URL");
        let template = ConnectionTemplate {
            info,
            tls: Certificates::default(),
            provider: None,
        };
        let dialer = template.dialer(&(host.to_owned(), 7_000)).expect("a host");
        dialer.server().to_owned()
    }

    #[test]
    fn a_host_that_a_server_named_is_shown_without_signs_that_forge_lines_and_cut() {
        assert_eq!(server("10.0.0.1"), "redis at 10.0.0.1:7000");
        assert_eq!(server("::1"), "redis at [::1]:7000");
        assert_eq!(
            server("a\u{1b}[2J\nforged"),
            "redis at a\\u{1b}[2J\\nforged:7000"
        );
        let long = server(&"x".repeat(100_000));
        assert!(long.len() < 300, "{}", long.len());
    }
}
