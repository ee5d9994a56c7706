//! Prints what a command has found, as text or as JSON.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::{Failure, STATUS};

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// The output of a command and its exit status.
#[derive(Debug)]
pub(crate) struct Report {
    output: String,
    status: u8,
}

impl Report {
    /// Creates the report of a command that has done its work.
    pub(crate) fn new(format: Format, value: &impl Serialize, text: impl FnOnce() -> String) -> Self {
        let output = match format {
            Format::Text => text(),
            Format::Json => json(value),
        };
        Self { output, status: 0 }
    }

    /// Creates the report of a command that has no other form than text.
    pub(crate) fn of_text(output: String) -> Self {
        Self { output, status: 0 }
    }

    /// Sets the exit status.
    pub(crate) fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    /// Prints the output, and returns the exit status.
    pub(crate) fn print(self) -> ExitCode {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(self.output.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => self.status.into(),
            // The reader has gone, as with `| head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.status.into(),
            Err(error) => Failure::new(format_args!("cannot write to standard output: {error}")).print(),
        }
    }
}

fn json(value: &impl Serialize) -> String {
    // The reports have no maps with other keys than texts, so this does not fail.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Returns a text of Redis as a terminal may show it: signs that could move its cursor or turn its lines are escaped.
pub(crate) fn shown(text: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || sign.is_ascii_graphic() || sign == ' ';
    let mut shown = String::with_capacity(text.len());
    for sign in text.chars() {
        if is_plain(sign) { shown.push(sign) } else { shown.extend(sign.escape_unicode()) }
    }
    shown
}

/// Lays out rows in columns. Columns of numbers are aligned at their right.
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    is_number: [bool; N],
}

impl<const N: usize> Table<N> {
    /// Creates a table with the names of its columns. A name that begins with `>` is that of a column of numbers.
    pub(crate) fn new(names: [&str; N]) -> Self {
        let is_number = names.map(|name| name.starts_with('>'));
        Self { rows: vec![names.map(|name| name.trim_start_matches('>').to_owned())], is_number }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    /// Returns the lines.
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let gap = if column == 0 { "" } else { "  " };
                // Writing to memory cannot fail.
                let _ = match self.is_number[column] {
                    true => write!(line, "{gap}{cell:>width$}"),
                    false => write!(line, "{gap}{cell:<width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

const _: () = assert!(STATUS == 2, "the help names the exit status");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_that_a_terminal_obeys_are_escaped() {
        assert_eq!(shown("se-arch_1 ü/\"'"), "se-arch_1 ü/\"'");
        assert_eq!(shown("\u{1b}[2J\n\u{202e}\u{9b}"), "\\u{1b}[2J\\u{a}\\u{202e}\\u{9b}");
    }

    #[test]
    fn numbers_are_aligned_at_their_right() {
        let mut table = Table::new(["rule", ">denied"]);
        table.row(["a".to_owned(), "7".to_owned()]);
        table.row(["longer".to_owned(), "1000000".to_owned()]);
        assert_eq!(table.text(), "rule     denied\na             7\nlonger  1000000\n");
    }
}
