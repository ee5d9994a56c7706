//! Waits for the signals that end the program.
//! How a server ends its connections is in `server/run.rs`.

use std::{process, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};
use tollgate_envoy::{Component, Health};

use super::failure::Failure;

/// The exit status after a second signal.
const HURRIED: i32 = 1;

/// The signals that end the program.
pub(crate) struct End {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

/// Selects how the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// SIGTERM and SIGINT: clients see that the health has failed before a port is closed.
    Announced,
    /// SIGQUIT: calls that are under way end.
    Prompt,
}

impl End {
    /// Catches the signals from now on.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let catch = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(format_args!("cannot catch a signal: {error}")))
        };
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            quit: catch(SignalKind::quit())?,
        })
    }

    /// Waits for the time at which the ports are to be closed. The health fails `delay` before, so
    /// that clients turn away.
    ///
    /// From the first signal on, a second one ends the program at once.
    pub(crate) async fn wait(mut self, health: Health, delay: Duration) {
        let ending = self.next().await;
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!("a second signal ended the program at once");
            process::exit(HURRIED);
        });
        if ending == Ending::Announced {
            health.set(Component::Running, false).await;
            sleep(delay).await;
        }
    }

    async fn next(&mut self) -> Ending {
        tokio::select! {
            _ = self.terminate.recv() => Ending::Announced,
            _ = self.interrupt.recv() => Ending::Announced,
            _ = self.quit.recv() => Ending::Prompt,
        }
    }
}
