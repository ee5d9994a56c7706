//! The calls by which a process makes itself and its limits known at a server.
//! When they are made is decided in `tollgate-remote/src/presence/`.

use std::{fmt::Display, num::NonZeroU32};

use redis::{Cmd, Value};

use super::{
    backend::Backend,
    protocol::{EXCEPT, EXCEPTIONS, PUBLISH, REPLICAS, REPORT, SPENDING, Script},
    server::Server,
};
use tollgate_core::{
    Error, ErrorKind, Key,
    raw::{KeyParts, answer_by, random},
    store::{
        Deadline, Exception, ExceptionCall, ExceptionList, ExceptionReply, Publication,
        ReplicaGroup,
    },
};
use tollgate_remote::presence::{
    CALL_TIMEOUT, ExceptionNews, LAPSE_US, PROCESS, REPORT_US, ReportCall, SUBJECT, Share, UNKNOWN,
};

/// The ends of the keys: of the set of limits, and of the hash of shares. A group of replicas has
/// 16 digits in their place.
const ENDS: [&str; 2] = ["limits", "shares"];

/// The end of the key of the hash of exceptions.
const EXCEPTED: &str = "exceptions";

/// The end of the key of the set of reports.
const ENFORCED: &str = "enforced";

/// Returns the key of the set of processes of a group, or of another set beside it. `subject`
/// stands in its hash tag.
pub(crate) fn key_text(server: &Server, subject: &Key, group: impl Display) -> Vec<u8> {
    [
        server.config.prefix.as_bytes(),
        b":{",
        subject.as_bytes(),
        b"}:",
        group.to_string().as_bytes(),
    ]
    .concat()
}

/// Adds the keys of the groups, and the arguments of a call by `process`.
pub(crate) fn add_call(
    server: &Server,
    subject: &Key,
    groups: impl IntoIterator<Item = impl Display>,
    process: &str,
    command: &mut Cmd,
) {
    for group in groups {
        command.arg(key_text(server, subject, group));
    }
    add_time(server, command);
    command.arg(process).arg(LAPSE_US);
}

/// Adds the time for a server that forbids its clock, and nothing for any other.
pub(crate) fn add_time(server: &Server, command: &mut Cmd) {
    match &server.config.clock {
        Some(clock) => command.arg(clock.now_us()),
        None => command.arg(""),
    };
}

/// Runs a script of housekeeping at the server of the sets, while that server is asked.
async fn run(
    backend: &Backend,
    script: &Script,
    keys: usize,
    fill: impl Fn(&Server, &mut Cmd),
) -> Result<Value, Error> {
    if let Some(refusal) = backend.refusal(&SUBJECT, None) {
        return Err(refusal);
    }
    answer_by(
        Some(Deadline::after(CALL_TIMEOUT)),
        backend.run(&SUBJECT, None, script, keys, fill),
    )
    .await
}

/// Makes this process known in each group, and returns the numbers of processes.
pub(crate) async fn count(
    backend: &Backend,
    groups: &[ReplicaGroup],
) -> Result<Vec<NonZeroU32>, Error> {
    let fill = |server: &Server, command: &mut Cmd| {
        add_call(server, &SUBJECT, groups.iter().copied(), &PROCESS, command);
    };
    let reply = run(backend, &REPLICAS, groups.len(), fill).await?;
    let number = |value| match value {
        Value::Int(number) => u32::try_from(number).ok().and_then(NonZeroU32::new),
        _ => None,
    };
    each(reply, groups.len(), number).ok_or_else(|| {
        Error::new(
            ErrorKind::Protocol,
            "redis sent a number of replicas that is not valid",
        )
    })
}

/// Sends the report of each group, and returns the lines of the other processes.
pub(crate) async fn tell(
    backend: &Backend,
    reports: &[(ReplicaGroup, String)],
) -> Result<Vec<String>, Error> {
    let fill = |server: &Server, command: &mut Cmd| {
        server.shared.bound().admit_reports(reports.len());
        let sets = reports.iter().map(|(group, _)| format!("{group}:spent"));
        add_call(server, &SUBJECT, sets, &PROCESS, command);
        for (_, report) in reports {
            command.arg(report);
        }
    };
    let reply = run(backend, &SPENDING, reports.len(), fill).await?;
    each(reply, reports.len(), text).ok_or_else(|| {
        Error::new(
            ErrorKind::Protocol,
            "redis sent reports of customers that are not valid",
        )
    })
}

/// Shows these limits, and returns the share that operators have set for each.
pub(crate) async fn publish(
    backend: &Backend,
    limits: &[Publication],
) -> Result<Vec<Share>, Error> {
    let texts: Vec<_> = limits.iter().map(ToString::to_string).collect();
    let reply = run(backend, &PUBLISH, 2, |server, command| {
        for end in ENDS {
            command.arg(key_text(server, &SUBJECT, end));
        }
        add_time(server, command);
        command.arg(LAPSE_US);
        for (limits, text) in limits.iter().zip(&texts) {
            command.arg(limits.name()).arg(text);
        }
    });
    let text = |share| match share {
        Value::BulkString(text) => Some(Some(text)),
        _ => Some(None),
    };
    each(reply.await?, limits.len(), text).ok_or_else(|| {
        Error::new(
            ErrorKind::Protocol,
            "redis sent shares of enforced keys that are not valid",
        )
    })
}

/// Reads a list of so many values. `None` when it is another, or has a value that is not valid.
fn each<T>(reply: Value, count: usize, read: impl Fn(Value) -> Option<T>) -> Option<Vec<T>> {
    match reply {
        Value::Array(values) if values.len() == count => values.into_iter().map(read).collect(),
        _ => None,
    }
}

/// Returns the exceptions of the store, if their version is not the known one.
pub(crate) async fn exceptions(backend: &Backend, known: &str) -> Result<ExceptionNews, Error> {
    let reply = run(backend, &EXCEPTIONS, 1, |server, command| {
        server.shared.bound().admit_exceptions();
        command.arg(key_text(server, &SUBJECT, EXCEPTED));
        add_time(server, command);
        command.arg(known);
    });
    let (now_us, texts) = timed_texts(reply.await?)?;
    let [version, lines @ ..] = &texts[..] else {
        return Err(invalid());
    };
    let exceptions = match lines {
        [] => None,
        // The version stands among the lines, and is none.
        [_, lines @ ..] => Some(ExceptionList::read(&lines.join("\n")).into_vec()),
    };
    Ok(ExceptionNews::new(now_us, version.clone(), exceptions))
}

/// Lists, grants or withdraws exceptions.
pub(crate) async fn change_exceptions(
    backend: &Backend,
    call: &ExceptionCall,
) -> Result<ExceptionReply, Error> {
    let (id, lasts_us, end) = match call {
        ExceptionCall::Grant(exception) => exception.parts()?,
        ExceptionCall::Withdraw(id) => (id.clone(), 0, String::new()),
        _ => {
            let news = exceptions(backend, UNKNOWN).await?;
            let mut list = news.exceptions.unwrap_or_default();
            list.retain(|exception| exception.ends_us() > news.now_us);
            return Ok(ExceptionReply::new(news.now_us, list));
        }
    };
    let version = random::name();
    let reply = run(backend, &EXCEPT, 1, |server, command| {
        command.arg(key_text(server, &SUBJECT, EXCEPTED));
        add_time(server, command);
        command
            .arg(&version)
            .arg(&id)
            .arg(lasts_us)
            .arg(&end)
            .arg(ExceptionList::MAX)
            .arg(Exception::MAX.as_millis() as u64);
    });
    let (now_us, texts) = timed_texts(reply.await?)?;
    match &texts[..] {
        [last] => {
            let last = ExceptionList::read(last).into_vec();
            Ok(ExceptionReply::new(now_us, last))
        }
        [_, _] => Err(ExceptionList::full()),
        _ => Err(invalid()),
    }
}

/// Reads a text.
fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(text) => String::from_utf8(text).ok(),
        _ => None,
    }
}

/// Reads a time, and the texts behind it.
fn timed_texts(reply: Value) -> Result<(u64, Vec<String>), Error> {
    let lossy = |value| match value {
        // A line of another program must not hide all others.
        Value::BulkString(text) => Some(String::from_utf8_lossy(&text).into_owned()),
        _ => None,
    };
    let texts = match reply {
        Value::Array(values) => values.into_iter().map(lossy).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let mut texts = texts
        .filter(|texts| !texts.is_empty())
        .ok_or_else(invalid)?;
    let now_us = texts.remove(0).parse().map_err(|_| invalid())?;
    Ok((now_us, texts))
}

fn invalid() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "redis sent exceptions that are not valid",
    )
}

/// Keeps what this process reports to operators, in the place of what it reported before.
pub(crate) async fn report(backend: &Backend, report: &ReportCall) -> Result<(), Error> {
    let reply = run(backend, &REPORT, 1, |server, command| {
        command.arg(key_text(server, &SUBJECT, ENFORCED));
        add_time(server, command);
        command.arg(REPORT_US);
        command.arg(report.text.as_deref().unwrap_or_default());
        for text in &report.replaced {
            command.arg(text);
        }
    });
    reply.await.map(drop)
}
