//! `cargo xtask test`: finds what the tests need, then runs every test.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    panic::resume_unwind,
    process::{Command, ExitStatus, Stdio},
    thread,
};

use crate::{
    failure::{self, Failure},
    foreign, need,
    programs::{self, Job, Program},
    tally::Tally,
    workspace::Workspace,
};

/// The programs that take longest, which start first, so that the last one does not run alone. The first one computes all the
/// time. The next ones wait for servers, and so run beside it.
const LONGEST: [&str; 8] = [
    "tests scripts",
    "tests topology",
    "tests store",
    "tests processes",
    DOC_TESTS,
    "tests permits",
    "tests templates",
    "tollgate lib",
];

/// The title of the doc tests, which are compiled as they run.
const DOC_TESTS: &str = "doc tests";

/// Runs all tests of the workspace, doc tests included, and prints how many ran. With arguments, runs what they select by
/// `cargo test`.
///
/// # Errors
///
/// When something the tests need is missing and cannot be installed, when anything does not compile, when a test
/// fails, and when no test ran at all.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    if arguments.is_empty() {
        return everything(&workspace);
    }
    let needs = needs(&workspace)?.into_iter().chain([clients(&workspace)]).collect::<Vec<_>>();
    let mut command = command(&workspace, arguments);
    give(&mut command, &needs);
    let (status, tally) = stream(&mut command, &mut io::stdout())?;
    println!("\n{tally}");
    verdict(status, tally)
}

/// Compiles everything, while the network brings the foreign clients, and then runs the programs and the doc tests side by side.
fn everything(workspace: &Workspace) -> Result<(), Failure> {
    let mut needs = needs(workspace)?;
    let (clients, programs) = thread::scope(|scope| {
        let clients = scope.spawn(|| clients(workspace));
        let programs = programs::compile(workspace, &[]);
        (clients.join().unwrap_or_else(|panic| resume_unwind(panic)), programs)
    });
    needs.push(clients);
    let libraries = programs::libraries()?;
    let mut jobs: Vec<_> = programs?.iter().map(|program: &Program| program.job(&libraries)).collect();
    let mut doc = workspace.cargo_workspace("test");
    doc.args(["--quiet", "--all-features", "--no-fail-fast", "--doc"]);
    jobs.push(Job { title: DOC_TESTS.to_owned(), command: doc });
    jobs.sort_by_key(|job| LONGEST.iter().position(|title| *title == job.title).unwrap_or(LONGEST.len()));
    for job in &mut jobs {
        give(&mut job.command, &needs);
    }
    let done = programs::run(jobs, &mut io::stdout())?;
    println!("\n{}", programs::sum(&done));
    programs::verdict(&done)
}

/// A variable of the tests, and its value. Without a value it is removed.
type Variable = (&'static str, Option<OsString>);

/// Finds or installs the programs that the tests start, and returns where they are.
fn needs(workspace: &Workspace) -> Result<Vec<Variable>, Failure> {
    let needs = need::provide(workspace.target())?.into_iter();
    Ok(needs.map(|(variable, binary)| (variable, Some(binary.into()))).collect())
}

/// Finds or installs the foreign clients. Without them a line says so, and their tests count as skipped.
fn clients(workspace: &Workspace) -> Variable {
    let python =
        foreign::provide(workspace.target()).inspect_err(|failure| eprintln!("{}", foreign::left_out(failure)));
    (foreign::VARIABLE, python.ok().map(Into::into))
}

fn give(command: &mut Command, needs: &[Variable]) {
    for (variable, value) in needs {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
}

fn command(workspace: &Workspace, arguments: &[String]) -> Command {
    let mut command =
        if chooses_packages(arguments) { workspace.cargo("test") } else { workspace.cargo_workspace("test") };
    command.args(["--all-features", "--no-fail-fast"]).args(arguments);
    command
}

/// Returns whether the caller names packages, which cargo ignores beside `--workspace`.
fn chooses_packages(arguments: &[String]) -> bool {
    arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument.starts_with("-p") || argument == "--package" || argument.starts_with("--package="))
}

/// Passes standard output through line by line while counting.
fn stream(command: &mut Command, screen: &mut impl Write) -> Result<(ExitStatus, Tally), Failure> {
    let spelled = failure::spelled(command);
    let broken = |error: io::Error| Failure::new(format!("`{spelled}`: {error}"));
    eprintln!("$ {spelled}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(broken)?;
    let mut tally = Tally::default();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        let mut line = Vec::new();
        while stdout.read_until(b'\n', &mut line).map_err(broken)? > 0 {
            // The tests are counted also when the reader of the output has gone (`| head`).
            let _ = screen.write_all(&line).and_then(|()| screen.flush());
            tally.read(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    Ok((child.wait().map_err(broken)?, tally))
}

fn verdict(status: ExitStatus, tally: Tally) -> Result<(), Failure> {
    if tally.failed > 0 {
        Err(Failure::new(format!("{} of {} tests failed", tally.failed, tally.ran())))
    } else if !status.success() {
        Err(Failure::new("cargo test failed: something did not compile or ended before it could report (see above)"))
    } else if tally.ran() == 0 {
        Err(Failure::new("no test ran, so nothing is shown"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn sh(script: &str) -> Result<(), Failure> {
        let (status, tally) =
            stream(Command::new("sh").args(["-c", script]), &mut io::sink()).expect("sh is everywhere");
        verdict(status, tally)
    }

    #[test]
    fn packages_named_by_the_caller_replace_the_whole_workspace() {
        assert!(chooses_packages(&words("-p tollgate")));
        assert!(chooses_packages(&words("--package=tollgate")));
        assert!(!chooses_packages(&words("--test faults -- -p")));
    }

    #[test]
    fn the_programs_that_take_longest_exist() {
        let workspace = Workspace::load().expect("cargo metadata works here");
        for title in LONGEST.into_iter().filter(|title| *title != DOC_TESTS) {
            let (folder, target) = title.split_once(' ').expect("a folder and a target");
            let file = if target == "lib" {
                format!("crates/{folder}/src/lib.rs")
            } else {
                format!("{folder}/tests/{target}/main.rs")
            };
            assert!(workspace.root().join(&file).is_file(), "{title}: there is no {file}");
        }
    }

    #[test]
    fn a_passing_run_is_a_success() {
        assert!(sh("echo 'test result: ok. 1 passed; 0 failed; 0 ignored;'").is_ok());
    }

    #[test]
    fn failed_tests_broken_builds_and_empty_runs_are_failures() {
        let failed = sh("echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored;'; exit 101");
        assert!(failed.is_err_and(|failure| failure.to_string() == "1 of 2 tests failed"));
        assert!(sh("echo 'test result: ok. 1 passed; 0 failed; 0 ignored;'; exit 101").is_err());
        assert!(sh("echo 'test result: ok. 0 passed; 0 failed; 4 ignored;'").is_err());
    }
}
