//! Prints snapshots as lines.
//! A terminal is drawn in `screen.rs`; the lines of both come from `sections.rs`.

use std::io::{self, Write as _};

use super::{sections, session::View, snapshot::Snapshot};
use crate::output::Format;

/// Prints snapshots on the standard output.
#[derive(Debug)]
pub(crate) struct Plain {
    format: Format,
    /// The snapshots that are not printed.
    unprinted: u32,
}

impl Plain {
    /// Prints each snapshot.
    pub(crate) fn new(format: Format) -> Self {
        Self::last_of(1, format)
    }

    /// Prints the snapshot of this number, and those after it.
    pub(crate) fn last_of(number: u32, format: Format) -> Self {
        Self {
            format,
            unprinted: number - 1,
        }
    }
}

impl View for Plain {
    const READS_KEYS: bool = false;

    fn show(&mut self, snapshot: Snapshot) -> io::Result<()> {
        if self.unprinted > 0 {
            self.unprinted -= 1;
            return Ok(());
        }
        let text = match self.format {
            Format::Text => text(&snapshot),
            Format::Json => serde_json::to_string(&snapshot)? + "\n",
        };
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    fn redraw(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn text(snapshot: &Snapshot) -> String {
    let time = snapshot.time.as_deref().unwrap_or_default();
    let prefix = snapshot
        .prefix
        .as_ref()
        .map(|prefix| format!(" prefix {prefix}"))
        .unwrap_or_default();
    let mut text = format!("{time}{prefix}\n");
    for line in sections::status(snapshot) {
        text.push_str(&line.text);
        text.push('\n');
    }
    sections::sections(snapshot)
        .iter()
        .for_each(|section| text.push_str(&section.text()));
    text.push('\n');
    text
}
