//! Shows whether a server can decide at all: what it says that it is, and one check that it has to
//! make. Settings that only weaken limits are found in `diagnosis/`.

use std::sync::atomic::Ordering;

use redis::{Cmd, Value};

use super::{Call, Server};
use crate::protocol::{self, Purpose, ScriptsOf};
use tollgate_core::{
    Cost, Decision, Error, ErrorKind, Key, Policy, PolicySet, Quota,
    raw::{Charge, DecisionParts, runtime},
};

/// The oldest version that has `SET` with `PXAT`, which the scripts use.
const OLDEST: [u32; 2] = [6, 2];

/// What is checked: a bucket that has room for every process that connects.
const TRIED: Policy = Policy::token_bucket("connect", Quota::per_minute(1_000_000));

impl Server {
    /// Lets the server make one check, on this key, which nobody else uses and which is deleted.
    ///
    /// # Errors
    ///
    /// When the server is no master, or cannot make the check: the words say why, where the server
    /// does.
    pub(crate) async fn prove(&self, key: &Key) -> Result<(), Error> {
        // The caller reports what is found.
        self.is_explained.store(true, Ordering::Relaxed);
        if let Some(other) = self.other_role().await {
            return Err(other);
        }
        match self.try_check(key).await {
            Ok(()) => Ok(()),
            // The slot of the key is being moved.
            Err(error) if self.is_in_cluster && error.kind() == ErrorKind::ClusterMismatch => {
                Ok(())
            }
            Err(error) => Err(self.too_old(&error).await.unwrap_or(error)),
        }
    }

    async fn try_check(&self, key: &Key) -> Result<(), Error> {
        let (set, charge) = (PolicySet::from(TRIED), Charge::from(Cost::ONE));
        let script = set.shape().script(Purpose::Check, false);
        let call = Call::of(script, true, set.len(), |command| {
            self.add_keys([(&set, key)], command);
            command.arg(&*protocol::pack(self.now(), charge.borrow(), &set));
        });
        let asked_us = Decision::here_us(runtime::now());
        let reply = self.query_in_time(&call.command).await?;
        let _ = protocol::decision(&set, charge.borrow(), asked_us, &reply)?;
        let mut delete = redis::cmd("DEL");
        self.add_keys([(&set, key)], &mut delete);
        // Where it may not be deleted, it expires after a minute.
        let _ = self.query_in_time(&delete).await;
        Ok(())
    }

    /// Logs once why the server refuses to decide, where it says so itself. A store that connected
    /// before its first check has reported it.
    pub(super) fn ask_why(&self, refusal: &Error) {
        let says_little = matches!(refusal.kind(), ErrorKind::Protocol | ErrorKind::ReadOnly);
        if !says_little || self.is_explained.swap(true, Ordering::Relaxed) {
            return;
        }
        let (Ok(current), me, refusal) = (runtime::current(), self.me.clone(), refusal.clone())
        else {
            return;
        };
        current.spawn(async move {
            let Some(server) = me.upgrade() else {
                return;
            };
            let why = match server.other_role().await {
                Some(other) => Some(other),
                None => server.too_old(&refusal).await,
            };
            if let Some(why) = why {
                tracing::warn!(reason = why.kind().as_str(), "{why}");
            }
        });
    }

    /// Returns an error when the server says that it is no master. A user without the right to ask
    /// is not refused for it.
    async fn other_role(&self) -> Option<Error> {
        let Ok(Value::Array(role)) = self.query_in_time(&redis::cmd("ROLE")).await else {
            return None;
        };
        let server = self.shared.server();
        match &*text(role.first()?) {
            "slave" => Some(Error::new(
                ErrorKind::ReadOnly,
                format!(
                    "{server} is a replica and decides nothing: name its master, or the Sentinels that know it"
                ),
            )),
            "sentinel" => Some(Error::config(format!(
                "{server} is a Sentinel and decides nothing: write redis+sentinel://, its host and port, and /NAME of the master"
            ))),
            _ => None,
        }
    }

    /// Returns an error that names the version when it explains a refused script.
    async fn too_old(&self, refusal: &Error) -> Option<Error> {
        if refusal.kind() != ErrorKind::Protocol {
            return None;
        }
        let about = self.query_in_time(&info("server")).await.ok()?;
        Some(Error::new(refusal.kind(), version(&text(&about))?))
    }
}

/// Returns the command that asks a server for a part of what it says about itself.
pub(crate) fn info(section: &str) -> Cmd {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    command
}

/// Returns the text of a reply, and an empty one for anything else.
pub(crate) fn text(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

/// Returns a field of what a server says about itself.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Returns what is wrong with the version of a server, by what it says about itself.
pub(crate) fn version(about: &str) -> Option<String> {
    // Valkey also reports the version of Redis that it is compatible with.
    let reported = field(about, "redis_version")?;
    let mut numbers = reported
        .split('.')
        .map(|number| number.parse().unwrap_or(0));
    let version = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
    let [major, minor] = OLDEST;
    // What the server sends goes to the log.
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let shown = match reported.len() <= 20 && reported.bytes().all(is_plain) {
        true => reported,
        false => "of an unknown version",
    };
    (version < OLDEST)
        .then(|| format!("the server is Redis {shown}, the scripts need {major}.{minor} or newer"))
}
