//! Prints what a command has found, as text or as JSON.
//! What is shown is decided by each command. A screen that is redrawn is in `watch/screen.rs`.

use std::{
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
    pub(crate) fn new(
        format: Format,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Self {
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
        match stdout
            .write_all(self.output.as_bytes())
            .and_then(|()| stdout.flush())
        {
            Ok(()) => self.status.into(),
            // The reader has gone, as with `| head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.status.into(),
            Err(error) => {
                Failure::new(format_args!("cannot write to standard output: {error}")).print()
            }
        }
    }
}

fn json(value: &impl Serialize) -> String {
    // The reports have no maps with other keys than texts, so this does not fail.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Lays out rows in columns. Columns of numbers are aligned at their right.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Column {
    name: &'static str,
    is_number: bool,
    /// A column with a greater number is left out first when the width is small. 0 is never left
    /// out.
    dispensable: u8,
}

#[derive(Debug)]
struct Row {
    cells: Vec<String>,
    is_bad: bool,
}

/// A line of text. A bad one reports something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
}

/// The fewest signs of a column that is cut.
const LEAST_WIDTH: usize = 6;

impl Table {
    /// Creates a table with the names of its columns. A name that begins with `>` belongs to a
    /// column of numbers.
    pub(crate) fn new<const N: usize>(names: [&'static str; N]) -> Self {
        Self::dispensable(names.map(|name| (name, 0)))
    }

    /// Creates a table that leaves out columns when the width is small: first the ones with the
    /// greatest number first, and those with 0 never.
    pub(crate) fn dispensable<const N: usize>(columns: [(&'static str, u8); N]) -> Self {
        let column = |(name, dispensable): (&'static str, u8)| Column {
            name: name.trim_start_matches('>'),
            is_number: name.starts_with('>'),
            dispensable,
        };
        Self {
            columns: columns.map(column).into(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.marked_row(false, cells);
    }

    /// Adds a row that may report something that is wrong.
    pub(crate) fn marked_row<const N: usize>(&mut self, is_bad: bool, cells: [String; N]) {
        self.rows.push(Row {
            cells: cells.into(),
            is_bad,
        });
    }

    /// Returns the number of rows below the names of the columns.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Leaves out columns that nothing fills.
    pub(crate) fn drop_empty_columns(&mut self) {
        for at in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row.cells[at].is_empty()) {
                self.columns.remove(at);
                self.rows
                    .iter_mut()
                    .for_each(|row| drop(row.cells.remove(at)));
            }
        }
    }

    /// Returns the whole table as text.
    pub(crate) fn text(&self) -> String {
        self.lines(usize::MAX, usize::MAX)
            .into_iter()
            .map(|line| line.text + "\n")
            .collect()
    }

    /// Returns the names of the columns and up to `most` rows. No line is longer than `width`.
    pub(crate) fn lines(&self, width: usize, most: usize) -> Vec<Line> {
        let rows = &self.rows[..most.min(self.rows.len())];
        let width_of = |at: usize| {
            let cells = rows.iter().map(|row| row.cells[at].chars().count());
            cells.max().unwrap_or(0).max(self.columns[at].name.len())
        };
        let mut shown: Vec<_> = (0..self.columns.len())
            .map(|at| (at, width_of(at)))
            .collect();
        let total = |shown: &[(usize, usize)]| {
            shown
                .iter()
                .map(|(_, width)| width + 2)
                .sum::<usize>()
                .saturating_sub(2)
        };
        while total(&shown) > width {
            let Some(last) =
                (0..shown.len()).max_by_key(|at| self.columns[shown[*at].0].dispensable)
            else {
                break;
            };
            if self.columns[shown[last].0].dispensable == 0 {
                break;
            }
            shown.remove(last);
        }
        // Then the widest text is cut.
        while total(&shown) > width {
            let texts = shown
                .iter_mut()
                .filter(|(at, width)| !self.columns[*at].is_number && *width > LEAST_WIDTH);
            let Some((_, widest)) = texts.max_by_key(|(_, width)| *width) else {
                break;
            };
            *widest -= 1;
        }
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells: Vec<_> = shown
                .iter()
                .map(|(at, width)| {
                    let text = cut(&cell(*at), *width);
                    if self.columns[*at].is_number {
                        format!("{text:>width$}")
                    } else {
                        format!("{text:<width$}")
                    }
                })
                .collect();
            cut(cells.join("  ").trim_end(), width)
        };
        let names = Line {
            text: line(&|at| self.columns[at].name.to_owned()),
            is_bad: false,
        };
        let rows = rows.iter().map(|row| Line {
            text: line(&|at| row.cells[at].clone()),
            is_bad: row.is_bad,
        });
        std::iter::once(names).chain(rows).collect()
    }
}

/// Shortens a text, and marks the place.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .take(width)
        .collect()
}

const _: () = assert!(STATUS == 2, "the help names the exit status");
