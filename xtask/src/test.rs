//! `cargo xtask test`: finds what the tests need, then runs every test.

use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Command, ExitStatus, Stdio},
};

use crate::{
    failure::{self, Failure},
    foreign, need,
    tally::Tally,
    workspace::Workspace,
};

/// Runs all tests of the workspace, doc tests included, and prints how many ran.
///
/// # Errors
///
/// When something the tests need is missing and cannot be installed, when anything does not compile, when a test
/// fails, and when no test ran at all.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let mut command = command(&workspace, arguments);
    for (variable, binary) in need::provide(workspace.target())? {
        command.env(variable, binary);
    }
    match foreign::provide(workspace.target()) {
        Ok(python) => command.env(foreign::VARIABLE, python),
        Err(failure) => {
            eprintln!("{}", foreign::left_out(&failure));
            command.env_remove(foreign::VARIABLE)
        }
    };
    let (status, tally) = stream(&mut command, &mut io::stdout())?;
    println!("\n{tally}");
    verdict(status, tally)
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
pub(crate) fn stream(command: &mut Command, screen: &mut impl Write) -> Result<(ExitStatus, Tally), Failure> {
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

pub(crate) fn verdict(status: ExitStatus, tally: Tally) -> Result<(), Failure> {
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
