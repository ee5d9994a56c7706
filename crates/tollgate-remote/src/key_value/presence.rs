//! Processes that share what keeps the bytes count themselves and show their limits in it, as they
//! do in Redis. Both are values like all others.
//! When a process does so is decided in `presence/`.

use std::{fmt::Write as _, num::NonZeroU32, sync::Arc};

use super::{KeyValue, lanes::Lanes, values::Values};
use crate::presence::{
    CALL_TIMEOUT, ExceptionNews, LAPSE_US, PROCESS, Presence, Present, REPORT_US, ReportCall,
    SUBJECT, Share,
};
use tollgate_core::{
    Error,
    raw::{
        Bytes, KeyParts,
        metrics::{self, Figures},
    },
    store::{
        Deadline, Exception, ExceptionCall, ExceptionList, ExceptionReply, Publication,
        ReplicaGroup,
    },
};

impl<K: KeyValue> Present for Lanes<K> {
    fn presence(&self) -> &Presence {
        &self.presence
    }

    async fn count(self: &Arc<Self>, groups: &[ReplicaGroup]) -> Result<Vec<NonZeroU32>, Error> {
        let names = groups.iter().map(name).collect();
        let step = |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
            let count = |name: &Vec<u8>| {
                let mut present = Lines::read(values.get(name), now_us);
                present.set(&PROCESS, "");
                let number = NonZeroU32::new(present.0.len() as u32).unwrap_or(NonZeroU32::MIN);
                present.write(values, name, now_us);
                number
            };
            names.iter().map(count).collect()
        };
        ask(self, names, step).await
    }

    async fn show(self: &Arc<Self>, limits: &[Publication]) -> Result<Vec<Share>, Error> {
        let shown: Vec<_> = limits
            .iter()
            .map(|limits| (limits.name().to_owned(), limits.to_string()))
            .collect();
        let step = move |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
            let mut present = Lines::read(values.get(&names[0]), now_us);
            for (limiter, text) in &shown {
                present.set(limiter, text);
            }
            present.write(values, &names[0], now_us);
            let shares = values.get(&names[1]).unwrap_or_default();
            let shares = String::from_utf8_lossy(shares).into_owned();
            let share = |limiter: &str| {
                let line = shares
                    .lines()
                    .find_map(|line| line.split_once('=').filter(|line| line.0 == limiter))?;
                Some(line.1.trim().as_bytes().to_vec())
            };
            shown.iter().map(|(limiter, _)| share(limiter)).collect()
        };
        ask(self, vec![name("limits"), name("shares")], step).await
    }

    /// Reads the version alone, which is short, unless it is another one.
    async fn exceptions(self: &Arc<Self>, known: String) -> Result<ExceptionNews, Error> {
        let step =
            |values: &mut Values, names: &[Vec<u8>], now_us: u64| (now_us, text(values, &names[0]));
        let (now_us, version) = ask(self, vec![name(VERSION)], step).await?;
        if version == known {
            return Ok(ExceptionNews::new(now_us, version, None));
        }
        let step = |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
            let list = ExceptionList::read(&text(values, &names[1]));
            let exceptions = Some(list.into_vec());
            ExceptionNews::new(now_us, text(values, &names[0]), exceptions)
        };
        ask(self, vec![name(VERSION), name(EXCEPTIONS)], step).await
    }

    /// A report is a value of its own, so that processes do not wait for each other's writes. The
    /// time of the call stands before it, in milliseconds.
    async fn report(self: &Arc<Self>, report: &ReportCall) -> Result<(), Error> {
        let text = report.text.clone();
        let step = move |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
            let now_ms = now_us / 1_000;
            let stamped = |text: &String| format!("{now_ms}\t{text}").into_bytes();
            let value = text.as_ref().map(stamped);
            values.set(&names[0], value, now_ms + REPORT_US / 1_000);
        };
        ask(self, vec![name(&report.name)], step).await
    }

    async fn tell(
        self: &Arc<Self>,
        reports: &[(ReplicaGroup, String)],
    ) -> Result<Vec<String>, Error> {
        let names = reports
            .iter()
            .map(|(group, _)| name(format_args!("{group}:spent")))
            .collect();
        let reports = reports.to_vec();
        let step = move |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
            let tell = |(name, (_, report)): (&Vec<u8>, &(_, String))| {
                let mut told = Lines::read(values.get(name), now_us);
                told.set(&PROCESS, report);
                let others = told.0.iter().filter(|line| line.1 != *PROCESS);
                let heard = others.map(|line| &*line.2).collect();
                told.write(values, name, now_us);
                heard
            };
            names.iter().zip(&reports).map(tell).collect()
        };
        ask(self, names, step).await
    }

    fn sample(&self) {
        let is_open = self.health.breaker.is_open();
        let figures = Figures {
            servers: 1,
            connected: usize::from(!is_open),
            breakers_open: usize::from(is_open),
            queued: self.waiting(),
            round_trip: self.presence.round_trip(),
            replicas: self.presence.last(),
        };
        metrics::record(self.backend.label(), &figures);
    }
}

/// The ends of the names of the exceptions, and of a number that each change of them raises.
const EXCEPTIONS: &str = "exceptions";
const VERSION: &str = "exceptions:version";

/// Lists, grants or withdraws exceptions.
pub(super) async fn change_exceptions<K: KeyValue>(
    lanes: &Arc<Lanes<K>>,
    call: ExceptionCall,
) -> Result<ExceptionReply, Error> {
    let step = move |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
        let mut list = ExceptionList::read(&text(values, &names[1]));
        let exceptions = list.apply(&call, now_us)?;
        if !matches!(call, ExceptionCall::List) {
            let last: u64 = text(values, &names[0]).parse().unwrap_or(0);
            let version = now_us.max(last + 1).to_string();
            let longest_us = Exception::MAX.as_micros() as u64;
            let expires_ms = (now_us + longest_us) / 1_000 + 1;
            values.set(&names[0], Some(version.into_bytes()), expires_ms);
            let lines = Some(list.to_string().into_bytes()).filter(|lines| !lines.is_empty());
            values.set(&names[1], lines, expires_ms);
        }
        Ok(ExceptionReply::new(now_us, exceptions))
    };
    ask(lanes, vec![name(VERSION), name(EXCEPTIONS)], step).await?
}

/// Returns a value as text. One that is missing is empty.
fn text(values: &Values, name: &[u8]) -> String {
    String::from_utf8_lossy(values.get(name).unwrap_or_default()).into_owned()
}

/// Returns the name of a value of all processes.
fn name(end: impl std::fmt::Display) -> Vec<u8> {
    [b"{", SUBJECT.as_bytes(), b"}:", end.to_string().as_bytes()].concat()
}

/// Changes values of all processes, unless the breaker is open.
async fn ask<K: KeyValue, T: Send + 'static>(
    lanes: &Arc<Lanes<K>>,
    names: Vec<Vec<u8>>,
    step: impl FnMut(&mut Values, &[Vec<u8>], u64) -> T + Send + 'static,
) -> Result<T, Error> {
    if let Some(refusal) = lanes.health.refusal_of(None) {
        return Err(refusal);
    }
    let deadline = Some(Deadline::after(CALL_TIMEOUT));
    let hash = lanes.hash(&SUBJECT);
    lanes.ask(hash, names, deadline, step).await
}

/// Lists who was present lately: a line for each, with a time in milliseconds, a name and a text.
struct Lines(Vec<(u64, String, String)>);

impl Lines {
    /// Reads the lines that have not lapsed.
    fn read(bytes: Option<&[u8]>, now_us: u64) -> Self {
        let text = String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let line = |line: &str| {
            let mut parts = line.splitn(3, '\t');
            let at_ms = parts.next()?.parse::<u64>().ok()?;
            // A clock that went back does not keep a process present for longer than twice.
            let is_current = at_ms.abs_diff(now_us / 1_000) < LAPSE_US / 1_000;
            let (name, text) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            is_current.then_some((at_ms, name, text))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Adds a line, or replaces the one of the same name. It is stamped when it is written.
    fn set(&mut self, name: &str, text: &str) {
        let name = name.replace(['\t', '\n', '\r'], " ");
        self.0.retain(|line| line.1 != name);
        self.0
            .push((u64::MAX, name, text.replace(['\n', '\r'], " ")));
    }

    fn write(self, values: &mut Values, name: &[u8], now_us: u64) {
        let (now_ms, mut written) = (now_us / 1_000, String::new());
        for (at_ms, name, text) in self.0 {
            let at_ms = if at_ms == u64::MAX { now_ms } else { at_ms };
            // Writing to a text cannot fail.
            let _ = writeln!(written, "{at_ms}\t{name}\t{text}");
        }
        values.set(name, Some(written.into_bytes()), now_ms + LAPSE_US / 1_000);
    }
}
