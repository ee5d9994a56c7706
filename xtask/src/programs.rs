//! Compiles the test programs and runs them side by side: while one waits for a server or a timer,
//! another computes.
//!
//! Cargo runs one program after the other. Many tests wait, so half of a machine would be idle.

use std::{
    collections::BTreeMap,
    env,
    io::{self, BufRead, BufReader, Write},
    iter,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    failure::{self, Failure},
    tally::Tally,
    times::Times,
    workspace::{self, Workspace},
};

/// The ports of the programs that run at a time: a server that is down for a moment finds its port
/// again. Each program runs as many of its tests at a time as the machine has processors. A third
/// one computes while two wait for their servers.
const PORTS: [&str; 3] = ["20000-23000", "23000-26000", "26000-29000"];

/// A compiled test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The package and the target: `tollgate-tests store`.
    pub(crate) title: String,
    /// The name of its target.
    pub(crate) name: String,
    executable: PathBuf,
    manifest: PathBuf,
}

/// A command whose output is that of tests.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) title: String,
    pub(crate) command: Command,
}

/// The result of a job.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) title: String,
    pub(crate) status: ExitStatus,
    pub(crate) tally: Tally,
    took: Duration,
}

/// Compiles the test programs that these arguments of `cargo test` select, with or without those
/// of the tools.
///
/// # Errors
///
/// When one of them does not compile.
pub(crate) fn compile(
    workspace: &Workspace,
    with_tools: bool,
    arguments: &[&str],
) -> Result<Vec<Program>, Failure> {
    let mut build = workspace.cargo_test(with_tools);
    build
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .args(arguments);
    eprintln!("$ {}", failure::spelled(&build));
    Ok(failure::output(&mut build)?
        .lines()
        .filter_map(Program::parse)
        .collect())
}

impl Program {
    /// Reads a message of cargo. Returns `None` when it is about something else.
    fn parse(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let manifest = PathBuf::from(message["manifest_path"].as_str()?);
        let target = &message["target"];
        let name = target["name"].as_str()?.to_owned();
        let package = manifest.parent()?.file_name()?.to_string_lossy();
        let part = target["kind"][0]
            .as_str()
            .filter(|kind| *kind != "test")
            .unwrap_or(&name);
        Some(Self {
            title: format!("{package} {part}"),
            name,
            executable: message["executable"].as_str()?.into(),
            manifest,
        })
    }

    /// Returns whether it is the program of this name or title, or one of the package or of the
    /// kind.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name == name || self.title == name || self.title.split(' ').any(|word| word == name)
    }

    /// Returns the command that runs its tests as cargo does: in the directory of its package, with
    /// the libraries of the compiler, which the tests of a macro load.
    pub(crate) fn job(&self, libraries: &Path) -> Job {
        let directory = self.manifest.parent().unwrap_or(Path::new("."));
        let mut command = Command::new(&self.executable);
        workspace::forget_package(&mut command);
        command
            .current_dir(directory)
            .env("CARGO_MANIFEST_DIR", directory);
        let variable = if cfg!(target_os = "macos") {
            "DYLD_FALLBACK_LIBRARY_PATH"
        } else {
            "LD_LIBRARY_PATH"
        };
        let others = env::var_os(variable).unwrap_or_default();
        let known = env::split_paths(&others).filter(|path| !path.as_os_str().is_empty());
        let paths = iter::once(libraries.to_owned()).chain(known);
        // A path with a colon cannot be in a list of paths. Then only the tests of a macro would
        // miss it.
        command.env(variable, env::join_paths(paths).unwrap_or(others));
        Job {
            title: self.title.clone(),
            command,
        }
    }
}

/// Returns the directory of the compiler's libraries.
///
/// # Errors
///
/// When the compiler cannot be started.
pub(crate) fn libraries() -> Result<PathBuf, Failure> {
    let path = failure::output(Command::new("rustc").args(["--print", "target-libdir"]))?;
    Ok(path.trim().into())
}

/// Runs the jobs, the first ones first. Says when each begins and ends, what is left by the times of
/// the last run, and prints its output as it ends. All of them run, also after one has failed.
///
/// # Errors
///
/// When one of them cannot be started.
pub(crate) fn run(
    jobs: Vec<Job>,
    times: &Times,
    screen: &mut (impl Write + Send),
) -> Result<Vec<Done>, Failure> {
    let count = jobs.len();
    // When each began that has not ended.
    let not_ended: BTreeMap<String, Option<Instant>> =
        jobs.iter().map(|job| (job.title.clone(), None)).collect();
    let not_ended = Mutex::new(not_ended);
    let (jobs, done) = (
        Mutex::new(jobs.into_iter().zip(1..)),
        Mutex::new(Vec::new()),
    );
    let screen = Mutex::new(screen);
    // The tests are counted also when the reader of the output has gone (`| head`).
    let say = |text: &[u8]| {
        _ = {
            let mut screen = lock(&screen);
            screen.write_all(text).and_then(|()| screen.flush())
        }
    };
    let work = |ports: &str| {
        while let Some((mut job, number)) = { lock(&jobs).next() } {
            let place = format!("[{number}/{count}] {}", job.title);
            say(format!("{place} begins\n").as_bytes());
            job.command.env("TEST_PORTS", ports);
            lock(&not_ended).insert(job.title.clone(), Some(Instant::now()));
            let (result, mut output) = job.run();
            let left = {
                let mut not_ended = lock(&not_ended);
                not_ended.remove(&job.title);
                let ran = |began: &Option<Instant>| began.map_or(Duration::ZERO, |at| at.elapsed());
                times.left(
                    not_ended
                        .iter()
                        .map(|(title, began)| (title.as_str(), ran(began))),
                    PORTS.len() as u64,
                )
            };
            let left = left.map_or(String::new(), |seconds| format!("; about {seconds} s left"));
            let ended = match &result {
                Ok(done) => format!(
                    "{place} ends after {} s: {}{left}\n",
                    done.took.as_secs(),
                    done.tally
                ),
                Err(failure) => format!("{failure}\n"),
            };
            output.extend(ended.into_bytes());
            say(&output);
            lock(&done).push(result);
        }
    };
    thread::scope(|scope| {
        for ports in PORTS {
            scope.spawn(|| work(ports));
        }
    });
    done.into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .into_iter()
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    /// Runs the command. Returns its result, and its output behind a line with its title.
    fn run(&mut self) -> (Result<Done, Failure>, Vec<u8>) {
        let mut output = format!("\n     Running {}\n", self.title).into_bytes();
        let broken = |error: io::Error| Failure::new(format!("cannot run {}: {error}", self.title));
        let (mut tally, began) = (Tally::default(), Instant::now());
        let ended = Self::stream(&mut self.command, &mut output, &mut tally).map_err(broken);
        (
            ended.map(|status| Done {
                title: self.title.clone(),
                status,
                tally,
                took: began.elapsed(),
            }),
            output,
        )
    }

    fn stream(
        command: &mut Command,
        output: &mut Vec<u8>,
        tally: &mut Tally,
    ) -> io::Result<ExitStatus> {
        // One pipe for both, so that the lines keep their order.
        let (reader, writer) = io::pipe()?;
        command
            .stdin(Stdio::null())
            .stderr(writer.try_clone()?)
            .stdout(writer);
        let mut child = command.spawn()?;
        // The command holds the ends of the pipe on which it would be read for ever.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
        while reader.read_until(b'\n', &mut line)? > 0 {
            tally.read(&String::from_utf8_lossy(&line));
            output.append(&mut line);
        }
        child.wait()
    }
}

/// Returns the titles of the programs, and the times that they took.
pub(crate) fn took(done: &[Done]) -> impl Iterator<Item = (&str, Duration)> {
    done.iter().map(|done| (done.title.as_str(), done.took))
}

/// Returns the sum of all tests.
///
/// # Errors
///
/// Names the programs that failed, and says when no test ran.
pub(crate) fn verdict(done: &[Done]) -> Result<(), Failure> {
    let tally = sum(done);
    let failed: Vec<_> = done
        .iter()
        .filter(|done| !done.status.success())
        .map(|done| done.title.as_str())
        .collect();
    if !failed.is_empty() || tally.failed > 0 {
        let (failed, titles) = (tally.failed, failed.join(", "));
        Err(Failure::new(format!(
            "{failed} of {} tests failed, in {titles}",
            tally.ran()
        )))
    } else if tally.ran() == 0 {
        Err(Failure::new("no test ran, so nothing is shown"))
    } else {
        Ok(())
    }
}

/// Returns the sum of the counts.
pub(crate) fn sum(done: &[Done]) -> Tally {
    let mut sum = Tally::default();
    done.iter().for_each(|done| sum.add(done.tally));
    sum
}

/// Lists the programs that took longest.
pub(crate) fn slowest(done: &[Done]) -> String {
    let mut done: Vec<&Done> = done.iter().collect();
    done.sort_by_key(|done| std::cmp::Reverse(done.took));
    let lines = done
        .iter()
        .take(10)
        .map(|done| format!("  {:4} s  {}\n", done.took.as_secs(), done.title));
    format!("the slowest:\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(title: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job {
            title: title.to_owned(),
            command,
        }
    }

    fn no_times() -> Times {
        Times::load(Path::new("/no/such/directory"))
    }

    #[test]
    fn a_message_about_a_test_program_is_read_and_others_are_not() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/house/tests/Cargo.toml","target":{"name":"laws","kind":["test"]},
            "profile":{"test":true},"executable":"/house/target/debug/deps/laws-1"}"#;
        let program = Program::parse(message).expect("a test program");
        assert_eq!(
            (program.title.as_str(), program.name.as_str()),
            ("tests laws", "laws")
        );
        assert!(
            program.is("laws")
                && program.is("tests")
                && program.is("tests laws")
                && !program.is("law")
        );
        let job = program.job(Path::new("/libraries"));
        assert_eq!(job.command.get_program(), "/house/target/debug/deps/laws-1");
        assert_eq!(
            job.command.get_current_dir(),
            Some(Path::new("/house/tests"))
        );
        for other in [r#""test":false"#, r#""test":true"#] {
            assert_eq!(
                Program::parse(&message.replace(r#""test":true"#, other)).is_some(),
                other.contains("true")
            );
        }
        let unit_tests = message.replace(r#"["test"]"#, r#"["lib"]"#);
        assert_eq!(
            Program::parse(&unit_tests).expect("a test program").title,
            "tests lib"
        );
        assert_eq!(
            Program::parse(&message.replace(r#""/house/target/debug/deps/laws-1""#, "null")),
            None
        );
        assert_eq!(
            Program::parse(r#"{"reason":"build-finished","success":true}"#),
            None
        );
    }

    #[test]
    fn jobs_run_side_by_side_and_the_output_of_each_stays_together() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        // Each waits for the other.
        let meet = |mine: &str, other: &str| {
            let result = "test result: ok. 1 passed; 0 failed; 0 ignored;";
            let wait = format!(
                "for _ in $(seq 6000); do [ -e {other} ] && break; sleep 0.01; done; [ -e {other} ] || exit 1"
            );
            let script =
                format!("echo {mine} 1; touch {mine}; {wait}; echo {mine} 2 >&2; echo {result:?}");
            let mut job = sh(mine, &script);
            job.command.current_dir(directory.path());
            job
        };
        let mut screen = Vec::new();
        let done = run(
            vec![meet("a", "b"), meet("b", "a")],
            &no_times(),
            &mut screen,
        )
        .expect("sh is everywhere");
        assert!(verdict(&done).is_ok());
        assert_eq!(sum(&done).to_string(), "2 passed, 0 failed, 0 skipped");
        let screen = String::from_utf8(screen).expect("text");
        for name in ["a", "b"] {
            assert!(
                screen.contains(&format!("Running {name}\n{name} 1\n{name} 2\ntest result")),
                "{screen}"
            );
            assert!(screen.contains(&format!("/2] {name} begins\n")), "{screen}");
        }
        assert!(
            screen.contains("[1/2] a ends after ")
                && screen.contains(" s: 1 passed, 0 failed, 0 skipped\n"),
            "{screen}"
        );
        let slowest = slowest(&done);
        assert!(slowest.starts_with("the slowest:\n  "), "{slowest}");
        for line in [" s  a\n", " s  b\n"] {
            assert!(slowest.contains(line), "{slowest}");
        }
    }

    #[test]
    fn failed_tests_crashed_programs_and_empty_runs_are_failures() {
        let verdict_of = |scripts: &[&str]| {
            let jobs = scripts
                .iter()
                .enumerate()
                .map(|(at, script)| sh(&format!("job{at}"), script))
                .collect();
            let done = run(jobs, &no_times(), &mut io::sink()).expect("sh is everywhere");
            verdict(&done).map_err(|failure| failure.to_string())
        };
        let passes = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored;'";
        let fails = "echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored;'; exit 101";
        assert_eq!(verdict_of(&[passes, passes]), Ok(()));
        assert_eq!(
            verdict_of(&[fails, passes]),
            Err("1 of 3 tests failed, in job0".to_owned())
        );
        assert_eq!(
            verdict_of(&[passes, "exit 134"]),
            Err("0 of 1 tests failed, in job1".to_owned())
        );
        assert!(verdict_of(&["echo 'test result: ok. 0 passed; 0 failed; 4 ignored;'"]).is_err());
        assert!(
            run(
                vec![Job {
                    title: "gone".to_owned(),
                    command: Command::new("/no/such/program")
                }],
                &no_times(),
                &mut io::sink()
            )
            .is_err()
        );
    }
}
