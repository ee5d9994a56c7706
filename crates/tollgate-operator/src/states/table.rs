//! The states in a table of PostgreSQL.
//! Redis has the same calls in `connection.rs`.

use std::{collections::HashMap, num::NonZeroUsize, time::Duration};

use tokio::time::timeout;
use tollgate::{
    Error, ErrorKind, Quota, Store,
    store::{ExceptionCall, ExceptionReply, StoredState},
};
use tollgate_postgres::{PostgresStore, Row};

use super::{
    reading::Looked,
    state_key::{Kind, StateKey},
    wanted::Wanted,
};
use crate::error::{OperatorError, OperatorErrorKind};

/// The table. Its keys have no prefix: here, its name stands before them.
pub(super) struct PostgresTable {
    store: PostgresStore,
    name: String,
    /// The address, without user and password.
    address: String,
    timeout: Duration,
    /// The rows that were read last, by their keys.
    rows: HashMap<Vec<u8>, Row>,
    /// The time at which they were read.
    read_us: u64,
}

/// The values beside the states.
const LIMITS: &str = "{replicas}:limits";
const SHARES: &str = "{replicas}:shares";
const ENFORCED: &str = "{replicas}:enforced:";

impl PostgresTable {
    /// Returns the address in a URL, without user and password.
    pub(super) fn address(url: &str) -> Result<String, OperatorError> {
        let (_, rest) = url.split_once("://").unwrap_or(("", url));
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // A part of a password would count as the host.
        if rest.contains('@') {
            return Err(OperatorError::refused(
                "the URL of the store is not valid, expected postgres://[user[:password]@]host[/database]",
            ));
        }
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        Ok(host.to_owned())
    }

    pub(super) async fn open(
        url: &str,
        name: &str,
        timeout: Duration,
    ) -> Result<Self, OperatorError> {
        let address = Self::address(url)?;
        // An operator makes no table, and has its name already.
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let is_other =
            |option: &&str| !option.starts_with("create=") && !option.starts_with("table=");
        let others: Vec<_> = query.split('&').filter(is_other).collect();
        let store = PostgresStore::builder(format!("{base}?{}", others.join("&")))
            .table(name)
            .connections(NonZeroUsize::MIN)
            .connect_timeout(timeout);
        let store = store
            .connect()
            .await
            .map_err(|error| failure("cannot connect to", &address, &error))?;
        Ok(Self {
            store,
            name: name.to_owned(),
            address,
            timeout,
            rows: HashMap::new(),
            read_us: 0,
        })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.name
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, OperatorError> {
        match timeout(self.timeout, call).await {
            Ok(answer) => answer
                .map_err(|error| failure("the server refused a command at", &self.address, &error)),
            Err(_) => Err(OperatorError::unavailable(format_args!(
                "the server refused a command at {}: no answer in time",
                self.address
            ))),
        }
    }

    async fn read(
        &mut self,
        begin: &[u8],
        after: &[u8],
        most: u64,
    ) -> Result<Vec<Row>, OperatorError> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let (now_us, rows) = self.call(self.store.rows(begin, after, most)).await?;
        self.read_us = now_us;
        Ok(rows)
    }

    /// Returns the value of a key of the table. It is empty when there is none.
    async fn value(&mut self, key: &str) -> Result<Vec<u8>, OperatorError> {
        let rows = self.read(key.as_bytes(), b"", 1).await?;
        let row = rows.into_iter().find(|row| row.key == key.as_bytes());
        Ok(row.map(|row| row.value).unwrap_or_default())
    }

    /// Returns the key in the table.
    fn own<'k>(&self, key: &'k str) -> &'k str {
        let own = key.strip_prefix(&self.name);
        own.and_then(|own| own.strip_prefix(':')).unwrap_or(key)
    }

    pub(super) async fn now_us(&mut self) -> Result<u64, OperatorError> {
        self.read(b"", b"", 0).await?;
        Ok(self.read_us)
    }

    pub(super) async fn keys(
        &mut self,
        wanted: &Wanted,
        place: &[u8],
        count: u64,
    ) -> Result<(Vec<Vec<u8>>, Option<Vec<u8>>), OperatorError> {
        let begin = match wanted.outermost() {
            Some(outermost) => format!("{{{outermost}}}"),
            None => "{".to_owned(),
        };
        let rows = self.read(begin.as_bytes(), place, count).await?;
        let is_last = (rows.len() as u64) < count;
        let next = rows.last().filter(|_| !is_last).map(|row| row.key.clone());
        let named = |row: &Row| [self.name.as_bytes(), b":", row.key.as_slice()].concat();
        let keys = rows.iter().map(named).collect();
        self.rows = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
        Ok((keys, next))
    }

    pub(super) async fn look(
        &mut self,
        keys: &[(Option<Quota>, StateKey)],
    ) -> Result<(u64, Vec<Looked>), OperatorError> {
        let mut looked = Vec::with_capacity(keys.len());
        for (quota, key) in keys {
            let name = key.redis_key(&self.name);
            let own = self.own(&name).as_bytes();
            let row = match self.rows.remove(own) {
                Some(row) => Some(row),
                None => {
                    let rows = self.read(own, b"", 1).await?;
                    rows.into_iter().find(|row| row.key == own)
                }
            };
            looked.push(self.looked(key.kind, quota.as_ref(), row));
        }
        Ok((self.read_us, looked))
    }

    fn looked(&self, kind: Kind, quota: Option<&Quota>, row: Option<Row>) -> Looked {
        let Some(row) = row else {
            return Looked::Nothing;
        };
        let expires_ms = row.expires_ms.saturating_sub(self.read_us / 1_000);
        // A row that has expired stays for a while.
        if expires_ms == 0 {
            return Looked::Nothing;
        }
        let Some(stored) = StoredState::decode(kind.tag(), &row.value) else {
            return Looked::Foreign;
        };
        let last = quota.map_or(0, |quota| quota.burst().saturating_sub(1));
        let marked_us = kind.is_log().then(|| unit(&row.value, last)).flatten();
        Looked::State {
            stored,
            expires_ms,
            marked_us,
        }
    }

    pub(super) async fn unit(&mut self, key: &str, at: u64) -> Result<Option<u64>, OperatorError> {
        let log = self.value(self.own(key)).await?;
        Ok(unit(&log, at))
    }

    pub(super) async fn remove(&mut self, key: &str) -> Result<(), OperatorError> {
        let own = self.own(key).as_bytes();
        self.call(self.store.replace(own, None)).await
    }

    pub(super) async fn limits(&mut self, most: usize) -> Result<Vec<Vec<u8>>, OperatorError> {
        let lines = self.value(LIMITS).await?;
        // A time, the name and the limits.
        let text = |line: &[u8]| Some(line.splitn(3, |byte| *byte == b'\t').nth(2)?.to_vec());
        let lines = lines.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(text).take(most).collect())
    }

    pub(super) async fn reports(
        &mut self,
        most: usize,
    ) -> Result<(u64, Vec<(Vec<u8>, u64)>), OperatorError> {
        let rows = self.read(ENFORCED.as_bytes(), b"", most as u64).await?;
        let now_ms = self.read_us / 1_000;
        let report = |row: Row| {
            // A row that has expired stays for a while.
            let value = Some(row.value).filter(|_| row.expires_ms > now_ms)?;
            let at = value.iter().position(|byte| *byte == b'\t')?;
            Some((value[at + 1..].to_vec(), micros(&value[..at])?))
        };
        Ok((self.read_us, rows.into_iter().filter_map(report).collect()))
    }

    pub(super) async fn counted(
        &mut self,
        group: &str,
        most: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, OperatorError> {
        let lines = self.value(&format!("{{replicas}}:{group}")).await?;
        // A time, the name and nothing.
        let process = |line: &[u8]| {
            let mut parts = line.split(|byte| *byte == b'\t');
            let at_us = micros(parts.next()?)?;
            Some((parts.next()?.to_vec(), at_us))
        };
        let lines = lines.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(process).take(most).collect())
    }

    pub(super) async fn shares(&mut self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, OperatorError> {
        let lines = String::from_utf8_lossy(&self.value(SHARES).await?).into_owned();
        let lines = lines.lines().filter_map(|line| line.split_once('='));
        let share = |(name, share): (&str, &str)| (name.into(), share.trim().into());
        Ok(lines.map(share).collect())
    }

    pub(super) async fn exceptions(
        &mut self,
        call: &ExceptionCall,
    ) -> Result<ExceptionReply, OperatorError> {
        let answer = self.store.exceptions(call.clone());
        // The list of the store refuses in its own words.
        let refused = |error: Error| match error.kind() {
            ErrorKind::Config | ErrorKind::Full => Ok(Err(error)),
            _ => Err(error),
        };
        let answer = async { answer.await.map(Ok).or_else(refused) };
        Ok(self.call(answer).await??)
    }

    pub(super) async fn set_share(
        &mut self,
        limiter: &str,
        percent: Option<u8>,
    ) -> Result<(), OperatorError> {
        let lines = String::from_utf8_lossy(&self.value(SHARES).await?).into_owned();
        let is_other = |line: &&str| {
            line.split_once('=')
                .is_some_and(|(name, _)| name != limiter)
        };
        let own = percent.map(|percent| format!("{limiter}={percent}%"));
        let kept = lines.lines().filter(is_other).map(str::to_owned);
        let lines: String = kept.chain(own).map(|line| line + "\n").collect();
        let value = Some(lines.as_bytes()).filter(|lines| !lines.is_empty());
        self.call(self.store.replace(SHARES.as_bytes(), value))
            .await
    }
}

/// Returns a time in milliseconds as microseconds.
fn micros(millis: &[u8]) -> Option<u64> {
    let millis: u64 = str::from_utf8(millis).ok()?.parse().ok()?;
    Some(millis.saturating_mul(1_000))
}

/// Returns the time of a unit of a log, whose entries have their lengths before them.
fn unit(mut log: &[u8], at: u64) -> Option<u64> {
    for _ in 0..at {
        let (length, rest) = log.split_first()?;
        log = rest.get(usize::from(*length)..)?;
    }
    let at_us = log.get(1..)?.first_chunk::<8>()?;
    Some(f64::from_le_bytes(*at_us) as u64)
}

/// Reports a failure of the server. Its words show no key and no password.
fn failure(what: &str, address: &str, error: &Error) -> OperatorError {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => OperatorErrorKind::Forbidden,
        _ => OperatorErrorKind::Unavailable,
    };
    OperatorError::new(kind, format_args!("{what} {address}: {error}"))
}
