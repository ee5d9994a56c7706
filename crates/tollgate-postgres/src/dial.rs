//! Makes connections: with the credentials that a provider has now, within the bound of replies, and
//! with the settings of the session. Where credentials come from is in `credentials` of the core, TLS in
//! `tls.rs`, the pool that asks here in `builder.rs`.

use std::{
    future::{self, Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
};
#[cfg(unix)]
use std::{io, path::Path};

use deadpool_postgres::Connect;
use futures_util::future::{Either, select};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error, NoTls, SimpleQueryMessage,
    config::{Host, SslMode, SslNegotiation},
};
use tollgate_core::{ErrorKind, ForeignText};
use tollgate_remote::credentials::{Credentials, Provider};

use crate::{
    error::sorted,
    replies::ReplyBound,
    seldom::Seldom,
    stream::{Bounded, Process},
    tls::{Begin, Tls},
};

/// Sets what a session begins with, if the process of the server is the one that the connection
/// names. Otherwise a pooler stands between, and the session would be another client's next.
///
/// A plan that reads the whole table is never right: one that was made while the table was small
/// would remain when it is large. So there is one plan, and it is made once: to make it for each
/// batch takes as long as to decide ten keys. A statement that the server cannot end soon is of no
/// use to a check.
const SESSION: &str = "SELECT set_config(name, value, false) FROM (VALUES \
    ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'), \
    ('plan_cache_mode', 'force_generic_plan'), \
    ('statement_timeout', '5s'), ('idle_in_transaction_session_timeout', '5s')\
    ) AS settings (name, value) WHERE pg_backend_pid() = ";

const READ_ONLY: &str = "SHOW transaction_read_only";

/// Makes the connections of a store.
pub(crate) struct Dialer {
    tls: Tls,
    /// Is asked before each connection, and again when the server refuses its credentials.
    provider: Option<Provider>,
    bound: ReplyBound,
    lines: Arc<Lines>,
}

/// The events of connections that are logged seldom.
#[derive(Default)]
struct Lines {
    ends: Seldom,
    notices: Seldom,
    poolers: Seldom,
}

impl Dialer {
    /// Creates a dialer for these settings.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the settings need the feature `tls`, and
    /// [`ErrorKind::Tls`] when TLS cannot be used.
    pub(crate) fn new(
        config: &Config,
        provider: Option<Provider>,
        bound: ReplyBound,
    ) -> Result<Self, tollgate_core::Error> {
        let tls = Tls::new(config)?;
        Ok(Self {
            tls,
            provider,
            bound,
            lines: Arc::default(),
        })
    }

    async fn sign_in(&self, config: &Config) -> Connected {
        let Some(provider) = &self.provider else {
            return self.connect_as(config).await;
        };
        let Ok(mut credentials) = provider.newest().await else {
            // The server refuses this, and the store then says why there are no credentials.
            return self.connect_as(config.clone().password("")).await;
        };
        // The password may change again while the server is asked. The time for connecting ends
        // this, if the provider has others for ever.
        loop {
            let outcome = self.connect_as(&with(config, &credentials)).await;
            if !outcome.as_ref().is_err_and(is_refusal) {
                return outcome;
            }
            match provider.instead_of(&credentials).await {
                Ok(Some(others)) => credentials = others,
                _ => return outcome,
            }
        }
    }

    async fn connect_as(&self, config: &Config) -> Connected {
        let process = Process::default();
        let (client, driver) = self.dial(config, &process).await?;
        let (driver, begun) = beside(driver, self.begin(&client, &process)).await;
        begun?;
        Ok((client, tokio::spawn(driver)))
    }

    /// Connects to the first host that accepts writes.
    ///
    /// The client library dials, and asks each host whether it accepts writes. It hands over a
    /// stream for TLS, and no other: so it is made to believe that TLS begins at once, and what it
    /// gets is a [`Bounded`] stream, with TLS or without. It refuses that for a socket of the
    /// system, which is dialled here.
    async fn dial(&self, config: &Config, process: &Process) -> Result<(Client, Driver), Error> {
        let hosts = config.get_hosts();
        let mut failure = None;
        for (at, host) in hosts.iter().enumerate() {
            #[cfg(unix)]
            if let Host::Unix(directory) = host
                && let Ok(stream) = socket(config, at, directory).await
            {
                let stream = Bounded::new(stream, &self.bound, process);
                let mut plain = config.clone();
                plain.ssl_mode(SslMode::Disable);
                match plain.connect_raw(stream, NoTls).await {
                    Ok((client, connection)) => {
                        let (driver, is_read_only) =
                            beside(self.drive(connection), is_read_only(&client)).await;
                        if at + 1 == hosts.len() || !is_read_only? {
                            return Ok((client, driver));
                        }
                    }
                    Err(error) => failure = Some(error),
                }
            }
        }
        if let Some(failure) = failure.filter(|_| hosts.iter().all(is_socket)) {
            return Err(failure);
        }
        let mut config = config.clone();
        config
            .ssl_mode(SslMode::Require)
            .ssl_negotiation(SslNegotiation::Direct);
        let begin = Begin::new(&self.tls, &self.bound, process);
        let (client, connection) = config.connect(begin).await?;
        Ok((client, self.drive(connection)))
    }

    /// Begins a session.
    async fn begin(&self, client: &Client, process: &Process) -> Result<(), Error> {
        let text = format!("{SESSION}{}", process.number());
        let begun = client.simple_query(&text).await?;
        let is_set = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(_));
        if !begun.iter().any(is_set)
            && let Some(count) = self.lines.poolers.count()
        {
            tracing::info!(
                count,
                "a pooler stands before postgres, so no setting of a session was changed: the role has to have them, \
                 see docs/postgres.md of tollgate"
            );
        }
        Ok(())
    }

    /// Drives a connection until it ends.
    fn drive<S, T>(&self, mut connection: Connection<S, T>) -> Driver
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let lines = Arc::clone(&self.lines);
        Box::pin(async move {
            loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    None => return,
                    Some(Ok(AsyncMessage::Notice(notice))) => {
                        if let Some(count) = lines.notices.count() {
                            tracing::info!(
                                count,
                                severity = %ForeignText(notice.severity()),
                                notice = %ForeignText(notice.message()),
                                "postgres sent a notice"
                            );
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        if let Some(count) = lines.ends.count() {
                            tracing::warn!(count, error = %sorted(&error), "a connection to postgres ended");
                        }
                        return;
                    }
                }
            }
        })
    }
}

/// Drives a connection until it ends.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

type Connected = Result<(Client, JoinHandle<()>), Error>;

impl Connect for Dialer {
    fn connect(&self, config: &Config) -> Pin<Box<dyn Future<Output = Connected> + Send + '_>> {
        let config = config.clone();
        Box::pin(async move { self.sign_in(&config).await })
    }
}

/// Waits for a call on a connection that has no task yet. A caller that gives up then leaves
/// nothing behind.
async fn beside<T>(
    driver: Driver,
    call: impl Future<Output = Result<T, Error>>,
) -> (Driver, Result<T, Error>) {
    match select(driver, pin!(call)).await {
        // The call gets the reason for which the connection has ended.
        Either::Left(((), call)) => (Box::pin(future::ready(())), call.await),
        Either::Right((outcome, driver)) => (driver, outcome),
    }
}

async fn is_read_only(client: &Client) -> Result<bool, Error> {
    let answer = client.simple_query(READ_ONLY).await?;
    Ok(answer
        .iter()
        .any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on"))))
}

fn is_socket(host: &Host) -> bool {
    !matches!(host, Host::Tcp(_))
}

/// Connects to the socket in a directory.
#[cfg(unix)]
async fn socket(
    config: &Config,
    at: usize,
    directory: &Path,
) -> io::Result<tokio::net::UnixStream> {
    let ports = config.get_ports();
    let port = ports.get(at).or(ports.first()).copied().unwrap_or(5_432);
    tokio::net::UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await
}

fn with(config: &Config, credentials: &Credentials) -> Config {
    let mut config = config.clone();
    config.password(credentials.password());
    if let Some(user) = credentials.user() {
        config.user(user);
    }
    config
}

fn is_refusal(error: &Error) -> bool {
    sorted(error).kind() == ErrorKind::Authentication
}
