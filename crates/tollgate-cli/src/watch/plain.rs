//! Prints snapshots as lines.

use std::io::{self, Write as _};

use super::{sections, session::View, snapshot::Snapshot};
use crate::output::Format;

/// Prints each snapshot on the standard output.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) Format);

impl View for Plain {
    const READS_KEYS: bool = false;

    fn show(&mut self, snapshot: Snapshot) -> io::Result<()> {
        let text = match self.0 {
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
    let prefix = snapshot.prefix.as_ref().map(|prefix| format!(" prefix {prefix}")).unwrap_or_default();
    let mut text = format!("{time}{prefix}\n");
    let mut add = |line: sections::Line| {
        text.push_str(&line.text);
        text.push('\n');
    };
    sections::status(snapshot).into_iter().for_each(&mut add);
    for section in sections::sections(snapshot) {
        section.lines(usize::MAX, usize::MAX).into_iter().for_each(&mut add);
    }
    text.push('\n');
    text
}
