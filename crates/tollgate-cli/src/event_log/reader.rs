//! Reads the lines of an event log, in bounded memory.
//! See `denial.rs` for which of them answer a question.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use serde::{Deserialize, Serialize};

use tollgate_operator::text::parse_time;

use crate::{
    failure::Failure,
    trace::{Lines, TraceLine},
};

/// A line of an event log. A field that an event does not have is absent.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) time: String,
    pub(crate) event: String,
    /// The time in microseconds since the Unix epoch.
    #[serde(skip)]
    pub(crate) at_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limiter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) algorithm: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remaining: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) leased: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) degraded: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lasted_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rules: Option<u64>,
}

/// The events of the files that were read, and what was left out.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    pub(crate) events: Vec<Logged>,
    /// The lines that are no objects of JSON: a log may have others between its events.
    pub(crate) others: u64,
    /// Names the lines that could not be read.
    pub(crate) warnings: Vec<String>,
    pub(super) unreadable: u64,
    /// The time of the last event of any key.
    pub(crate) last_us: u64,
}

/// The most lines that are named because they could not be read.
const MOST_WARNINGS: usize = 3;

/// The most events that are kept. The newest ones are.
const MOST_EVENTS: usize = 200_000;

impl EventLog {
    /// Reads a file, or standard input for `-`. Keeps the events that `is_wanted` selects.
    pub(crate) fn read(
        &mut self,
        path: &Path,
        is_wanted: impl Fn(&Logged) -> bool,
    ) -> Result<(), Failure> {
        let name = path.display().to_string();
        let failed = |error: io::Error| Failure::new(format_args!("--log {name}: {error}"));
        let reader: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin())
        } else {
            let file = File::open(path).map_err(failed)?;
            if file.metadata().map_err(failed)?.is_dir() {
                return Err(Failure::new(format_args!(
                    "--log {name}: expected a file, got a directory"
                )));
            }
            Box::new(file)
        };
        let mut lines = Lines::new(BufReader::new(reader));
        let (mut read, before) = (0_u64, self.unreadable);
        loop {
            let line = match lines.next().map_err(failed)? {
                None => break,
                Some(TraceLine::Whole(line)) if !line.starts_with(b"{") => {
                    self.others += 1;
                    continue;
                }
                Some(TraceLine::Whole(line)) => Logged::parse(line),
                Some(TraceLine::TooLong) => Err("the line is too long".to_owned()),
            };
            match line {
                Ok(event) => {
                    read += 1;
                    self.last_us = self.last_us.max(event.at_us);
                    if is_wanted(&event) {
                        self.events.push(event);
                    }
                    if self.events.len() >= 2 * MOST_EVENTS {
                        self.shrink();
                    }
                }
                Err(error) => {
                    self.unreadable += 1;
                    if self.warnings.len() < MOST_WARNINGS {
                        let number = lines.number();
                        self.warnings
                            .push(format!("--log {name}:{number}: {error}"));
                    }
                }
            }
        }
        if read == 0 {
            let reason = match self.unreadable - before {
                0 => "it has no line of an event, expected lines of JSON as `LogLine` writes them"
                    .to_owned(),
                unreadable => format!(
                    "none of its {unreadable} lines of JSON is an event: {}",
                    self.warnings.last().map_or("", String::as_str)
                ),
            };
            return Err(Failure::new(format_args!("--log {name}: {reason}")));
        }
        self.shrink();
        Ok(())
    }

    /// Sorts the events by their times, and keeps the newest. Files of several replicas overlap.
    fn shrink(&mut self) {
        self.events.sort_by_key(|event| event.at_us);
        let first = self.events.len().saturating_sub(MOST_EVENTS);
        self.events.drain(..first);
    }

    /// Returns a warning for the lines that are not named.
    pub(crate) fn more(&self) -> Option<String> {
        let more = self.unreadable - self.warnings.len() as u64;
        (more > 0).then(|| format!("{more} more lines could not be read"))
    }
}

impl Logged {
    fn parse(line: &[u8]) -> Result<Self, String> {
        let mut event: Self = serde_json::from_slice(line).map_err(|error| {
            // The words of serde may repeat a key.
            match error.classify() {
                serde_json::error::Category::Data => {
                    format!(
                        "a field of the event is missing or has another form, at column {}",
                        error.column()
                    )
                }
                _ => format!("the line is no JSON, at column {}", error.column()),
            }
        })?;
        event.at_us = parse_time(&event.time).ok_or("the field time has no known form")?;
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<EventLog, Failure> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.log");
        std::fs::write(&path, text).expect("a file");
        let mut log = EventLog::default();
        log.read(&path, |event| event.event == "denied")
            .map(|()| log)
    }

    #[test]
    fn events_are_sorted_and_lines_that_cannot_be_read_are_named_without_their_words() {
        let log = read(
            "Listening\n{\"time\":\"2026-11-29T12:03:11Z\",\"event\":\"denied\",\"key\":\"a\",\"newer\":[1]}\n\
             {\"time\":\"2026-11-29T12:03:10Z\",\"event\":\"denied\",\"key\":\"b\"}\n\
             {\"time\":\"2026-11-29T12:04:00Z\",\"event\":\"rules_reloaded\",\"rules\":3}\n\
             {\"time\":\"noon\",\"event\":\"denied\"}\n{\"event\":\"secret\"}\n{\"secret\"\n{}\n",
        );
        let log = log.expect("a log");
        let keys: Vec<_> = log
            .events
            .iter()
            .map(|event| event.key.as_deref())
            .collect();
        assert_eq!((keys, log.others), (vec![Some("b"), Some("a")], 1));
        assert_eq!(log.last_us, 1_795_953_840_000_000);
        assert_eq!(
            (log.warnings.len(), log.more()),
            (3, Some("1 more lines could not be read".to_owned()))
        );
        assert!(
            log.warnings[0].contains("audit.log:5: the field time"),
            "{:?}",
            log.warnings
        );
        assert!(
            !log.warnings
                .iter()
                .any(|warning| warning.contains("secret")),
            "{:?}",
            log.warnings
        );
    }

    #[test]
    fn a_file_without_events_is_refused() {
        for (text, words) in [
            ("", "has no line of an event"),
            ("GET / 200\n", "has no line of an event"),
            ("{\"time\":1}\n", "none of its 1 lines of JSON is an event"),
        ] {
            let failure = read(text).expect_err(text);
            assert!(failure.message().contains(words), "{}", failure.message());
        }
    }
}
