//! Starts Redis servers for tests.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    net::SocketAddr,
    path::Path,
    process::{Child, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{child_guard::ChildGuard, client::Client, reply::Reply, wait};

pub mod authority;
mod binary;
mod builder;
mod cluster;
mod launch;
pub mod network_namespace;
mod sentinels;

pub use authority::Authority;
pub use binary::find as find_binary;
pub(crate) use binary::major as binary_major;
pub use binary::no_server;
pub use builder::Builder;
pub use cluster::{RedisCluster, SLOTS};
pub use network_namespace::NetworkNamespace;
pub use sentinels::{RedisSentinels, calls_of, field, keys_of};

/// The longest time in which a server ends.
const ENDING: Duration = Duration::from_secs(60);

/// A Redis (or Valkey) server on a free port of 127.0.0.1, empty and without persistence.
///
/// Dropping the value ends the server and removes its directory. Both happen with the test process
/// at the latest.
///
/// The methods take `&self`, so that one thread can kill the server that others use. They panic
/// when the server refuses; the message contains its log.
pub struct RedisServer {
    settings: Builder,
    port: u16,
    tls_port: Option<u16>,
    directory: TempDir,
    running: Mutex<Option<Running>>,
    connection: Mutex<Option<Client>>,
}

/// The guard is declared before the process, and therefore dropped before it.
#[derive(Debug)]
struct Running {
    _guard: ChildGuard,
    process: Child,
}

impl RedisServer {
    /// Starts a server with the default options, and waits until it answers.
    ///
    /// # Panics
    ///
    /// When there is no server binary, or the server does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder of a server with other options.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns its port, which does not change.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.settings.at(self.port)
    }

    /// Returns its TLS port, see [`Builder::tls`].
    ///
    /// # Panics
    ///
    /// When it does not use TLS.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("the server speaks no TLS")
    }

    /// Returns its URL, with the password if it has one. A store may take a minute to connect by
    /// it, because a machine that stands still for a moment exceeds the second that is usual.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.addr()) + "?connect_timeout=1m"
    }

    /// Returns its URL with another address, as that of a [`Proxy`](crate::Proxy) in front of it,
    /// and without options.
    #[must_use]
    pub fn url_at(&self, addr: SocketAddr) -> String {
        match &self.settings.password {
            Some(password) => format!("redis://:{}@{addr}/", escaped(password)),
            None => format!("redis://{addr}/"),
        }
    }

    /// Returns the number of its process.
    ///
    /// # Panics
    ///
    /// When it is not running.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running()
            .as_ref()
            .expect("the server is not running")
            .process
            .id()
    }

    /// Returns whether its process exists; that of a paused server does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running()
            .as_mut()
            .is_some_and(|it| matches!(it.process.try_wait(), Ok(None)))
    }

    /// Returns its directory, with its configuration, its log and its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns its log, over all its restarts.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.directory.path().join(launch::LOG)).map_or_else(
            |_| String::new(),
            |log| String::from_utf8_lossy(&log).into_owned(),
        )
    }

    /// Kills it (SIGKILL) and waits until it is gone. Does nothing if it is not running.
    pub fn kill(&self) {
        self.disconnect();
        if let Some(mut running) = self.running().take() {
            running.end();
        }
    }

    /// Ends it as an operator does (SIGTERM), and waits until it is gone.
    ///
    /// # Panics
    ///
    /// When it was not running, or does not end.
    pub fn stop(&self) -> ExitStatus {
        self.disconnect();
        let mut running = self.running().take().expect("the server is not running");
        // A paused process would get the signal only once it goes on.
        for signal in [Signal::TERM, Signal::CONT] {
            running.signal(signal).expect("it is our process");
        }
        wait::until_some("the server to end", ENDING, || {
            running.process.try_wait().expect("it is our process")
        })
    }

    /// Kills it if it runs, and starts it again on the same port, empty.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn restart(&self) {
        self.kill();
        let running = wait::until_some("the port to be free again", ENDING, || {
            launch::launch(
                &self.settings,
                self.directory.path(),
                self.port,
                self.tls_port,
            )
            .ok()
        });
        *self.running() = Some(running);
    }

    /// Stops its process (SIGSTOP): connections stay open, the kernel accepts bytes, no answer
    /// comes. Returns once the process has stopped.
    ///
    /// # Panics
    ///
    /// When it is not running.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        #[cfg(target_os = "linux")]
        {
            // "pid (name) STATE …", and T is stopped.
            let stat = format!("/proc/{}/stat", self.pid());
            wait::until("the server to pause", ENDING, || {
                fs::read_to_string(&stat).is_ok_and(|stat| {
                    stat.rsplit(')')
                        .next()
                        .is_some_and(|it| it.starts_with(" T"))
                })
            });
        }
    }

    /// Resumes a paused server. It then executes what was sent to it meanwhile.
    ///
    /// # Panics
    ///
    /// When it is not running.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Opens a connection, and logs in if there is a password.
    ///
    /// # Panics
    ///
    /// When the server refuses it.
    #[must_use]
    pub fn client(&self) -> Client {
        launch::sign_in(self.addr(), self.settings.password.as_deref())
            .unwrap_or_else(|error| panic!("no connection to the server: {error}\n{}", self.log()))
    }

    /// Sends one command, over a connection that the value keeps, and returns the reply, which may
    /// be an error.
    ///
    /// # Panics
    ///
    /// When the connection breaks or there is no reply for 30 seconds.
    pub fn command<A: AsRef<[u8]>>(&self, words: &[A]) -> Reply {
        self.with_connection(|client| client.command(words))
    }

    /// Sends any number of commands without waiting in between, and returns their replies in order.
    ///
    /// # Panics
    ///
    /// As [`RedisServer::command`].
    #[must_use]
    pub fn pipeline(&self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        self.with_connection(|client| client.pipeline(commands))
    }

    /// Returns the fields of a section of `INFO`, or of several: `"commandstats"`, `"all"`.
    #[must_use]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        launch::fields(&self.command(&["INFO", section]).text())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Counts the calls of `command` since the start: `server.calls("evalsha")`.
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.info("commandstats");
        // calls=3,usec=120,…
        stats
            .get(&format!("cmdstat_{command}"))
            .map_or(0, |stat| number_in(stat, "calls"))
    }

    /// Counts the keys, and those that expire.
    #[must_use]
    pub fn keys_and_expires(&self) -> (u64, u64) {
        let keyspace = self.info("keyspace");
        // db0:keys=3,expires=3,avg_ttl=…
        keyspace.values().fold((0, 0), |(keys, expires), database| {
            (
                keys + number_in(database, "keys"),
                expires + number_in(database, "expires"),
            )
        })
    }

    fn with_connection<T>(&self, talk: impl FnOnce(&mut Client) -> io::Result<T>) -> T {
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Put back only after a conversation that ended well: a late reply must not answer the next
        // command.
        let mut client = connection.take().unwrap_or_else(|| self.client());
        match talk(&mut client) {
            Ok(answer) => {
                *connection = Some(client);
                answer
            }
            Err(error) => panic!("the server did not answer: {error}\n{}", self.log()),
        }
    }

    fn disconnect(&self) {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    fn signal(&self, signal: Signal) {
        let running = self.running();
        let running = running.as_ref().expect("the server is not running");
        running.signal(signal).expect("it is our process");
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisServer")
            .field("addr", &self.addr())
            .finish_non_exhaustive()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running {
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        Ok(kill_process(
            pid.ok_or(io::ErrorKind::InvalidInput)?,
            signal,
        )?)
    }

    fn end(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Escapes everything but letters and digits for a URL.
fn escaped(password: &str) -> String {
    let escape = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    password.bytes().map(escape).collect()
}

fn number_in(list: &str, name: &str) -> u64 {
    list.split(',')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
