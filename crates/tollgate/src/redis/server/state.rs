use std::{
    fmt,
    sync::{Arc, Weak},
};

use redis::{Cmd, RedisResult, Value};

use super::{breaker::Breaker, health::Health, not_executed::CallError};
use crate::{
    Error, ErrorKind, Key, Policy, PolicySet,
    clock::Clock,
    redis::{
        connect::{Connection, MasterWatch, SharedConnection},
        protocol::{self, ErrorClass},
    },
    store::{Deadline, ReservationId},
};

/// The space that one key takes in a call. Reserved before a call with many keys is written.
pub(super) const KEY_BYTES: usize = 64;

/// Represents one server: the shared connection to it, its health, and the settings of every call.
pub(in crate::redis) struct Server {
    config: ServerConfig,
    /// The beginning of every key: the prefix, and the brace that opens the hash tag.
    key_head: String,
    shared: Arc<SharedConnection>,
    pub(super) health: Health,
    is_in_cluster: bool,
    me: Weak<Self>,
}

impl Server {
    pub(in crate::redis) fn new(shared: Arc<SharedConnection>, config: ServerConfig, is_in_cluster: bool) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            key_head: format!("{}:{{", config.prefix),
            config,
            shared,
            health: Health::new(),
            is_in_cluster,
            me: Weak::clone(me),
        })
    }

    pub(super) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    pub(in crate::redis) fn breaker(&self) -> &Breaker {
        &self.health.breaker
    }

    /// Returns whether there is a connection.
    #[cfg(feature = "metrics")]
    pub(in crate::redis) fn is_connected(&self) -> bool {
        self.shared.is_up()
    }

    /// Waits until the breaker has opened since it had this epoch.
    pub(in crate::redis) async fn until_opened_after(&self, epoch: u64) {
        self.health.until_opened_after(epoch).await;
    }

    /// Returns whether the server is part of a cluster, so that it has some of the slots only.
    pub(in crate::redis) fn is_in_cluster(&self) -> bool {
        self.is_in_cluster
    }

    pub(in crate::redis) fn prefix(&self) -> &str {
        &self.config.prefix
    }

    /// Returns the clock that decides instead of the server's.
    pub(in crate::redis) fn clock(&self) -> Option<&Clock> {
        self.config.clock.as_ref()
    }

    /// Returns the time argument of a script. −1 stands for the server's own clock.
    pub(in crate::redis) fn now(&self) -> f64 {
        self.clock().map_or(-1.0, |clock| clock.now_us() as f64)
    }

    /// Returns the error of a call that is not sent, while the breaker is open.
    pub(in crate::redis) fn refusal(&self) -> Option<Error> {
        self.breaker().is_open().then(|| self.health.refusal())
    }

    /// Returns the error of a check that is not sent: the breaker is open, or its deadline is too short for the round
    /// trip.
    #[inline]
    pub(in crate::redis) fn refusal_within(&self, deadline: Option<Deadline>) -> Option<Error> {
        self.refusal().or_else(|| self.health.refusal_as_far(deadline?.timeout()))
    }

    /// Returns the error of a check that waited while the breaker opened, or was refused for it.
    pub(in crate::redis) fn last_refusal(&self) -> Error {
        self.health.refusal()
    }

    /// Returns the error of a call that was sent before the breaker opened.
    pub(in crate::redis) fn overtaken(&self) -> Error {
        match self.health.refusal() {
            refusal if refusal.kind() == ErrorKind::CircuitOpen => {
                Error::new(ErrorKind::Timeout, "redis did not answer in time")
            }
            refusal => refusal,
        }
    }

    /// Notes an answer.
    pub(super) fn heard(&self) {
        self.health.heard();
    }

    /// Counts a call that missed its deadline.
    pub(in crate::redis) fn missed(&self, deadline: Option<Deadline>) {
        self.health.probe(&self.me, self.health.missed(deadline));
    }

    /// Counts a call that was answered in time.
    pub(in crate::redis) fn check_answered(&self, deadline: Option<Deadline>) {
        self.breaker().check_answered(deadline.map(Deadline::timeout));
    }

    pub(super) fn failed(&self, error: &Error) {
        self.health.probe(&self.me, self.health.failed(error));
    }

    /// Adds the keys of all policies of each subject to a command. A subject is a key with the policies that limit it.
    pub(in crate::redis) fn add_keys<'a>(
        &self,
        subjects: impl IntoIterator<Item = (&'a PolicySet, &'a Key)>,
        command: &mut Cmd,
    ) {
        let mut text = self.begin_key();
        for (policies, key) in subjects {
            for policy in policies.iter() {
                self.add_key(policy, key, &mut text, command);
            }
        }
    }

    /// Adds the keys of the states that belong to this key alone.
    pub(in crate::redis) fn add_own_keys(&self, policies: &PolicySet, key: &Key, command: &mut Cmd) {
        let mut text = self.begin_key();
        for policy in policies.iter().filter(|policy| policy.is_own(key)) {
            self.add_key(policy, key, &mut text, command);
        }
    }

    /// Adds the key of some permits.
    pub(in crate::redis) fn add_permit_key(&self, name: &str, key: &Key, command: &mut Cmd) {
        let mut text = self.begin_key();
        protocol::write_permit_key(name, key, &mut text);
        command.arg(text);
    }

    /// Adds the key of the record of a reservation.
    pub(in crate::redis) fn add_record_key(
        &self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        command: &mut Cmd,
    ) {
        let mut text = self.begin_key();
        protocol::write_record_key(policies, key, id, &mut text);
        command.arg(text);
    }

    /// Returns the head of every key, with space for a key.
    #[inline]
    fn begin_key(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.key_head.len() + 2 * KEY_BYTES);
        text.extend_from_slice(self.key_head.as_bytes());
        text
    }

    /// Adds one key. `text` begins with the head of every key, and its rest is written again.
    #[inline]
    fn add_key(&self, policy: &Policy, key: &Key, text: &mut Vec<u8>, command: &mut Cmd) {
        text.truncate(self.key_head.len());
        protocol::write_key(policy, key, text);
        command.arg(text.as_slice());
        if policy.lease().is_some() {
            text.extend_from_slice(protocol::OUTSTANDING);
            command.arg(text.as_slice());
        }
    }

    /// Returns the shared connection, and makes it if there is none.
    pub(in crate::redis) async fn connection(&self) -> Result<Connection, Error> {
        if let Some(sentinels) = self.shared.sentinels() {
            sentinels.follow(|watch| follow_master(self.weak(), watch));
        }
        self.shared.usable().await.inspect_err(|error| self.failed(error))
    }

    /// Returns the shared connection if a call may be written to it now.
    pub(in crate::redis) fn ready_connection(&self) -> Option<Connection> {
        self.shared.ready()
    }

    pub(super) fn shared(&self) -> &SharedConnection {
        &self.shared
    }

    /// Drops a connection that ended before anything was sent on it.
    pub(super) fn drop_unused(&self, connection: &Connection) {
        self.shared.broken(connection);
    }

    /// Applies an answer to the connection and to the breaker.
    pub(super) fn finish(&self, connection: &Connection, reply: RedisResult<Value>) -> Result<Value, CallError> {
        let reply = match reply {
            Ok(value) => {
                self.health.heard();
                return Ok(value);
            }
            Err(reply) => protocol::unwrapped(reply),
        };
        let error = protocol::error(&reply);
        match ErrorClass::of(&reply) {
            ErrorClass::BrokenConnection => self.shared.broken(connection),
            ErrorClass::WrongServer => {
                self.shared.broken(connection);
                self.failed(&error);
            }
            ErrorClass::Refused | ErrorClass::UnknownScript => self.health.heard(),
        }
        Err(CallError::new(&reply, error))
    }

    /// Connects to the new master at once.
    fn master_changed(&self) {
        tracing::info!("the sentinels have chosen another redis master");
        self.shared.renew();
        self.health.master_changed();
    }
}

/// Follows the master as the Sentinels name it, as long as the server is in use.
async fn follow_master(server: Weak<Server>, mut watch: MasterWatch) {
    loop {
        let current = || server.upgrade()?.shared.master();
        let changed = watch.changed(current).await.is_some();
        let Some(server) = server.upgrade() else { return };
        if changed {
            server.master_changed();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("prefix", &self.config.prefix)
            .field("connection", &self.shared)
            .field("breaker", self.breaker())
            .finish_non_exhaustive()
    }
}

/// Holds the settings that all servers of a store share.
#[derive(Clone)]
pub(in crate::redis) struct ServerConfig {
    /// The first part of every key.
    pub(in crate::redis) prefix: String,
    /// The clock that decides instead of the server's.
    pub(in crate::redis) clock: Option<Clock>,
}
