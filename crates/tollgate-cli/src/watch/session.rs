//! Shows snapshots until the user or a signal ends it.
//! What is read is decided in `collector.rs`, how it looks in the two views.

use std::{
    future, io,
    pin::pin,
    time::{Duration, Instant},
};

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::{StreamExt as _, stream};
use tokio::signal;

use super::{collector::Collector, snapshot::Snapshot};
use crate::failure::Failure;

/// Shows snapshots.
pub(crate) trait View {
    /// Keys of the user and changes of the terminal's size are read.
    const READS_KEYS: bool;

    /// Shows a snapshot.
    fn show(&mut self, snapshot: Snapshot) -> io::Result<()>;

    /// Shows the last one again.
    fn redraw(&mut self) -> io::Result<()>;
}

/// Sets how often, and how many times, everything is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) interval: Duration,
    /// Endless without a number.
    pub(crate) refreshes: Option<u32>,
}

/// Names the wish of an event.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Redraw,
    Nothing,
}

/// Shows snapshots until the user quits, a signal comes, or the number of refreshes is reached.
///
/// # Errors
///
/// When the view cannot be opened or written to, and when no refresh of a given number could read a
/// source.
pub(crate) async fn run<V: View>(
    collector: Collector<'_>,
    pace: Pace,
    open: impl FnOnce() -> io::Result<V>,
) -> Result<(), Failure> {
    // A signal that comes while the view takes over the terminal must not leave it so.
    let mut stopped = pin!(stopped());
    let mut view =
        open().map_err(|error| Failure::new(format_args!("cannot use the terminal: {error}")))?;
    let most = pace
        .refreshes
        .map_or(usize::MAX, |refreshes| refreshes as usize);
    let mut snapshots = pin!(snapshots(collector, pace.interval).take(most));
    let mut events = V::READS_KEYS.then(EventStream::new);
    let mut has_read = false;
    loop {
        let shown = tokio::select! {
            () = &mut stopped => return Ok(()),
            snapshot = snapshots.next() => match snapshot {
                Some(snapshot) => {
                    has_read |= snapshot.is_read();
                    view.show(snapshot)
                }
                None if has_read => return Ok(()),
                None => return Err(Failure::new("nothing could be read: every source was away at every refresh")),
            },
            wish = next_wish(&mut events) => match wish {
                Wish::Quit => return Ok(()),
                Wish::Redraw => view.redraw(),
                Wish::Nothing => Ok(()),
            },
        };
        match shown {
            Ok(()) => {}
            // The reader has gone, as with `| head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => {
                return Err(Failure::new(format_args!(
                    "cannot write to standard output: {error}"
                )));
            }
        }
    }
}

/// Reads snapshots, one each interval. It rests at least as long as it reads, so that it is no load
/// for a large prefix.
fn snapshots(
    collector: Collector<'_>,
    interval: Duration,
) -> impl futures_util::Stream<Item = Snapshot> {
    stream::unfold(
        (collector, Duration::ZERO),
        move |(mut collector, rest)| async move {
            tokio::time::sleep(rest).await;
            let begun = Instant::now();
            let snapshot = collector.collect().await;
            let taken = begun.elapsed();
            Some((
                snapshot,
                (collector, interval.saturating_sub(taken).max(taken)),
            ))
        },
    )
}

async fn next_wish(events: &mut Option<EventStream>) -> Wish {
    let Some(stream) = events else {
        return future::pending().await;
    };
    match stream.next().await {
        Some(Ok(event)) => wish(&event),
        // No key can be read any more. A signal still ends it.
        Some(Err(_)) | None => {
            *events = None;
            Wish::Nothing
        }
    }
}

fn wish(event: &Event) -> Wish {
    match event {
        Event::Resize(..) => Wish::Redraw,
        Event::Key(KeyEvent {
            kind: KeyEventKind::Release,
            ..
        }) => Wish::Nothing,
        Event::Key(KeyEvent {
            code: KeyCode::Char('q') | KeyCode::Esc,
            ..
        }) => Wish::Quit,
        Event::Key(KeyEvent {
            code: KeyCode::Char('c' | 'd'),
            modifiers,
            ..
        }) if modifiers.contains(KeyModifiers::CONTROL) => Wish::Quit,
        _ => Wish::Nothing,
    }
}

/// Listens for SIGINT, SIGTERM and SIGHUP from now on, also before the future is polled. It ends
/// when one comes.
#[cfg(unix)]
fn stopped() -> impl Future<Output = ()> {
    use signal::unix::{SignalKind, signal};

    let received = |kind| {
        let signal = signal(kind).ok();
        async move {
            match signal {
                Some(mut signal) => drop(signal.recv().await),
                None => future::pending().await,
            }
        }
    };
    let (interrupt, terminate) = (
        received(SignalKind::interrupt()),
        received(SignalKind::terminate()),
    );
    let hangup = received(SignalKind::hangup());
    async {
        tokio::select! {
            () = interrupt => {}
            () = terminate => {}
            () = hangup => {}
        }
    }
}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
async fn stopped() {
    if signal::ctrl_c().await.is_err() {
        future::pending().await
    }
}
