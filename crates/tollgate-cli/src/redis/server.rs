//! Connects to a server, and sends it commands.

use std::time::Duration;

use clap::Args;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, Pipeline, RedisError,
    RedisResult, Value, aio::MultiplexedConnection,
};

use crate::failure::Failure;

/// The options of all commands that use a server.
#[derive(Args, Debug)]
pub(crate) struct RedisOptions {
    /// Connects to redis://user:password@host:port/db, rediss://… or redis+unix:///path
    #[arg(
        long = "redis",
        value_name = "URL",
        env = "TOLLGATE_REDIS_URL",
        hide_env_values = true,
        required = true
    )]
    url: Option<String>,

    /// Sets the prefix of the store's keys; the default is the prefix in the URL (`?prefix=`), or
    /// else `tollgate`
    #[arg(long)]
    prefix: Option<String>,

    /// Sets how long the server may take to connect and to answer, in seconds
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
}

/// A connection to one server.
pub(crate) struct Server {
    connection: MultiplexedConnection,
    /// The address, without user and password.
    address: String,
    prefix: String,
    /// The way to the other masters of a cluster.
    client: Client,
    timeout: Option<Duration>,
    /// The master of a cluster that has what is published, once another one was asked for it.
    other: Option<Box<Self>>,
}

impl RedisOptions {
    /// Returns whether a server is named. A command that can do without one does not require `url`.
    pub(crate) fn is_named(&self) -> bool {
        self.url.is_some()
    }

    /// Returns the address of the server, without user and password, if the options are valid.
    pub(crate) fn address(&self) -> Result<String, Failure> {
        self.check_prefix()?;
        Ok(self.client()?.get_connection_info().addr().to_string())
    }

    /// Returns the prefix of the store's keys.
    pub(crate) fn prefix(&self) -> &str {
        let query = || {
            self.url
                .as_deref()?
                .split_once('?')?
                .1
                .split(['&', '#'])
                .find_map(|option| option.strip_prefix("prefix="))
        };
        self.prefix.as_deref().or_else(query).unwrap_or("tollgate")
    }

    /// Returns how long a server may take to connect and to answer.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Connects to the server.
    pub(crate) async fn connect(&self) -> Result<Server, Failure> {
        self.check_prefix()?;
        Server::connect(
            self.client()?,
            Some(self.timeout()),
            self.prefix().to_owned(),
        )
        .await
    }

    fn check_prefix(&self) -> Result<(), Failure> {
        let prefix = self.prefix();
        if prefix.is_empty()
            || !prefix
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'{')
        {
            let message = format!(
                "--prefix must be printable ASCII without braces and spaces, got {prefix:?}"
            );
            return Err(Failure::new(message));
        }
        Ok(())
    }

    /// Reads the URL. No message shows it, because it may hold a password.
    fn client(&self) -> Result<Client, Failure> {
        let named = self
            .url
            .as_deref()
            .ok_or_else(|| Failure::new("no server is named, expected --redis URL"))?;
        let scheme = named.split_once("://").map_or("", |(scheme, _)| scheme);
        let url = match scheme {
            "redis" | "unix" => named.to_owned(),
            "redis+unix" => named.replacen("redis+unix", "unix", 1),
            "rediss" if cfg!(feature = "tls") => {
                #[cfg(feature = "tls")]
                install_crypto();
                named.to_owned()
            }
            "rediss" => {
                return Err(Failure::new(
                    "rediss:// needs tollgate-cli with the feature tls",
                ));
            }
            "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel" => {
                let message = "the command reads one server: name a master by its own redis:// URL, each master of a \
                               cluster in turn";
                return Err(Failure::new(message));
            }
            _ => return Err(invalid_url()),
        };
        // A part of a password would count as host and port, which errors show.
        if url
            .find(['?', '#'])
            .is_some_and(|at| url[at..].contains('@'))
        {
            return Err(invalid_url());
        }
        Client::open(url).map_err(|_| invalid_url())
    }
}

fn invalid_url() -> Failure {
    Failure::new(
        "the URL in --redis is not valid, expected redis://[user:password@]host[:port][/db], rediss://… or \
         redis+unix:///path",
    )
}

/// Selects the cryptography of TLS.
#[cfg(feature = "tls")]
fn install_crypto() {
    // It fails when there is a provider already, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl Server {
    async fn connect(
        client: Client,
        timeout: Option<Duration>,
        prefix: String,
    ) -> Result<Self, Failure> {
        let address = client.get_connection_info().addr().to_string();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(timeout)
            .set_response_timeout(timeout);
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        let connection =
            connection.map_err(|error| failure("cannot connect to", &address, &error))?;
        Ok(Self {
            connection,
            address,
            prefix,
            client,
            timeout,
            other: None,
        })
    }

    /// Returns the prefix of the store's keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Sends a command.
    pub(crate) async fn command<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        let result = command.query_async(&mut self.connection).await;
        result.map_err(|error| failure("the server refused a command at", &self.address, &error))
    }

    /// Sends a command about one key to the server, or to the master of its cluster that has the
    /// key.
    pub(crate) async fn follow<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        if let Some(other) = &mut self.other {
            return other.command(command).await;
        }
        let error = match command.query_async(&mut self.connection).await {
            Err(error) if error.redirect_node().is_some() => error,
            result => {
                return result.map_err(|error| {
                    failure("the server refused a command at", &self.address, &error)
                });
            }
        };
        let moved = || failure("the server refused a command at", &self.address, &error);
        let (host, port) = error
            .redirect_node()
            .and_then(|(address, _)| address.rsplit_once(':'))
            .ok_or_else(moved)?;
        let port = port.parse().map_err(|_| moved())?;
        let info = self.client.get_connection_info().clone();
        let address = match info.addr().clone() {
            // A server without a name of its own leaves out the host, which is then the one that
            // was asked.
            ConnectionAddr::Tcp(asked, _) => ConnectionAddr::Tcp(host_or(host, asked), port),
            ConnectionAddr::TcpTls {
                host: asked,
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host: host_or(host, asked),
                port,
                insecure,
                tls_params,
            },
            _ => return Err(moved()),
        };
        let client = Client::open(info.set_addr(address)).map_err(|_| moved())?;
        let other = Box::new(Self::connect(client, self.timeout, self.prefix.clone()).await?);
        self.other.insert(other).command(command).await
    }

    /// Sends several commands, and returns a reply for each. A command for a value of another type
    /// has the reply nil.
    pub(crate) async fn pipeline(
        &mut self,
        commands: &mut Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let refused = |error| failure("the server refused a command at", &self.address, &error);
        let results: Vec<RedisResult<Value>> = commands
            .ignore_errors()
            .query_async(&mut self.connection)
            .await
            .map_err(refused)?;
        let reply = |result: RedisResult<Value>| match result {
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(Value::Nil),
            result => result.map_err(refused),
        };
        results.into_iter().map(reply).collect()
    }

    /// Returns the server's time in microseconds since the Unix epoch.
    pub(crate) async fn now_us(&mut self) -> Result<u64, Failure> {
        let (seconds, micros): (u64, u64) = self.command(&redis::cmd("TIME")).await?;
        Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
    }
}

fn host_or(host: &str, asked: String) -> String {
    if host.is_empty() {
        asked
    } else {
        host.to_owned()
    }
}

/// Reports a failure of the server. The words of the server are left out, because it may repeat the
/// password.
fn failure(what: &str, address: &str, error: &RedisError) -> Failure {
    let reason = if error.is_timeout() {
        "no answer in time".to_owned()
    } else if error.is_connection_refusal() {
        "the connection was refused".to_owned()
    } else if error.is_connection_dropped() {
        "the connection ended".to_owned()
    } else if error.is_io_error() && error.to_string().contains("lookup address") {
        "the name of the host was not found".to_owned()
    } else if error
        .detail()
        .is_some_and(|text| text.contains("DB index is out of range"))
    {
        "the server has no database of this number".to_owned()
    } else {
        match error.code() {
            Some("NOAUTH") => "it asks for a password (NOAUTH)".to_owned(),
            Some(code) => code.to_owned(),
            None => error.category().to_owned(),
        }
    };
    Failure::new(format_args!("{what} {address}: {reason}"))
}
