//! Draws snapshots on a terminal.
//! What stands on the lines is decided in `sections.rs`.

use std::{io, thread};

use ratatui::{
    DefaultTerminal, Frame,
    layout::{Constraint, Layout},
    style::{Modifier, Style, Stylize},
    text::{Line as TextLine, Text},
};

use super::{sections, session::View, snapshot::Snapshot};
use crate::output::{Line, Table, cut};

/// A terminal that shows the last snapshot. Dropping the value restores the terminal, and so does a
/// panic.
#[derive(Debug)]
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    last: Option<Snapshot>,
}

impl Screen {
    /// Takes over the terminal.
    pub(crate) fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        let mut screen = Self {
            terminal,
            last: None,
        };
        screen.redraw()?;
        Ok(screen)
    }
}

impl View for Screen {
    const READS_KEYS: bool = true;

    fn show(&mut self, snapshot: Snapshot) -> io::Result<()> {
        self.last = Some(snapshot);
        self.redraw()
    }

    fn redraw(&mut self) -> io::Result<()> {
        let last = self.last.as_ref();
        self.terminal.draw(|frame| draw(frame, last)).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A panic has restored the terminal before it showed its message. A second time would move
        // the cursor back above the message, and the next line of the shell would cover it.
        if !thread::panicking() {
            // The terminal may be gone. The cursor is shown as the value inside is dropped.
            let _ = ratatui::try_restore();
        }
    }
}

fn draw(frame: &mut Frame<'_>, snapshot: Option<&Snapshot>) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let prefix = snapshot.and_then(|snapshot| snapshot.prefix.as_ref());
    let prefix = prefix
        .map(|prefix| format!("prefix {prefix}"))
        .unwrap_or_default();
    let head = Layout::horizontal([Constraint::Min(0), Constraint::Length(7)]).split(area);
    let mut text =
        vec![TextLine::from(cut(format!("tollgate top  {prefix}").trim_end(), width)).bold()];
    match snapshot {
        None => text.push(TextLine::from("reading …")),
        Some(snapshot) => text.extend(body(snapshot, width, height.saturating_sub(1))),
    }
    frame.render_widget(Text::from(text), area);
    if width > 40 {
        let quit = ratatui::layout::Rect {
            height: 1.min(area.height),
            ..head[1]
        };
        frame.render_widget(Text::from("q quits"), quit);
    }
}

fn body(snapshot: &Snapshot, width: usize, height: usize) -> Vec<TextLine<'static>> {
    let mut lines: Vec<_> = sections::status(snapshot)
        .iter()
        .map(|line| styled(line, width))
        .collect();
    let sections = sections::sections(snapshot);
    for (section, rows) in sections
        .iter()
        .zip(shares(&sections, height.saturating_sub(lines.len())))
    {
        if rows > 0 {
            lines.push(TextLine::default());
            for (at, line) in section.lines(width, rows).iter().enumerate() {
                let line = styled(line, width);
                lines.push(if at == 0 {
                    line.style(Style::new().add_modifier(Modifier::UNDERLINED))
                } else {
                    line
                });
            }
        }
    }
    lines.truncate(height);
    lines
}

fn styled(line: &Line, width: usize) -> TextLine<'static> {
    let text = TextLine::from(cut(&line.text, width));
    if line.is_bad { text.red().bold() } else { text }
}

/// Divides the height among the sections: the first ones get three rows each, and then each gets
/// what it needs.
fn shares(sections: &[Table], height: usize) -> Vec<usize> {
    let mut left = height;
    let mut shares = vec![0; sections.len()];
    for most in [3, usize::MAX] {
        for (share, section) in shares.iter_mut().zip(sections) {
            // An empty line and the names of the columns stand above the rows.
            let above = if *share == 0 { 2 } else { 0 };
            let wanted = section.rows().min(most) - *share;
            let given = wanted.min(left.saturating_sub(above));
            if given > 0 {
                *share += given;
                left -= given + above;
            }
        }
    }
    shares
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
