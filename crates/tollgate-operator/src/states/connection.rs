//! The states in Redis: connects to a server, and sends it commands.
//! PostgreSQL has the same calls in `table.rs`, and `server.rs` chooses between both.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, Pipeline, RedisError,
    RedisResult, Value, aio::MultiplexedConnection,
};
use tollgate::{
    Quota,
    store::{Exception, ExceptionCall, ExceptionList, ExceptionReply, StoredState},
};

use super::{
    entry::StateEntry,
    reading::Looked,
    state_key::{Kind, StateKey},
    wanted::Wanted,
};
use crate::error::{OperatorError, OperatorErrorKind};

/// A connection to one server.
pub(super) struct Connection {
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

impl Connection {
    pub(super) async fn open(
        client: Client,
        timeout: Option<Duration>,
        prefix: String,
    ) -> Result<Self, OperatorError> {
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
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Sends a command.
    pub(super) async fn command<T: FromRedisValue>(
        &mut self,
        command: &Cmd,
    ) -> Result<T, OperatorError> {
        let result = command.query_async(&mut self.connection).await;
        result.map_err(|error| failure("the server refused a command at", &self.address, &error))
    }

    /// Sends a command about one key to the server, or to the master of its cluster that has the
    /// key.
    async fn follow<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, OperatorError> {
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
        let other = Box::new(self.moved(&error).await?);
        self.other.insert(other).command(command).await
    }

    /// Connects to the master of a cluster to which an error leads.
    async fn moved(&self, error: &RedisError) -> Result<Self, OperatorError> {
        let moved = || failure("the server refused a command at", &self.address, error);
        let (host, port) = error
            .redirect_node()
            .and_then(|(address, _)| address.rsplit_once(':'))
            .ok_or_else(moved)?;
        let port = port.parse().map_err(|_| moved())?;
        let info = self.client.get_connection_info().clone();
        let mut address = info.addr().clone();
        let (to_host, to_port) = match &mut address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (host, port)
            }
            _ => return Err(moved()),
        };
        // A server without a name of its own leaves out the host, which is then the one that was
        // asked.
        if !host.is_empty() {
            host.clone_into(to_host);
        }
        *to_port = port;
        let client = Client::open(info.set_addr(address)).map_err(|_| moved())?;
        Self::open(client, self.timeout, self.prefix.clone()).await
    }

    /// Sends several commands, and returns a reply for each. A command for a value of another type
    /// has the reply nil.
    async fn pipeline(&mut self, commands: &mut Pipeline) -> Result<Vec<Value>, OperatorError> {
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
    pub(super) async fn now_us(&mut self) -> Result<u64, OperatorError> {
        let (seconds, micros): (u64, u64) = self.command(&redis::cmd("TIME")).await?;
        Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
    }

    pub(super) async fn keys(
        &mut self,
        wanted: &Wanted,
        place: &[u8],
        count: u64,
    ) -> Result<(Vec<Vec<u8>>, Option<Vec<u8>>), OperatorError> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(if place.is_empty() { &b"0"[..] } else { place })
            .arg("MATCH")
            .arg(wanted.pattern(&self.prefix))
            .arg("COUNT")
            .arg(count);
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = self.command(&scan).await?;
        Ok((keys, Some(next).filter(|next| next != b"0")))
    }

    pub(super) async fn look(
        &mut self,
        keys: &[(Option<Quota>, StateKey)],
    ) -> Result<(u64, Vec<Looked>), OperatorError> {
        let now_us = self.now_us().await?;
        let mut commands = redis::pipe();
        for (quota, key) in keys {
            let name = key.redis_key(&self.prefix);
            commands.cmd("PTTL").arg(&name);
            // Of a list, its length and the unit that has to leave before one more fits.
            if key.kind.is_log() {
                let last = quota.map_or(0, |quota| quota.burst().saturating_sub(1));
                commands
                    .cmd("LLEN")
                    .arg(&name)
                    .cmd("LINDEX")
                    .arg(&name)
                    .arg(last);
            } else {
                commands.cmd("GET").arg(&name);
            }
        }
        let mut results = self.pipeline(&mut commands).await?.into_iter();
        let mut next = || results.next().unwrap_or(Value::Nil);
        let look = |(_, key): &(Option<Quota>, StateKey)| {
            let (left, value) = (next(), next());
            let marked = if key.kind.is_log() {
                next()
            } else {
                Value::Nil
            };
            let expires_ms = match left {
                // The state has expired meanwhile.
                Value::Int(-2) => return Looked::Nothing,
                Value::Int(left) => u64::try_from(left).unwrap_or(0),
                _ => 0,
            };
            match stored(key.kind, &value) {
                Some(stored) => Looked::State {
                    stored,
                    expires_ms,
                    marked_us: unit(&marked),
                },
                None => Looked::Foreign,
            }
        };
        Ok((now_us, keys.iter().map(look).collect()))
    }

    pub(super) async fn value(
        &mut self,
        key: &str,
    ) -> Result<Option<(u64, Vec<u8>, u64)>, OperatorError> {
        let now_us = self.now_us().await?;
        let mut commands = redis::pipe();
        commands.cmd("GET").arg(key).cmd("PTTL").arg(key);
        let replies = self.pipeline(&mut commands).await?;
        let [Value::BulkString(value), Value::Int(left)] = &replies[..] else {
            return Ok(None);
        };
        let left = u64::try_from(*left).unwrap_or(0);
        Ok(Some((now_us, value.clone(), left)))
    }

    pub(super) async fn unit(&mut self, key: &str, at: u64) -> Result<Option<u64>, OperatorError> {
        let entry = self.command(redis::cmd("LINDEX").arg(key).arg(at)).await?;
        Ok(unit(&entry))
    }

    pub(super) async fn remove(&mut self, state: &StateEntry) -> Result<(), OperatorError> {
        let mut delete = redis::cmd("DEL");
        // Both keys lie in one slot of a cluster.
        delete.arg(&state.redis_key).arg(&state.held_key);
        self.command::<u64>(&delete).await.map(drop)
    }

    /// Removes a state, which another master of the cluster may have.
    pub(super) async fn remove_anywhere(&mut self, key: &StateKey) -> Result<(), OperatorError> {
        let mut delete = redis::cmd("DEL");
        delete
            .arg(key.redis_key(&self.prefix))
            .arg(key.held_key(&self.prefix));
        let removed: RedisResult<u64> = delete.query_async(&mut self.connection).await;
        match removed {
            Ok(_) => Ok(()),
            Err(error) if error.redirect_node().is_some() => {
                let mut other = Box::pin(self.moved(&error)).await?;
                other.command::<u64>(&delete).await.map(drop)
            }
            Err(error) => Err(failure(
                "the server refused a command at",
                &self.address,
                &error,
            )),
        }
    }

    /// Of a cluster, the master that has what is published is asked.
    pub(super) async fn limits(&mut self, most: usize) -> Result<Vec<Vec<u8>>, OperatorError> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(self.published("limits")).arg(0).arg(most - 1);
        self.follow(&range).await
    }

    pub(super) async fn shares(&mut self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, OperatorError> {
        self.follow(redis::cmd("HGETALL").arg(self.published("shares")))
            .await
    }

    pub(super) async fn set_share(
        &mut self,
        limiter: &str,
        percent: Option<u8>,
    ) -> Result<(), OperatorError> {
        let mut command = redis::cmd(if percent.is_some() { "HSET" } else { "HDEL" });
        command.arg(self.published("shares")).arg(limiter);
        if let Some(percent) = percent {
            command.arg(format!("{percent}%"));
        }
        self.follow::<u64>(&command).await.map(drop)
    }

    pub(super) async fn exceptions(
        &mut self,
        call: &ExceptionCall,
    ) -> Result<ExceptionReply, OperatorError> {
        let (id, lasts_us, end) = match call {
            ExceptionCall::Grant(exception) => exception.parts()?,
            ExceptionCall::Withdraw(id) => (id.clone(), 0, String::new()),
            _ => return self.all_exceptions().await,
        };
        let key = self.published("exceptions");
        let mut command = redis::cmd("EVAL");
        command.arg(EXCEPT).arg(1).arg(key).arg("");
        command
            .arg(version())
            .arg(id)
            .arg(lasts_us)
            .arg(end)
            .arg(ExceptionList::MAX)
            .arg(Exception::MAX.as_millis() as u64);
        let reply: Vec<String> = self.follow(&command).await?;
        let time = reply.first().and_then(|time| time.parse().ok());
        match (time, &reply[..]) {
            (Some(now_us), [_, last]) => Ok(reply_of(now_us, last)),
            (Some(_), [_, _, _]) => Err(ExceptionList::full().into()),
            _ => Err(OperatorError::unavailable(
                "the server sent an exception that is not valid",
            )),
        }
    }

    async fn all_exceptions(&mut self) -> Result<ExceptionReply, OperatorError> {
        let key = self.published("exceptions");
        let lines: Vec<Vec<u8>> = self.follow(redis::cmd("HVALS").arg(key)).await?;
        let now_us = self.published_us().await?;
        let lines: Vec<_> = lines
            .iter()
            .map(|line| String::from_utf8_lossy(line))
            .collect();
        let mut reply = reply_of(now_us, &lines.join("\n"));
        reply
            .exceptions
            .retain(|exception| exception.ends_us() > now_us);
        Ok(reply)
    }

    pub(super) async fn reports(
        &mut self,
        most: usize,
    ) -> Result<(u64, Vec<(Vec<u8>, u64)>), OperatorError> {
        let reports = self.with_times("enforced", most).await?;
        Ok((self.published_us().await?, reports))
    }

    pub(super) async fn counted(
        &mut self,
        group: &str,
        most: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, OperatorError> {
        self.with_times(group, most).await
    }

    /// Returns the texts of a set that is published, with their times.
    async fn with_times(
        &mut self,
        end: &str,
        most: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, OperatorError> {
        let mut range = redis::cmd("ZRANGE");
        range
            .arg(self.published(end))
            .arg(0)
            .arg(most - 1)
            .arg("WITHSCORES");
        let texts: Vec<(Vec<u8>, f64)> = self.follow(&range).await?;
        let at = |(text, at_us): (Vec<u8>, f64)| (text, at_us as u64);
        Ok(texts.into_iter().map(at).collect())
    }

    /// Returns the time now, by the clock of the server that has what is published.
    async fn published_us(&mut self) -> Result<u64, OperatorError> {
        match self.other.as_deref_mut() {
            Some(other) => Box::pin(other.now_us()).await,
            None => self.now_us().await,
        }
    }

    /// Returns the key of what is published, beside the sets in which the replicas count
    /// themselves.
    fn published(&self, end: &str) -> String {
        format!("{}:{{replicas}}:{end}", self.prefix)
    }
}

/// The script that grants or withdraws an exception.
const EXCEPT: &str = include_str!("../../scripts/except.lua");

// A link that was packed instead of the file would run as a script.
const _: () = assert!(EXCEPT.as_bytes()[0] == b'-');

/// Returns a text that no other call sends.
fn version() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    format!(
        "{}-{}",
        std::process::id(),
        since.unwrap_or_default().as_nanos()
    )
}

fn reply_of(now_us: u64, lines: &str) -> ExceptionReply {
    ExceptionReply::new(now_us, ExceptionList::read(lines).into_vec())
}

fn stored(kind: Kind, value: &Value) -> Option<StoredState> {
    match value {
        Value::Int(units) if kind.is_log() => u64::try_from(*units)
            .ok()
            .map(|units| StoredState::SlidingLog { units }),
        Value::BulkString(value) => StoredState::decode(kind.tag(), value),
        _ => None,
    }
}

/// Returns the time of an entry of a log.
fn unit(entry: &Value) -> Option<u64> {
    let Value::BulkString(entry) = entry else {
        return None;
    };
    let at_us = entry.first_chunk::<8>()?;
    Some(f64::from_le_bytes(*at_us) as u64)
}

/// Reports a failure of the server. The words of the server are left out, because it may repeat the
/// password.
fn failure(what: &str, address: &str, error: &RedisError) -> OperatorError {
    let reason = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connection_refusal() {
        "the connection was refused"
    } else if error.is_connection_dropped() {
        "the connection ended"
    } else if error.is_io_error() && error.to_string().contains("lookup address") {
        "the name of the host was not found"
    } else if error
        .detail()
        .is_some_and(|text| text.contains("DB index is out of range"))
    {
        "the server has no database of this number"
    } else {
        match error.code() {
            Some("NOAUTH") => "it asks for a password (NOAUTH)",
            Some(code) => code,
            None => error.category(),
        }
    };
    let kind = match error.code() {
        Some("NOPERM") => OperatorErrorKind::Forbidden,
        _ => OperatorErrorKind::Unavailable,
    };
    OperatorError::new(kind, format_args!("{what} {address}: {reason}"))
}
