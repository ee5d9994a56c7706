//! Reloads rules when their files change, and on SIGHUP.
//! What a reload does, and whether it changes anything, is in `rules.rs`.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};

use super::{Rules, places};
use crate::{RuleError, RuleErrors};

/// Keeps the reloads of [`Rules::watch`] or `Rules::reload_on_hangup` going, and ends them when it
/// is dropped.
///
/// The drop waits for a reload that is under way.
#[must_use = "rules are reloaded only as long as the guard exists"]
pub struct ReloadGuard {
    stop: Option<Box<dyn FnOnce() + Send + Sync>>,
    thread: Option<JoinHandle<()>>,
}

/// A change is loaded when no other follows within this time, so that a file is not read between
/// two writes.
const QUIET: Duration = Duration::from_millis(50);

/// A change is loaded at the latest after this time, also when others keep following.
const LATEST: Duration = Duration::from_secs(1);

/// The files are also looked at without an event: some file systems report none, and no mount is
/// reported.
const LOOK: Duration = Duration::from_secs(30);

/// The way to the rules is looked up again when it changed while its directories were entered into
/// the watch.
const ATTEMPTS: usize = 5;

impl Rules {
    /// Reloads the rules when their file or directory changes, until the guard is dropped.
    ///
    /// A change is loaded 50 ms after the last of several, and at the latest after one second.
    /// Rules are loaded again only when their content differs from what was loaded last.
    ///
    /// - **Replace a file by a rename:** it is then never read half-written. A file that is written
    ///   in place may be read while the writer pauses. Its rules are then refused, or are in force
    ///   until the rest is written.
    /// - Any part of the path may be a symbolic link that is swapped, as in a Kubernetes config map
    ///   or in `current/ratelimit/config`. Any part may be deleted and made again, or appear later.
    /// - The files are also read every 30 seconds. This finds changes that the system does not
    ///   report: changes on network file systems by other machines, mounts, and moves of
    ///   directories far above the rules.
    /// - A config map that is mounted with `subPath` never changes.
    ///
    /// ```no_run
    /// use tollgate_rules::Rules;
    ///
    /// let rules = Rules::load("/etc/tollgate/rules")?;
    /// let _files = rules.watch()?;
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails when the system cannot watch the directory, or when the rules were not loaded from a
    /// file.
    pub fn watch(&self) -> Result<ReloadGuard, RuleErrors> {
        let path = self
            .path()
            .ok_or_else(|| failure("rules that were not loaded from a file cannot be watched"))?;
        let path =
            std::path::absolute(path).map_err(|error| failure_at(path, "cannot find", error))?;
        let (sender, messages) = mpsc::channel();
        let changed = sender.clone();
        let handler = move |event: notify::Result<Event>| {
            // An error means that events were lost.
            if event.as_ref().map_or(true, is_change) {
                // The receiver is gone only when the guard was dropped.
                let _ = changed.send(Message::Changed);
            }
        };
        let watcher = notify::recommended_watcher(handler)
            .map_err(|error| failure(&format!("cannot watch files: {error}")))?;
        let mut watches = Watches {
            watcher,
            rules: self.clone(),
            path,
            watched: BTreeSet::new(),
        };
        watches.renew()?;
        let thread = spawn("tollgate-rules-watch", move || {
            follow(&messages, LOOK, || watches.look());
        })?;
        let stop = move || {
            let _ = sender.send(Message::Stop);
        };
        Ok(ReloadGuard {
            stop: Some(Box::new(stop)),
            thread: Some(thread),
        })
    }

    /// Reloads the rules each time the process receives SIGHUP, until the guard is dropped.
    ///
    /// From then on SIGHUP no longer ends the process, even after the guard was dropped.
    ///
    /// # Errors
    ///
    /// Fails when the handler of the signal cannot be installed.
    #[cfg(unix)]
    pub fn reload_on_hangup(&self) -> Result<ReloadGuard, RuleErrors> {
        use signal_hook::{consts::SIGHUP, iterator::Signals};

        let mut signals = Signals::new([SIGHUP])
            .map_err(|error| failure(&format!("cannot handle SIGHUP: {error}")))?;
        let handle = signals.handle();
        let rules = self.clone();
        let thread = spawn("tollgate-rules-hup", move || {
            for _ in signals.forever() {
                let _ = rules.reload();
            }
        })?;
        Ok(ReloadGuard {
            stop: Some(Box::new(move || handle.close())),
            thread: Some(thread),
        })
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, RuleErrors> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| failure(&format!("cannot start a thread: {error}")))
}

fn failure(message: &str) -> RuleErrors {
    RuleError::io(message, io::Error::other("not watched")).into()
}

fn failure_at(path: &Path, what: &str, error: io::Error) -> RuleErrors {
    let message = format!("{what} {}: {error}", path.display());
    RuleError::io(message, error).into()
}

/// A message to the thread.
enum Message {
    Changed,
    Stop,
}

/// Runs `look` at once, after changes, and after each `pause` without one, until the end.
fn follow(messages: &Receiver<Message>, pause: Duration, mut look: impl FnMut()) {
    loop {
        look();
        if !has_changed(messages, pause) {
            return;
        }
    }
}

/// Waits for changes until no other follows, and not longer than `pause` for the first one. Returns
/// `false` at the end.
fn has_changed(messages: &Receiver<Message>, pause: Duration) -> bool {
    match messages.recv_timeout(pause) {
        Ok(Message::Changed) => {}
        Err(RecvTimeoutError::Timeout) => return true,
        Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
    }
    let latest = Instant::now() + LATEST;
    loop {
        match messages.recv_timeout(QUIET.min(latest.saturating_duration_since(Instant::now()))) {
            Ok(Message::Changed) if Instant::now() < latest => {}
            Ok(Message::Changed) | Err(RecvTimeoutError::Timeout) => return true,
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Returns whether an event may mean other rules. Reading the files is an event too, and must not
/// cause another reload.
fn is_change(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}

/// The directories that are watched.
struct Watches {
    watcher: RecommendedWatcher,
    rules: Rules,
    /// The place of the rules, from the root on.
    path: PathBuf,
    watched: BTreeSet<PathBuf>,
}

impl Watches {
    /// Loads the rules again when what is read differs from what was loaded last.
    fn look(&mut self) {
        for _ in 0..ATTEMPTS {
            let before = self.wanted();
            // Links may lead elsewhere now. That place is watched before the files are read, so
            // that no change is missed.
            if let Err(error) = self.renew() {
                tracing::warn!(
                    every_s = LOOK.as_secs(),
                    "rate limit rules are read without a watch: {error}"
                );
            }
            self.rules.reload_changed();
            // The rules may name other files of networks now.
            if self.wanted() == before {
                break;
            }
        }
    }

    /// Watches the directories in which a change can mean other rules.
    ///
    /// # Errors
    ///
    /// Fails when no directory is watched.
    fn renew(&mut self) -> Result<(), RuleErrors> {
        let mut wanted = self.wanted();
        for _ in 0..ATTEMPTS {
            // A watch stays with a directory that was moved or deleted, so all of them are set
            // again.
            for path in std::mem::take(&mut self.watched) {
                // It may be gone with its directory.
                let _ = self.watcher.unwatch(&path);
            }
            let mut failed = None;
            for path in &wanted {
                match self.watcher.watch(path, RecursiveMode::NonRecursive) {
                    Ok(()) => drop(self.watched.insert(path.clone())),
                    Err(error) => {
                        tracing::debug!(?path, %error, "a directory of rate limit rules is not watched");
                        failed = Some(error);
                    }
                }
            }
            if let Some(error) = failed.filter(|_| self.watched.is_empty()) {
                return Err(failure_at(
                    &self.path,
                    "cannot watch",
                    io::Error::other(error),
                ));
            }
            // A link that was swapped meanwhile leads elsewhere, without an event.
            let before = std::mem::replace(&mut wanted, self.wanted());
            if before == wanted {
                break;
            }
        }
        Ok(())
    }

    fn wanted(&self) -> BTreeSet<PathBuf> {
        let mut wanted = BTreeSet::new();
        places::add_directories(&self.path, &mut wanted);
        for file in self.rules.files() {
            // The path of the working directory goes before a path that is not absolute.
            if let Ok(file) = std::path::absolute(file) {
                places::add_directories(&file, &mut wanted);
            }
        }
        wanted
    }
}

impl Drop for ReloadGuard {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by its hook.
            let _ = thread.join();
        }
    }
}

tollgate::debug_fields! { ReloadGuard: .. }

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, ModifyKind, RemoveKind};

    use super::*;

    #[test]
    fn files_are_looked_at_at_the_start_and_without_an_event() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules.yaml");
        std::fs::write(&path, "domain: first").unwrap();
        let rules = Rules::load(&path).unwrap();
        let (sender, messages) = mpsc::channel();
        let mut looks = 0;
        follow(&messages, Duration::ZERO, || {
            looks += 1;
            rules.reload_changed();
            match looks {
                // What is in force is not loaded again.
                3 => std::fs::write(&path, "domain: second").unwrap(),
                4 => assert_eq!(rules.loads().succeeded, 2),
                5 => std::fs::write(&path, "domain: ''").unwrap(),
                8 => sender.send(Message::Stop).unwrap(),
                _ => {}
            }
        });
        let loads = rules.loads();
        assert_eq!((looks, loads.succeeded, loads.failed), (8, 2, 1));
        assert!(rules.current().has_domain("second"));
    }

    #[test]
    fn reading_a_file_is_no_change_and_everything_else_is_one() {
        use AccessKind::{Close, Open, Read};
        for (kind, expected) in [
            (EventKind::Access(Open(AccessMode::Any)), false),
            (EventKind::Access(Read), false),
            (EventKind::Access(Close(AccessMode::Read)), false),
            (EventKind::Access(Close(AccessMode::Write)), true),
            (EventKind::Create(CreateKind::File), true),
            (EventKind::Modify(ModifyKind::Any), true),
            (EventKind::Remove(RemoveKind::File), true),
            // The queue of the system was full: any event may be missing.
            (EventKind::Other, true),
            (EventKind::Any, true),
        ] {
            assert_eq!(is_change(&Event::new(kind)), expected, "{kind:?}");
        }
    }
}
