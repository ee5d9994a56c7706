//! Describes the machine on which figures were measured, and notices when it stands still.

use std::{
    env::consts,
    fs,
    panic::{self, AssertUnwindSafe},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Builder;

/// The pause between two looks at the clock.
const LOOK: Duration = Duration::from_millis(5);

/// The most times that a scene is repeated.
const SCENES: usize = 20;

/// Runs a scene, and repeats it where it panics and the machine stood still for longer than `limit`
/// in it.
///
/// For programs on the real clock, which keep their promise while the machine runs: by a deadline,
/// by a margin for calls on the way, by the life of a permit. A twentieth scene counts, however
/// still the machine stands.
///
/// # Panics
///
/// As the scene that counts.
pub fn undisturbed(limit: Duration, scene: impl Fn()) {
    for _ in 1..SCENES {
        let (outcome, longest) = watched(|| panic::catch_unwind(AssertUnwindSafe(&scene)));
        match outcome {
            Ok(()) => return,
            Err(panic) if longest <= limit => panic::resume_unwind(panic),
            Err(_) => {
                eprintln!("the machine stood still for {longest:?}, so the scene is repeated");
            }
        }
    }
    scene();
}

/// Runs an asynchronous scene on a runtime with this number of threads, as [`undisturbed`] does.
///
/// # Panics
///
/// As [`undisturbed`].
pub fn undisturbed_async(limit: Duration, threads: usize, scene: impl AsyncFn()) {
    undisturbed(limit, || {
        let mut builder = if threads == 1 {
            Builder::new_current_thread()
        } else {
            Builder::new_multi_thread()
        };
        builder
            .worker_threads(threads)
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(scene());
    });
}

/// Returns what `scene` returns, and the longest time for which the machine stood still in it.
pub fn watched<T>(scene: impl FnOnce() -> T) -> (T, Duration) {
    /// Ends the looks, also when the scene panics.
    struct End<'a>(&'a AtomicBool);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            loop {
                let began = Instant::now();
                thread::sleep(LOOK);
                longest = longest.max(began.elapsed().saturating_sub(LOOK));
                if is_over.load(Ordering::Relaxed) {
                    return longest;
                }
            }
        });
        let end = End(&is_over);
        let outcome = scene();
        drop(end);
        (outcome, looking.join().expect("a look does not panic"))
    })
}

/// Describes processor, cores, system, compiler and server. Unknown parts are left out.
///
/// # Panics
///
/// When there is no server, see [`find_binary`](crate::server::find_binary).
#[must_use]
pub fn describe() -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism()
        .map_or(1, usize::from)
        .max(cpuinfo.matches("processor\t").count());
    let mut parts = vec![
        model.map_or(consts::ARCH, |(_, model)| model).to_owned(),
        format!("{cores} cores"),
        format!(
            "{} {}",
            consts::OS,
            read("/proc/sys/kernel/osrelease").trim()
        ),
    ];
    parts.extend(
        said("rustc", &["--version"])
            .map(|it| it.split(" (").next().unwrap_or_default().to_owned()),
    );
    let server = crate::server::find_binary();
    parts.extend(said(&server.to_string_lossy(), &["--version"]).map(|it| server_version(&it)));
    parts
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Shortens the version: `Redis server v=7.0.15 sha=…` becomes `Redis server 7.0.15`.
fn server_version(said: &str) -> String {
    said.split(" sha=")
        .next()
        .unwrap_or_default()
        .replace("v=", "")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Runs a scene that panics twice. Returns how often it ran.
    fn scenes(limit: Duration) -> usize {
        let scenes = Cell::new(0);
        let _ = panic::catch_unwind(AssertUnwindSafe(|| {
            undisturbed(limit, || {
                scenes.set(scenes.get() + 1);
                assert!(scenes.get() > 2, "a scene that fails on purpose");
            });
        }));
        scenes.get()
    }

    #[test]
    fn a_scene_that_fails_is_repeated_only_if_the_machine_stood_still() {
        assert_eq!(scenes(Duration::MAX), 1);
        // Each look takes longer than its pause.
        assert_eq!(scenes(Duration::ZERO), 3);
    }

    #[test]
    fn a_machine_is_described_with_its_server() {
        assert_eq!(
            server_version("Redis server v=7.0.15 sha=0:0 bits=64"),
            "Redis server 7.0.15"
        );
        let parts = describe();
        assert!(
            parts.iter().any(|part| part.contains(" server ")),
            "{parts:?}"
        );
    }
}
