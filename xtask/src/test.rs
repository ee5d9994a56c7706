//! `cargo xtask test`: finds what the tests need, then runs every test.

use std::{cmp::Reverse, io, process::Command};

use crate::{
    failure::{self, Failure},
    need,
    programs::{self, Job, Program},
    times::Times,
    workspace::Workspace,
};

/// The programs that take longest, which start first, so that the last one does not run alone. The
/// first one computes all the time, as the fifth, which follows it. Those between them wait for
/// servers, and so run beside it. The others follow by the time that they took last.
const LONGEST_FIRST: [&str; 10] = [
    "tests scripts",
    "tests processes",
    "tests topology",
    "tests store",
    "tests laws",
    DOC_TESTS,
    "tests permits",
    "tests templates",
    "macro_errors lib",
    "tests model",
];

/// The title of the doc tests, which are compiled as they run.
const DOC_TESTS: &str = "doc tests";

/// The tests that compile what no other test needs, with all that it depends on. Only a full run
/// has them.
const COMPILING: [&str; 8] = [
    "the_compiler_names_the_mistake_and_the_remedy",
    "the_template_of_a_service_builds_limits_by_plan_and_tells_its_metrics",
    "workers_and_instances_of_actix_web_share_a_limit",
    "accounts_are_limited_whatever_their_sessions_are",
    "counts_in_a_file_survive_a_kill_and_no_unit_is_given_twice",
    "each_decision_is_exported_with_its_policy_and_outcome",
    "calls_through_a_chain_of_middleware_wait_for_their_turn",
    "a_pause_that_the_service_asks_for_is_obeyed_by_all_calls_and_the_call_is_repeated",
];

/// Tells the programs that what they start is built: the examples, and the programs that no test of
/// a package of their own builds. A single program builds what it starts.
const ARE_BUILT: &str = "TEST_PROGRAMS_ARE_BUILT";

/// Makes streams of random steps five and ten times as long.
const FULL: [(&str, &str); 2] = [("STREAM_STEPS", "20000"), ("PAIRS_REQUESTS", "6000")];

/// The last line of a run that is not full.
const SHORT: &str = "left out: the tests of the tools, those that compile what no other test needs, and most of the \
                     random streams; `cargo xtask test --full` runs them";

/// The arguments: whether everything runs, how often, the program, and what to choose of it.
#[derive(Debug, PartialEq, Eq)]
struct Options<'a> {
    is_full: bool,
    repeat: u32,
    program: Option<&'a str>,
    choice: &'a [String],
}

/// Compiles everything, and then runs the programs and the doc tests side by side.
///
/// Without a Redis server it runs what needs none, and fails with a sentence that says what to
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
        eprintln!("*** WHAT NEEDS NO SERVER RUNS ALONE: {missing} ***");
    }
    let selection = options.selection(&workspace);
    let mut programs = programs::compile(&workspace, options.is_full, &selection)?;
    let is_whole = selection.is_empty();
    if is_whole {
        failure::run(&mut workspace.cargo_examples(options.is_full))?;
    }
    let libraries = programs::libraries()?;
    programs.retain(|program| options.program.is_none_or(|name| program.is(name)));
    programs.retain(|program| needs.is_ok() || runs_without_servers(program));
    let mut done = Vec::new();
    for round in 1..=options.repeat {
        if options.repeat > 1 {
            println!("\nrun {round} of {}", options.repeat);
        }
        let mut jobs: Vec<Job> = programs
            .iter()
            .map(|program: &Program| program.job(&libraries))
            .collect();
        for job in &mut jobs {
            workspace.build_alike(&mut job.command, options.is_full);
            if is_whole {
                job.command.env(ARE_BUILT, "1");
            }
            job.command.args(options.choice);
            if options.is_full {
                job.command.envs(FULL);
            } else {
                job.command
                    .args(COMPILING.map(|test| format!("--skip={test}")));
            }
        }
        if options.program.is_none() {
            jobs.push(doc_tests(&workspace, options.is_full, needs.is_ok()));
        }
        let mut times = Times::load(workspace.target());
        jobs.sort_by_key(|job| {
            let place = LONGEST_FIRST.iter().position(|title| *title == job.title);
            (
                place.unwrap_or(LONGEST_FIRST.len()),
                Reverse(times.of(&job.title)),
            )
        });
        for job in &mut jobs {
            job.command.envs(
                needs
                    .iter()
                    .flatten()
                    .map(|(variable, binary)| (variable, binary)),
            );
            if needs.is_err() {
                // In CI a test that is skipped fails. This run fails anyway, and says why once.
                job.command.env_remove("CI");
            }
        }
        let of_round = programs::run(jobs, &times, &mut io::stdout())?;
        if options.choice.is_empty() && times.save(programs::took(&of_round)).is_err() {
            eprintln!("the times of the programs cannot be kept for the next run");
        }
        done.extend(of_round);
    }
    println!("\n{}", programs::slowest(&done));
    if !options.is_full {
        println!("{SHORT}");
    }
    println!("{}", programs::sum(&done));
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
        let mut options = Self {
            is_full: false,
            repeat: 1,
            program: None,
            choice: &[],
        };
        let mut rest = arguments;
        loop {
            rest = match rest {
                [word, rest @ ..] if word == "--full" => {
                    options.is_full = true;
                    rest
                }
                [word, number, rest @ ..] if word == "--repeat" => {
                    let repeat = number.parse().ok().filter(|repeat| *repeat > 0);
                    options.repeat = repeat.ok_or_else(|| {
                        Failure::new(format!("--repeat takes a number, got {number:?}"))
                    })?;
                    rest
                }
                [word, ..] if word.starts_with('-') => {
                    return Err(Failure::new(format!("test takes no {word}")));
                }
                [program, choice @ ..] => {
                    (options.program, options.choice) = (Some(program.as_str()), choice);
                    return Ok(options);
                }
                [] => return Ok(options),
            }
        }
    }
}

/// Returns whether the program needs no server: those of the crates say themselves what they leave
/// out.
fn runs_without_servers(program: &Program) -> bool {
    !program.is("tests") || program.is("model") || program.is("tenants")
}

fn doc_tests(workspace: &Workspace, with_tools: bool, with_servers: bool) -> Job {
    let mut command: Command = workspace.cargo_test(with_tools);
    command.args(["--quiet", "--no-fail-fast", "--doc"]);
    if !with_servers {
        // The examples of the library that starts them.
        command.args(["--", "--skip=tests/src/"]);
    }
    Job {
        title: DOC_TESTS.to_owned(),
        command,
    }
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
        let line = words("--repeat 20 --full store suite::");
        let expected = Options {
            is_full: true,
            repeat: 20,
            program: Some("store"),
            choice: &line[4..],
        };
        assert_eq!(Options::parse(&line).expect("valid"), expected);
        let everything = Options {
            is_full: false,
            repeat: 1,
            program: None,
            choice: &[],
        };
        assert_eq!(Options::parse(&[]).expect("valid"), everything);
        for line in ["--repeat none", "--repeat 0 store", "--test store"] {
            assert!(Options::parse(&words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn the_programs_that_take_longest_exist() {
        let workspace = Workspace::load().expect("cargo metadata works here");
        for title in LONGEST_FIRST
            .into_iter()
            .filter(|title| *title != DOC_TESTS)
        {
            let (folder, target) = title.split_once(' ').expect("a folder and a target");
            let files = match target {
                "lib" => ["crates", "tests"]
                    .map(|above| format!("{above}/{folder}/src/lib.rs"))
                    .into(),
                _ => vec![format!("{folder}/tests/{target}/main.rs")],
            };
            let is_there = files
                .iter()
                .any(|file| workspace.root().join(file).is_file());
            assert!(is_there, "{title}: there is none of {files:?}");
        }
    }
}
