//! Waits for the signal that ends the program.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;

/// The signals SIGTERM and SIGINT.
pub(crate) struct End {
    terminate: Signal,
    interrupt: Signal,
}

impl End {
    /// Catches the signals from now on.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let catch = |kind| signal(kind).map_err(|error| Failure::new(format_args!("cannot catch a signal: {error}")));
        Ok(Self { terminate: catch(SignalKind::terminate())?, interrupt: catch(SignalKind::interrupt())? })
    }

    /// Waits for one of them.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
