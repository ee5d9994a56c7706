//! Starts and ends programs as a user does.

use std::{
    collections::BTreeSet,
    env,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{child_guard::ChildGuard, wait};

/// The longest time in which a program is ready, and in which it ends.
const LIMIT: Duration = Duration::from_secs(30);

/// The variable by which `cargo xtask test` says that all examples and programs are built.
const ARE_BUILT: &str = "TEST_PROGRAMS_ARE_BUILT";

/// A running program. Dropping the value kills it, which happens with the test process at the
/// latest.
#[derive(Debug)]
pub struct Process {
    guard: Option<ChildGuard>,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    ready: String,
}

impl Process {
    /// Starts `command` and waits until it prints a line that contains `ready`, on either of its
    /// outputs.
    ///
    /// # Panics
    ///
    /// When it cannot be started, ends, or is not ready within 30 seconds; the message contains its
    /// output.
    #[must_use]
    #[track_caller]
    pub fn start(command: Command, ready: &str) -> Self {
        Self::start_reading(Stdio::null(), command, ready)
    }

    /// Starts `command` as [`start`](Self::start) does, for [`tell`](Self::tell).
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    #[track_caller]
    pub fn start_listening(command: Command, ready: &str) -> Self {
        Self::start_reading(Stdio::piped(), command, ready)
    }

    #[track_caller]
    fn start_reading(input: Stdio, mut command: Command, ready: &str) -> Self {
        let spawned = command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned
            .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", command.get_program()));
        let guard = ChildGuard::on(&child, None).expect("sh is everywhere");
        let lines = Arc::default();
        let readers = [
            child.stdout.take().map(|from| collect(from, &lines)),
            child.stderr.take().map(|from| collect(from, &lines)),
        ];
        let readers = readers.into_iter().flatten().collect();
        let mut process = Self {
            guard: Some(guard),
            child,
            lines,
            readers,
            ready: String::new(),
        };
        process.ready = process.wait_for_line(ready);
        process
    }

    /// Builds an example of the workspace and returns the command that runs it, without `LISTEN`
    /// and `REDIS_URL`.
    ///
    /// A test program looks once for each example, unless `cargo xtask test` says that all are built.
    ///
    /// # Panics
    ///
    /// When it does not build.
    #[must_use]
    pub fn example(name: &str) -> Command {
        built_once("--example", name);
        command(&built().join("examples").join(name))
    }

    /// Builds a program of the workspace and returns the command that runs it, without `LISTEN` and
    /// `REDIS_URL`, as [`example`](Self::example) does.
    ///
    /// # Panics
    ///
    /// When it does not build.
    #[must_use]
    pub fn program(name: &str) -> Command {
        built_once("--bin", name);
        command(&built().join(name))
    }

    /// Returns the line by which it was ready.
    #[must_use]
    pub fn ready_line(&self) -> &str {
        &self.ready
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its output so far, of both streams.
    #[must_use]
    pub fn output(&self) -> String {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join("\n")
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    ///
    /// When it was not started by [`start_listening`](Self::start_listening), or reads no more.
    pub fn tell(&self, line: &str) {
        let mut input = self
            .child
            .stdin
            .as_ref()
            .expect("it was started to be told");
        writeln!(input, "{line}").expect("it reads its input");
    }

    /// Waits until it has printed a line that contains `part`, and returns the first such line.
    ///
    /// # Panics
    ///
    /// When it ends before, or does not print such a line within 30 seconds.
    #[track_caller]
    pub fn wait_for_line(&mut self, part: &str) -> String {
        let found = wait::until_some(format!("{part:?} or the end"), LIMIT, || {
            // Whether it has ended is asked first: what it printed before is then there to be read.
            let ended = matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
            if ended {
                drop(self.guard.take());
                self.read_out();
            }
            match self.line(part) {
                Some(line) => Some(Ok(line)),
                None => ended.then_some(Err(())),
            }
        });
        found.unwrap_or_else(|()| panic!("it ended without {part:?}:\n{}", self.output()))
    }

    /// Ends it as a service manager does (SIGTERM), and waits until it is gone.
    ///
    /// # Panics
    ///
    /// When it does not end within 30 seconds.
    pub fn terminate(&mut self) -> ExitStatus {
        self.end(Signal::TERM)
    }

    /// Ends it as Ctrl-C does (SIGINT), and waits until it is gone.
    ///
    /// # Panics
    ///
    /// When it does not end within 30 seconds.
    pub fn interrupt(&mut self) -> ExitStatus {
        self.end(Signal::INT)
    }

    /// Ends it as Ctrl-\\ does (SIGQUIT), and waits until it is gone.
    ///
    /// # Panics
    ///
    /// When it does not end within 30 seconds.
    pub fn quit(&mut self) -> ExitStatus {
        self.end(Signal::QUIT)
    }

    /// Lets it stand still (SIGSTOP), until it is [resumed](Self::resume).
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("it is a process number"), signal).expect("it is our process");
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) {
        self.end_it();
        self.read_out();
    }

    fn end_it(&mut self) {
        drop(self.guard.take());
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn end(&mut self, signal: Signal) -> ExitStatus {
        if let Ok(Some(status)) = self.child.try_wait() {
            return status;
        }
        self.signal(signal);
        // From here on it may be reaped, and its number be somebody else's. If it stays, `Drop`
        // kills it.
        drop(self.guard.take());
        let status = wait::until_some("the program to end", LIMIT, || {
            self.child.try_wait().expect("it is our process")
        });
        self.read_out();
        status
    }

    fn line(&self, part: &str) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().find(|line| line.contains(part)).cloned()
    }

    /// Waits until all output of the ended process is collected.
    fn read_out(&mut self) {
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

impl Drop for Process {
    /// Kills it. Prints its output if the test has failed.
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!(
                "the output of a process that the test started:\n{}",
                self.output()
            );
        }
        // Its output is nobody's any more, and a child of its own may still hold it open.
        self.end_it();
    }
}

fn collect(from: impl Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
        }
    })
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LISTEN").env_remove("REDIS_URL");
    command
}

/// Builds an example or a program, unless that has been done: with the profile and the
/// features of the tests, with the configuration and without the packages that `cargo xtask` names,
/// so that nothing is compiled twice.
fn built_once(kind: &str, name: &str) {
    static CURRENT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    if env::var_os(ARE_BUILT).is_none() && !current.contains(name) {
        let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        forget_package(&mut build);
        build
            .args(["build", "--quiet", "--profile", "test", "--workspace"])
            .args(["--exclude", "tollgate-benches", "--all-features"])
            // Cargo counts the features of dev-dependencies only beside an example.
            .args(["--example", "recorder", kind, name])
            .current_dir(workspace())
            .stdin(Stdio::null());
        let others = env::var("TEST_CARGO_EXCLUDE").unwrap_or_default();
        for other in others.split_whitespace() {
            build.args(["--exclude", other]);
        }
        if let Some(config) = env::var_os("TEST_CARGO_CONFIG") {
            build.arg("--config").arg(config);
        }
        assert!(
            build.status().expect("cargo can be started").success(),
            "{name} does not build"
        );
        current.insert(name.to_owned());
    }
}

/// Removes the variables by which cargo names the package of this program from those of a command
/// that builds.
///
/// Build scripts of some dependencies watch them, and would run again each time that cargo is
/// started from another package.
pub fn forget_package(build: &mut Command) {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in
        names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    {
        build.env_remove(name);
    }
}

/// Returns the root of the workspace, the parent of this crate.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is above")
}

/// Returns the directory of the build of this program. Tests run from `deps` in it, tools run from
/// the directory itself.
pub(crate) fn built() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    let directory = program.parent().expect("the program lies in a directory");
    let is_test = directory.ends_with("deps");
    let built = if is_test {
        directory.parent()
    } else {
        Some(directory)
    };
    built.expect("cargo builds into a directory").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a shell that SIGINT ends, also where the tests run in the background and ignore it.
    fn sh(script: &str) -> Command {
        let mut command = Command::new("env");
        if cfg!(target_os = "linux") {
            command.arg("--default-signal=INT");
        }
        command.args(["sh", "-c", script]);
        command
    }

    const POLITE: &str = "trap 'echo bye; exit 7' TERM INT; echo starting; echo ready on 1 >&2; \
                          while :; do sleep 0.01; done";

    #[test]
    fn a_program_ends_as_asked_and_its_last_words_are_kept() {
        for ask in [Process::terminate, Process::interrupt] {
            let mut process = Process::start(sh(POLITE), "ready");
            assert_eq!(ask(&mut process).code(), Some(7));
            assert!(process.output().ends_with("bye"), "{}", process.output());
        }
    }

    #[test]
    fn drop_leaves_no_process() {
        let process = Process::start(sh(POLITE), "ready");
        let pid = i32::try_from(process.pid())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a number");
        assert!(rustix::process::test_kill_process(pid).is_ok());
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    #[should_panic(expected = "it ended without \"ready\":\nno such luck")]
    fn a_program_that_ends_instead_panics_with_its_output() {
        let _ = Process::start(sh("echo no such luck; exit 1"), "ready");
    }
}
