//! Shows the progress of a scan.
//! The scan itself is in `scan.rs`.

use std::io::{self, IsTerminal as _, Write as _};

use clap::{Args, ValueEnum};
use tollgate_operator::states::ScanProgress;

/// The option of commands that scan.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProgressOptions {
    /// Shows the progress of the scan on the standard error
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    progress: When,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum When {
    /// On a terminal
    #[default]
    Auto,
    Always,
    Never,
}

/// Writes one line over and over.
pub(super) struct Progress {
    is_shown: bool,
    is_terminal: bool,
    /// The number of keys at which the next line is written.
    next: u64,
}

/// The number of keys between two lines.
const STEP: u64 = 10_000;

impl ProgressOptions {
    pub(super) fn start(&self) -> Progress {
        let is_terminal = io::stderr().is_terminal();
        let is_shown = match self.progress {
            When::Auto => is_terminal,
            When::Always => true,
            When::Never => false,
        };
        Progress {
            is_shown,
            is_terminal,
            next: STEP,
        }
    }
}

impl Progress {
    /// Shows how many keys were looked at. At the end, shows the last number and ends the line.
    pub(super) fn show(&mut self, at: ScanProgress) {
        if !self.is_shown || (at.looked_at < self.next && !at.is_done) {
            return;
        }
        self.next = at.looked_at + STEP;
        self.write(at.looked_at, at.total);
        if at.is_done && self.is_terminal {
            eprintln!();
        }
    }

    fn write(&self, done: u64, total: u64) {
        let (start, end) = if self.is_terminal {
            ("\r", "")
        } else {
            ("", "\n")
        };
        match total {
            0 => eprint!("{start}scanned {done} keys{end}"),
            _ => eprint!(
                "{start}scanned {} of about {total} keys{end}",
                done.min(total)
            ),
        }
        // A message that nobody sees is no failure.
        let _ = io::stderr().flush();
    }
}
