//! `cargo xtask test`: finds what the tests need, then runs every test.

use std::{ffi::OsString, io, panic::resume_unwind, process::Command, thread};

use crate::{
    failure::Failure,
    foreign, need,
    programs::{self, Job, Program},
    workspace::Workspace,
};

/// The programs that take longest, which start first, so that the last one does not run alone. The
/// first one computes all the time. The next ones wait for servers, and so run beside it.
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

/// The arguments: how often to run, the program, and what to choose of it.
#[derive(Debug, PartialEq, Eq)]
struct Options<'a> {
    repeat: u32,
    program: Option<&'a str>,
    choice: &'a [String],
}

/// Compiles everything, while the network brings the foreign clients, and then runs the programs
/// and the doc tests side by side.
///
/// Without a Redis server it runs the unit tests alone, and fails with a sentence that says what to
/// install.
///
/// # Errors
///
/// When something the tests need is missing and cannot be installed, when anything does not
/// compile, when a test fails, and when no test ran at all.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse(arguments)?;
    let workspace = Workspace::load()?;
    let needs = need::provide(need::TESTS, workspace.target());
    if let Err(missing) = &needs {
        eprintln!("*** THE UNIT TESTS RUN ALONE: {missing} ***");
    }
    let (clients, programs) = thread::scope(|scope| {
        let clients = scope.spawn(|| clients(&workspace));
        let programs = programs::compile(&workspace, &options.selection(&workspace));
        (
            clients.join().unwrap_or_else(|panic| resume_unwind(panic)),
            programs,
        )
    });
    let libraries = programs::libraries()?;
    let mut programs = programs?;
    programs.retain(|program| options.program.is_none_or(|name| program.is(name)));
    programs.retain(|program| needs.is_ok() || program.is("lib"));
    let mut done = Vec::new();
    for round in 1..=options.repeat {
        if options.repeat > 1 {
            println!("\nrun {round} of {}", options.repeat);
        }
        let mut jobs: Vec<Job> = programs
            .iter()
            .map(|program: &Program| program.job(&libraries))
            .collect();
        jobs.iter_mut()
            .for_each(|job| _ = job.command.args(options.choice));
        if options.program.is_none() && needs.is_ok() {
            jobs.push(doc_tests(&workspace));
        }
        jobs.sort_by_key(|job| {
            LONGEST
                .iter()
                .position(|title| *title == job.title)
                .unwrap_or(LONGEST.len())
        });
        for job in &mut jobs {
            job.command.envs(
                needs
                    .iter()
                    .flatten()
                    .map(|(variable, binary)| (variable, binary)),
            );
            match &clients {
                Some(python) => job.command.env(foreign::VARIABLE, python),
                None => job.command.env_remove(foreign::VARIABLE),
            };
        }
        done.extend(programs::run(jobs, &mut io::stdout())?);
    }
    println!("\n{}\n{}", programs::slowest(&done), programs::sum(&done));
    programs::verdict(&done)?;
    needs.map(|_| ())
}

impl<'a> Options<'a> {
    /// Returns the arguments of cargo that compile the program alone, where it is one of
    /// `tests/tests`.
    fn selection(&self, workspace: &Workspace) -> Vec<&'a str> {
        let folder = workspace.root().join("tests/tests");
        self.program
            .filter(|name| folder.join(name).is_dir())
            .map_or(Vec::new(), |name| vec!["--test", name])
    }

    fn parse(arguments: &'a [String]) -> Result<Self, Failure> {
        let (repeat, rest) = match arguments {
            [word, number, rest @ ..] if word == "--repeat" => {
                let repeat = number.parse().ok().filter(|repeat| *repeat > 0);
                (
                    repeat.ok_or_else(|| {
                        Failure::new(format!("--repeat takes a number, got {number:?}"))
                    })?,
                    rest,
                )
            }
            rest => (1, rest),
        };
        match rest {
            [word, ..] if word.starts_with('-') => {
                Err(Failure::new(format!("test takes no {word}")))
            }
            [program, choice @ ..] => Ok(Self {
                repeat,
                program: Some(program),
                choice,
            }),
            [] => Ok(Self {
                repeat,
                program: None,
                choice: &[],
            }),
        }
    }
}

fn doc_tests(workspace: &Workspace) -> Job {
    let mut command: Command = workspace.cargo_workspace("test");
    command.args(["--quiet", "--all-features", "--no-fail-fast", "--doc"]);
    Job {
        title: DOC_TESTS.to_owned(),
        command,
    }
}

/// Finds or installs the foreign clients. Without them a line says so, and their tests count as
/// skipped.
fn clients(workspace: &Workspace) -> Option<OsString> {
    let python = foreign::provide(workspace.target())
        .inspect_err(|failure| eprintln!("{}", foreign::left_out(failure)));
    python.ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_chosen_with_its_tests_and_runs_as_often_as_asked() {
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let line = words("--repeat 20 store suite::");
        let expected = Options {
            repeat: 20,
            program: Some("store"),
            choice: &line[3..],
        };
        assert_eq!(Options::parse(&line).expect("valid"), expected);
        assert_eq!(
            Options::parse(&[]).expect("valid"),
            Options {
                repeat: 1,
                program: None,
                choice: &[]
            }
        );
        for line in ["--repeat none", "--repeat 0 store", "--test store"] {
            assert!(Options::parse(&words(line)).is_err(), "{line}");
        }
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
            assert!(
                workspace.root().join(&file).is_file(),
                "{title}: there is no {file}"
            );
        }
    }
}
