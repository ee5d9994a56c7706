//! Reloads rules when their files change, and on SIGHUP.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};

use super::Rules;
use crate::{RuleError, RuleErrors};

/// Ends the reloads when it is dropped. A reload that is under way is finished first.
#[must_use = "rules are reloaded only as long as the guard exists"]
pub struct ReloadGuard {
    stop: Option<Box<dyn FnOnce() + Send + Sync>>,
    thread: Option<JoinHandle<()>>,
}

/// A change is loaded when no other follows within this time, so that a file is not read between two writes.
const QUIET: Duration = Duration::from_millis(50);

/// A change is loaded at the latest after this time, also when others keep following.
const LATEST: Duration = Duration::from_secs(1);

impl Rules {
    /// Reloads the rules when their file or directory changes, until the guard is dropped.
    ///
    /// A file may be written in place, replaced by a rename, or reached through symbolic links that are swapped, as in
    /// a Kubernetes config map. A change is loaded 50 ms after the last of several, and at the latest after one second.
    /// A file that is replaced by a rename is never read half-way. One that is written in place may be, when the writer
    /// pauses: its rules are then refused, or in force until the rest is written.
    ///
    /// Other files in the same directory may change as often as they like: rules are loaded again only when what is read
    /// differs. The first change is always loaded.
    ///
    /// Network file systems report no changes of other machines, and a config map that is mounted with `subPath` never
    /// changes. Call [`reload`](Self::reload) there.
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
    /// Fails when the system cannot watch the directory, or when the rules were not loaded from a file.
    pub fn watch(&self) -> Result<ReloadGuard, RuleErrors> {
        let path = self.path().ok_or_else(|| failure("rules that were not loaded from a file cannot be watched"))?;
        let path = std::path::absolute(path).map_err(|error| failure_at(path, "cannot find", error))?;
        let (sender, messages) = mpsc::channel();
        let changed = sender.clone();
        let handler = move |event: notify::Result<Event>| {
            // An error means that events were lost.
            if event.as_ref().map_or(true, is_change) {
                // The receiver is gone only when the guard was dropped.
                let _ = changed.send(Message::Changed);
            }
        };
        let watcher =
            notify::recommended_watcher(handler).map_err(|error| failure(&format!("cannot watch files: {error}")))?;
        let mut watches = Watches { watcher, path: path.clone(), watched: Vec::new() };
        watches.renew();
        if watches.watched.is_empty() {
            return Err(failure_at(&path, "cannot watch", io::Error::from(io::ErrorKind::NotFound)));
        }
        let rules = self.clone();
        let thread = spawn("tollgate-rules-watch", move || {
            let mut known = None;
            while has_changed(&messages) {
                // Links may lead elsewhere now. Watch that place before the files are read, so that no change is missed.
                watches.renew();
                // Another file of the directory may have changed, such as a log. A change after the digest is another
                // event.
                let digest = rules.digest();
                if known.replace(digest) == Some(digest) {
                    continue;
                }
                // The result is logged, and kept as the last error.
                let _ = rules.reload();
            }
        })?;
        let stop = move || {
            let _ = sender.send(Message::Stop);
        };
        Ok(ReloadGuard { stop: Some(Box::new(stop)), thread: Some(thread) })
    }

    /// Reloads the rules each time the process receives SIGHUP, until the guard is dropped.
    ///
    /// SIGHUP then no longer ends the process, also after the guard was dropped.
    ///
    /// # Errors
    ///
    /// Fails when the handler of the signal cannot be installed.
    #[cfg(unix)]
    pub fn reload_on_hangup(&self) -> Result<ReloadGuard, RuleErrors> {
        use signal_hook::{consts::SIGHUP, iterator::Signals};

        let mut signals = Signals::new([SIGHUP]).map_err(|error| failure(&format!("cannot handle SIGHUP: {error}")))?;
        let handle = signals.handle();
        let rules = self.clone();
        let thread = spawn("tollgate-rules-hup", move || {
            for _ in signals.forever() {
                let _ = rules.reload();
            }
        })?;
        Ok(ReloadGuard { stop: Some(Box::new(move || handle.close())), thread: Some(thread) })
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

/// Waits for changes until no other follows. Returns `false` at the end.
fn has_changed(messages: &Receiver<Message>) -> bool {
    match messages.recv() {
        Ok(Message::Changed) => {}
        Ok(Message::Stop) | Err(_) => return false,
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

/// Returns whether an event may mean other rules. Reading the files is an event too, and must not cause another reload.
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
    path: PathBuf,
    watched: Vec<PathBuf>,
}

impl Watches {
    /// Watches the directories in which a change can mean other rules: the parent of the path, in which it can be replaced;
    /// the directory of rules; and both of what the links lead to.
    fn renew(&mut self) {
        let target = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let mut wanted = Vec::new();
        for place in [&self.path, &target] {
            wanted.extend(place.parent().map(Path::to_owned));
            if place.is_dir() {
                wanted.push(place.clone());
            }
        }
        wanted.sort();
        wanted.dedup();
        for gone in self.watched.iter().filter(|path| !wanted.contains(path)) {
            // The directory may not exist any more.
            let _ = self.watcher.unwatch(gone);
        }
        // A watch ends with its directory. It is set again for a new directory of the same name.
        self.watched = wanted
            .into_iter()
            .filter(|path| match self.watcher.watch(path, RecursiveMode::NonRecursive) {
                Ok(()) => true,
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "a directory of rate limit rules is not watched");
                    false
                }
            })
            .collect();
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

impl fmt::Debug for ReloadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadGuard").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, ModifyKind, RemoveKind};

    use super::*;

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
