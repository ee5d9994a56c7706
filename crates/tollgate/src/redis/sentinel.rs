use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use redis::{AsyncConnectionConfig, Client, Value, aio::MultiplexedConnection};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    connection::Connection,
    fault,
    servers::{Node, Servers},
};
use crate::{Error, ErrorKind, reason::Reason};

/// The Sentinels of a master, and how to speak to the servers they name.
///
/// Who the master is, is asked when a connection is made, told by a Sentinel when it changes
/// (`+switch-master`), and asked again each second, in case nobody told.
pub(super) struct Sentinels {
    sentinels: Vec<Sentinel>,
    master: String,
    servers: Servers,
    newest: Mutex<Newest>,
    is_watched: AtomicBool,
}

struct Sentinel {
    client: Client,
    /// Kept between questions.
    line: tokio::sync::Mutex<Option<MultiplexedConnection>>,
}

/// The newest that is known of the master.
#[derive(Default)]
struct Newest {
    /// The Sentinels number their decisions.
    epoch: u64,
    told: Option<(Node, Instant)>,
}

/// What one Sentinel takes for the master.
struct Answer {
    epoch: u64,
    node: Node,
}

/// How often it is asked who the master is, when nobody tells.
const AGAIN: Duration = Duration::from_secs(1);

/// How long after the first answer the other Sentinels are waited for: one of them may know better.
const GRACE: Duration = Duration::from_millis(50);

/// What a Sentinel tells is taken for true so long, before all are asked again: the others learn of
/// it within seconds.
const TOLD: Duration = Duration::from_secs(3);

/// How long a Sentinel has for an answer.
const PATIENCE: Duration = Duration::from_millis(500);

const SWITCHED: &str = "+switch-master";

impl Sentinels {
    pub(super) fn new(clients: Vec<Client>, master: String, servers: Servers) -> Arc<Self> {
        let sentinel = |client| Sentinel { client, line: tokio::sync::Mutex::default() };
        Arc::new(Self {
            sentinels: clients.into_iter().map(sentinel).collect(),
            master,
            servers,
            newest: Mutex::default(),
            is_watched: AtomicBool::new(false),
        })
    }

    /// A connection to the master, which says itself that it is.
    pub(super) async fn connect(
        self: &Arc<Self>,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Node), Error> {
        let node = match self.told() {
            Some(node) => node,
            None => self.ask().await?,
        };
        let client = self.servers.client(&node)?;
        let connected = client.get_multiplexed_async_connection_with_config(config).await;
        let mut connection = connected.map_err(|error| fault::error(&error))?;
        match redis::cmd("ROLE").query_async::<Value>(&mut connection).await {
            Ok(Value::Array(role)) if role.first().is_some_and(|role| !is_text(role, "master")) => {
                // What was told is not, or no longer, true.
                self.lock().told = None;
                Err(Error::new(Reason::ReadOnly, "the server that the sentinels name is no master"))
            }
            Ok(_) => Ok((connection, node)),
            Err(error) if fault::error(&error).cause() == Reason::Acl => Ok((connection, node)),
            Err(error) => Err(fault::error(&error)),
        }
    }

    /// Who the master is: of several answers the one of the newest decision.
    async fn ask(self: &Arc<Self>) -> Result<Node, Error> {
        let mut asked = JoinSet::new();
        for at in 0..self.sentinels.len() {
            let sentinels = Arc::clone(self);
            asked.spawn(async move { timeout(PATIENCE, sentinels.ask_one(at)).await });
        }
        let mut newest: Option<Answer> = None;
        let mut failure = None;
        let mut until = Instant::now() + PATIENCE * 2;
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            match answer {
                Ok(Ok(Ok(answer))) => {
                    if newest.is_none() {
                        until = Instant::now() + GRACE;
                    }
                    if newest.as_ref().is_none_or(|newest| answer.epoch > newest.epoch) {
                        newest = Some(answer);
                    }
                }
                Ok(Ok(Err(error))) => failure = Some(error),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        let Some(Answer { epoch, node }) = newest else {
            return Err(failure.unwrap_or_else(|| Error::new(Reason::Timeout, "no sentinel answered in time")));
        };
        let mut known = self.lock();
        if epoch < known.epoch {
            return Err(Error::new(ErrorKind::Unavailable, "the sentinels that answer know less than those that did"));
        }
        known.epoch = epoch;
        Ok(node)
    }

    async fn ask_one(&self, at: usize) -> Result<Answer, Error> {
        let Sentinel { client, line } = &self.sentinels[at];
        let mut line = line.lock().await;
        let mut connection = match line.take() {
            Some(connection) => connection,
            None => {
                let config =
                    AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(None);
                let connected = client.get_multiplexed_async_connection_with_config(&config).await;
                connected.map_err(|error| fault::error(&error))?
            }
        };
        let question = |what| redis::cmd("SENTINEL").arg(what).arg(&self.master).to_owned();
        let (address, master) = (question("GET-MASTER-ADDR-BY-NAME"), question("MASTER"));
        let node: Option<Node> = address.query_async(&mut connection).await.map_err(|error| fault::error(&error))?;
        let Some(node) = node else {
            return Err(Error::config("the sentinels know no master of the name that was given"));
        };
        let master: HashMap<String, String> =
            master.query_async(&mut connection).await.map_err(|error| fault::error(&error))?;
        *line = Some(connection);
        let epoch = master.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(Answer { epoch, node })
    }

    /// What a Sentinel told just now.
    fn told(&self) -> Option<Node> {
        self.lock().told.as_ref().filter(|(_, at)| at.elapsed() < TOLD).map(|(node, _)| node.clone())
    }

    /// A panic while the lock is held leaves what is known whole, so the lock is never poisoned.
    fn lock(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sees to it that changes of the master are noticed for as long as the store is there.
    pub(super) fn watch(self: &Arc<Self>, connection: &Weak<Connection>) {
        if self.is_watched.load(Ordering::Relaxed) || self.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        // Dropped with the tasks, also when the runtime is shut down under them.
        let watched = Arc::new(Watched(Arc::clone(self)));
        for at in 0..self.sentinels.len() {
            let (watched, connection) = (Arc::clone(&watched), Weak::clone(connection));
            tokio::spawn(async move { watched.0.listen(at, &connection).await });
        }
        let connection = Weak::clone(connection);
        tokio::spawn(async move { watched.0.look(&connection).await });
    }

    /// Listens to one Sentinel, again when it went away.
    async fn listen(self: &Arc<Self>, at: usize, connection: &Weak<Connection>) {
        while connection.strong_count() > 0 {
            let _ = self.listen_once(at, connection).await;
            sleep(AGAIN.mul_f64(0.2 + fastrand::f64())).await;
        }
    }

    async fn listen_once(self: &Arc<Self>, at: usize, connection: &Weak<Connection>) -> redis::RedisResult<()> {
        let subscribing = async {
            let mut subscribed = self.sentinels[at].client.get_async_pubsub().await?;
            subscribed.subscribe(SWITCHED).await?;
            redis::RedisResult::Ok(subscribed)
        };
        let Ok(subscribed) = timeout(PATIENCE * 2, subscribing).await else { return Ok(()) };
        let mut subscribed = subscribed?;
        let mut messages = pin!(subscribed.on_message());
        while connection.strong_count() > 0 {
            let Ok(message) = timeout(AGAIN, messages.next()).await else { continue };
            let Some(message) = message else { break };
            let text: String = message.get_payload()?;
            if let Some(node) = switched(&text, &self.master) {
                self.moved(node, connection);
            }
        }
        Ok(())
    }

    /// Asks each second, and notices what nobody told.
    async fn look(self: &Arc<Self>, connection: &Weak<Connection>) {
        loop {
            sleep(AGAIN.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
            let Some(held) = connection.upgrade() else { return };
            let current = held.link().node();
            drop(held);
            if self.told().is_none()
                && let Some(current) = current
                && let Ok(node) = self.ask().await
                && node != current
            {
                self.moved(node, connection);
            }
        }
    }

    /// The master is another one now: a new connection at once, and nothing more on the old.
    fn moved(&self, node: Node, connection: &Weak<Connection>) {
        let Some(connection) = connection.upgrade() else { return };
        // All Sentinels tell it.
        let is_news = self.told().as_ref() != Some(&node) && connection.link().node().as_ref() != Some(&node);
        self.lock().told = Some((node, Instant::now()));
        if is_news {
            tracing::info!("the sentinels have chosen another redis master");
            connection.moved();
        }
    }
}

/// The watch of the Sentinels of one store.
struct Watched(Arc<Sentinels>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.is_watched.store(false, Ordering::Relaxed);
    }
}

/// The new address in `name old-host old-port new-host new-port`.
fn switched(message: &str, master: &str) -> Option<Node> {
    let mut words = message.split(' ');
    let name = words.next()?;
    let [_, _, host, port] = [words.next()?, words.next()?, words.next()?, words.next()?];
    Some((host.to_owned(), port.parse().ok()?)).filter(|_| name == master)
}

fn is_text(value: &Value, expected: &str) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == expected.as_bytes(),
        Value::SimpleString(text) => text == expected,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_understood_and_others_are_not() {
        let message = "m 10.0.0.1 6379 10.0.0.2 6380";
        assert_eq!(switched(message, "m"), Some(("10.0.0.2".to_owned(), 6380)));
        assert_eq!(switched("m ::1 6379 fe80::2 6380", "m"), Some(("fe80::2".to_owned(), 6380)));
        for (message, master) in [(message, "n"), ("m 10.0.0.1 6379 10.0.0.2 port", "m"), ("m", "m"), ("", "m")] {
            assert_eq!(switched(message, master), None, "{message:?} of {master}");
        }
    }
}
