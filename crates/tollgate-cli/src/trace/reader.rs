//! Reads requests from the lines of a trace, and counts the lines that are none.
//! Each format has a file of its own. The order of requests is mended in `sorter.rs`.

use std::{
    io::{self, BufRead},
    net::IpAddr,
};

use clap::ValueEnum;
use tollgate_operator::text::parse_time;

use super::{
    common, csv,
    fields::{Alias, Fields, is_time},
    json,
    lines::{Lines, MAX_BYTES, TraceLine},
};

/// The format of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormat {
    /// Detects the format by the first line
    #[default]
    Auto,
    /// The common or the combined log format of Apache and nginx
    #[value(alias = "combined")]
    Common,
    /// One JSON object in each line
    #[value(alias = "jsonl", alias = "ndjson")]
    Json,
    /// CSV, with the names of the columns in the first line
    Csv,
}

/// One request of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The time in microseconds since the Unix epoch.
    pub(crate) time_us: u64,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) fields: Fields,
}

/// Counts the lines that are no requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Skipped {
    pub(crate) count: u64,
    /// The first few lines, each with its number and the reason.
    pub(crate) examples: Vec<(u64, String)>,
}

/// The number of lines whose reasons are held.
const EXAMPLES: usize = 5;

/// Reads requests in the order of the trace.
pub(crate) struct Trace<R> {
    lines: Lines<R>,
    format: TraceFormat,
    columns: Option<csv::Columns>,
    aliases: Vec<Alias>,
    skipped: Skipped,
}

impl<R: BufRead> Trace<R> {
    pub(crate) fn new(reader: R, format: TraceFormat, aliases: Vec<Alias>) -> Self {
        Self {
            lines: Lines::new(reader),
            format,
            columns: None,
            aliases,
            skipped: Skipped::default(),
        }
    }

    /// Returns the lines that were no requests.
    pub(crate) fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Reads the next request.
    ///
    /// Fails when the trace cannot be read, and when its format is not known.
    fn read(&mut self) -> io::Result<Option<Request>> {
        loop {
            let Self {
                lines,
                format,
                columns,
                aliases,
                ..
            } = self;
            let Some(line) = lines.next()? else {
                return Ok(None);
            };
            let parsed = match line {
                TraceLine::TooLong => Err(format!("longer than {MAX_BYTES} bytes")),
                TraceLine::Whole(line) if line.trim_ascii().is_empty() => continue,
                TraceLine::Whole(line) => {
                    if *format == TraceFormat::Auto {
                        *format = detect(line, aliases)?;
                    }
                    match (&*format, &mut *columns) {
                        (TraceFormat::Json, _) => json::parse(line),
                        (TraceFormat::Csv, Some(columns)) => columns.parse(line),
                        (TraceFormat::Csv, None) => {
                            *columns = Some(named_columns(line, aliases)?);
                            continue;
                        }
                        _ => {
                            let line = String::from_utf8_lossy(line);
                            common::parse(&line).ok_or_else(|| {
                                "not in the common or combined log format".to_owned()
                            })
                        }
                    }
                }
            };
            match parsed.and_then(|fields| request(fields, aliases)) {
                Ok(request) => return Ok(Some(request)),
                Err(reason) => {
                    self.skipped.count += 1;
                    if self.skipped.examples.len() < EXAMPLES {
                        self.skipped.examples.push((self.lines.number(), reason));
                    }
                }
            }
        }
    }
}

impl<R: BufRead> Iterator for Trace<R> {
    type Item = io::Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

fn request(mut fields: Fields, aliases: &[Alias]) -> Result<Request, String> {
    fields.normalize(aliases);
    let time = fields.get("time").ok_or("no time")?;
    let time_us = parse_time(time).ok_or("the time is in no known form")?;
    Ok(Request {
        time_us,
        ip: fields.ip(),
        fields,
    })
}

/// Detects the format by a line.
fn detect(line: &[u8], aliases: &[Alias]) -> io::Result<TraceFormat> {
    if line.trim_ascii_start().starts_with(b"{") {
        return Ok(TraceFormat::Json);
    }
    if common::parse(&String::from_utf8_lossy(line)).is_some() {
        return Ok(TraceFormat::Common);
    }
    if named_columns(line, aliases).is_ok() {
        return Ok(TraceFormat::Csv);
    }
    Err(io::Error::other(
        "the first line has no known format, expected the common or combined log format, JSON, or names of CSV columns \
         with a time; name the format with --trace-format",
    ))
}

fn named_columns(line: &[u8], aliases: &[Alias]) -> io::Result<csv::Columns> {
    let columns = csv::Columns::new(line)
        .filter(|columns| columns.names().iter().any(|name| is_time(name, aliases)));
    let missing = || {
        io::Error::other(
            "the first line names no column for the time, name it with --field time=COLUMN",
        )
    };
    columns.ok_or_else(missing)
}
