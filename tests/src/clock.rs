//! Moves the wall clock of a process.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clock/clock.c");

/// A wall clock for processes that are started with its [`variables`](Self::variables). The test
/// moves it while they run, forward and back. It must outlive them. Their monotonic clocks stay
/// those of the system.
///
/// It is a library written in C that the processes load first, on Linux only. Creating the first
/// clock compiles it.
///
/// ```
/// use std::time::Duration;
/// use tollgate_tests::{RedisServer, WallClock};
///
/// # if cfg!(target_os = "linux") {
/// let clock = WallClock::new();
/// let server = RedisServer::builder().clock(&clock).start();
/// let seconds = || server.command(&["TIME"]).items()[0].text().parse::<u64>().unwrap();
/// let before = seconds();
/// clock.forward(Duration::from_secs(86_400));
/// assert!(seconds() >= before + 86_400);
/// clock.back(Duration::from_secs(86_400));
/// assert!(seconds() < before + 86_400);
/// # }
/// ```
#[derive(Debug)]
pub struct WallClock {
    directory: TempDir,
    offset: File,
}

impl WallClock {
    /// Creates a clock that shows the system's time.
    ///
    /// # Panics
    ///
    /// When there is no C compiler, named by `C_COMPILER` or `cc` on PATH, or it fails.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("tollgate-clock-")
            // A server may run as another user.
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary directory can be made");
        fs::write(library(directory.path()), &*LIBRARY).expect("it is our directory");
        let offset = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(file(directory.path()));
        let clock = Self {
            directory,
            offset: offset.expect("it is our directory"),
        };
        clock.set_offset_us(0);
        clock
    }

    /// Returns the environment of a process that uses the clock.
    #[must_use]
    pub fn variables(&self) -> [(OsString, OsString); 2] {
        let directory = self.directory.path();
        [
            ("LD_PRELOAD", library(directory)),
            ("TOLLGATE_CLOCK", file(directory)),
        ]
        .map(|(name, path)| (name.into(), path.into()))
    }

    /// Returns its difference to the system's time in microseconds.
    ///
    /// # Panics
    ///
    /// When its file is gone.
    #[must_use]
    pub fn offset_us(&self) -> i64 {
        let mut word = [0; 8];
        self.offset
            .read_exact_at(&mut word, 0)
            .expect("it is our file");
        i64::from_ne_bytes(word)
    }

    /// Sets its difference to the system's time in microseconds.
    ///
    /// # Panics
    ///
    /// When its file is gone.
    pub fn set_offset_us(&self, offset_us: i64) {
        let words = [offset_us.to_ne_bytes(), (!offset_us).to_ne_bytes()].concat();
        self.offset.write_all_at(&words, 0).expect("it is our file");
    }

    /// Sets its time since the Unix epoch; it runs on from there.
    ///
    /// # Panics
    ///
    /// As [`WallClock::set_offset_us`].
    pub fn set(&self, since_epoch: Duration) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("it is later than 1970");
        self.set_offset_us(micros(since_epoch) - micros(now));
    }

    /// Moves it forward.
    ///
    /// # Panics
    ///
    /// As [`WallClock::set_offset_us`].
    pub fn forward(&self, by: Duration) {
        self.set_offset_us(self.offset_us() + micros(by));
    }

    /// Moves it back.
    ///
    /// # Panics
    ///
    /// As [`WallClock::set_offset_us`].
    pub fn back(&self, by: Duration) {
        self.set_offset_us(self.offset_us() - micros(by));
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new()
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("no test is about such times")
}

fn library(directory: &Path) -> PathBuf {
    directory.join("clock.so")
}

fn file(directory: &Path) -> PathBuf {
    directory.join("offset")
}

/// Compiled once in a program.
static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let into = library(directory.path());
    compile(&into);
    fs::read(into).expect("it was just compiled")
});

fn compile(into: &Path) {
    let compiler = env::var_os("C_COMPILER")
        .filter(|chosen| !chosen.is_empty())
        .unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-O2", "-Wall", "-shared", "-fPIC", "-o"])
        .arg(into)
        .arg(SOURCE)
        .output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "this test needs a C compiler, and {} cannot be started ({error}): run `cargo xtask test`, which installs \
             one, or install gcc, or name the program in C_COMPILER",
            compiler.display()
        )
    });
    assert!(
        output.status.success(),
        "{SOURCE} does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::RedisServer;

    /// Returns the server's time in seconds since the epoch.
    fn seconds(server: &RedisServer) -> i64 {
        server.command(&["TIME"]).items()[0]
            .text()
            .parse()
            .expect("a number")
    }

    #[test]
    fn a_server_follows_it_both_ways_and_its_keys_expire_by_it() {
        let clock = WallClock::new();
        let server = RedisServer::builder().clock(&clock).start();
        clock.set(Duration::from_secs(2_000_000_000));
        assert!((2_000_000_000..2_000_000_060).contains(&seconds(&server)));
        assert!(
            !server
                .command(&["SET", "key", "value", "PX", "3600000"])
                .is_error()
        );
        clock.back(Duration::from_secs(3_600));
        assert!(server.command(&["PTTL", "key"]).int() > 7_100_000);
        clock.forward(Duration::from_secs(7_260));
        assert!(server.command(&["GET", "key"]).is_nil());
        assert!((2_000_003_660..2_000_003_720).contains(&seconds(&server)));
    }

    #[test]
    fn a_fraction_of_a_second_is_carried() {
        let clock = WallClock::new();
        let date = |offset_us: i64| {
            clock.set_offset_us(offset_us);
            let output = Command::new("date")
                .arg("+%s.%N")
                .envs(clock.variables())
                .output()
                .expect("date");
            String::from_utf8_lossy(&output.stdout)
                .trim()
                .parse::<f64>()
                .expect("a time")
        };
        for offset_us in [
            -86_400_999_999,
            -1_999_999,
            -1,
            1,
            1_999_999,
            86_400_999_999,
        ] {
            let before = SystemTime::now();
            let shown = date(offset_us) - offset_us as f64 / 1e6;
            let since = |time: SystemTime| {
                time.duration_since(UNIX_EPOCH)
                    .expect("after 1970")
                    .as_secs_f64()
            };
            assert!(
                since(before) - 1e-3 <= shown && shown <= since(SystemTime::now()) + 1e-3,
                "{offset_us}: {shown}"
            );
        }
    }

    #[test]
    fn a_process_whose_clock_cannot_be_moved_ends() {
        let clock = WallClock::new();
        let [library, _] = clock.variables();
        let output = Command::new("date")
            .envs([library])
            .env_remove("TOLLGATE_CLOCK")
            .output()
            .expect("date");
        assert_eq!(output.status.code(), Some(127));
    }
}
