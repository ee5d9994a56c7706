//! `cargo xtask test --servers`: runs what the scripts and the store promise on each version that
//! README names.

use std::{io, path::Path, process::Command};

use crate::{
    failure::{self, Failure},
    programs::{self, Job, Program},
    servers::{self, SERVERS, Server},
    tally::Tally,
    times::Times,
    workspace::Workspace,
};

/// The programs of tests, and what is chosen of each. Mutants show that the tests see mistakes, on
/// one server as on another.
const PROGRAMS: [(&str, &[&str]); 5] = [
    ("scripts", &["agree", "--skip=mutant", "--skip=mistake"]),
    ("store", &["suite::", "refusing_servers::"]),
    ("laws", &[]),
    ("permits", &["agreement", "--skip=mutant"]),
    ("regional", &["--skip=mutant", "--skip=simulation::"]),
];

/// The steps of each stream. `cargo xtask test` makes more, on one server.
const STEPS: &str = "2000";

/// The page with the table.
const PAGE: &str = "docs/redis.md";
const HEAD: &str = "| server | version | date | passed |\n|---|---|---|---|\n";

#[derive(Debug)]
struct Options {
    is_optional: bool,
    servers: Vec<&'static Server>,
}

/// Runs the tests on each server, and prints the lines of those that passed for the table of
/// [`PAGE`].
///
/// # Errors
///
/// When the tests do not compile or one of them fails on a server, and when a server cannot be had,
/// unless `--optional` is given.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse(arguments)?;
    let workspace = Workspace::load()?;
    let compiled = programs::compile(
        &workspace,
        false,
        &PROGRAMS.map(|(name, _)| ["--test", name]).concat(),
    )?;
    let (mut passed, mut failed, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let (mut tried, mut jobs) = (Vec::new(), Vec::new());
    for server in &options.servers {
        let provided = server.provide(workspace.target());
        match provided.and_then(|binary| Ok((server.version(&binary)?, binary))) {
            Ok((version, binary)) => {
                jobs.extend(jobs_on(&compiled, server, &version, &binary)?);
                tried.push((*server, version));
            }
            Err(failure) => {
                eprintln!(
                    "*** {} {} IS NOT TRIED: {failure} ***",
                    server.product.to_uppercase(),
                    server.version
                );
                missing.push(format!("{} {}", server.product, server.version));
            }
        }
    }
    // All servers together: while the last program of one runs, those of the next one begin.
    let times = Times::load(workspace.target());
    let done = programs::run(jobs, &times, &mut io::stdout())?;
    for (server, version) in tried {
        let of_it = on(server, &version);
        let its: Vec<_> = done
            .iter()
            .filter(|done| done.title.ends_with(&of_it))
            .cloned()
            .collect();
        match programs::verdict(&its) {
            Ok(()) => passed.push((server, version, programs::sum(&its))),
            Err(failure) => failed.push(format!("{} {version}: {failure}", server.product)),
        }
    }
    let date = failure::output(Command::new("date").args(["-u", "+%F"]))?;
    let lines: Vec<_> = passed
        .iter()
        .map(|(server, version, tally)| line(server, version, date.trim(), *tally))
        .collect();
    println!("\n{PAGE}:\n\n{HEAD}{}", lines.concat());
    verdict(&failed, &missing, options.is_optional)
}

/// Returns the end of the titles of the programs that run on a server.
fn on(server: &Server, version: &str) -> String {
    format!(" on {} {version}", server.product)
}

/// Returns the programs that try one server.
fn jobs_on(
    compiled: &[Program],
    server: &Server,
    version: &str,
    binary: &Path,
) -> Result<Vec<Job>, Failure> {
    let libraries = programs::libraries()?;
    let mut jobs = Vec::new();
    for (name, choice) in PROGRAMS {
        let program = compiled.iter().find(|program| program.name == name);
        let program =
            program.ok_or_else(|| Failure::new(format!("cargo has compiled no tests {name}")))?;
        let mut job = program.job(&libraries);
        job.title += &on(server, version);
        let command = &mut job.command;
        // What has Valkey in its name starts another server.
        command.arg("--quiet").args(choice).arg("--skip=valkey");
        command.args(server.lacks.iter().map(|test| format!("--skip={test}")));
        command
            .env("REDIS_SERVER", binary)
            .env("SERVER_VERSION", server.line_of_info(version));
        command.env("STREAM_STEPS", STEPS);
        jobs.push(job);
    }
    Ok(jobs)
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self {
            is_optional: false,
            servers: Vec::new(),
        };
        let mut is_quick = false;
        for word in arguments {
            match word.as_str() {
                "--quick" => is_quick = true,
                "--optional" => options.is_optional = true,
                name => options.servers.push(servers::named(name)?),
            }
        }
        if options.servers.is_empty() {
            let oldest_and_newest = [&SERVERS[0], &SERVERS[SERVERS.len() - 1]];
            options.servers = if is_quick {
                oldest_and_newest.into()
            } else {
                SERVERS.iter().collect()
            };
        }
        Ok(options)
    }
}

/// Formats the line of a server.
fn line(server: &Server, version: &str, date: &str, tally: Tally) -> String {
    format!(
        "{}{version} | {date} | {} tests |\n",
        start(server),
        tally.passed
    )
}

/// Returns the beginning of the line of a server, by which it is found.
fn start(server: &Server) -> String {
    format!("| {} {} | ", server.product, server.version)
}

fn verdict(failed: &[String], missing: &[String], is_optional: bool) -> Result<(), Failure> {
    if !failed.is_empty() {
        Err(Failure::new(failed.join("; ")))
    } else if missing.is_empty() || is_optional {
        Ok(())
    } else {
        Err(Failure::new(format!("not tried: {}", missing.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parse(line: &str) -> Result<Options, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    fn names(line: &str) -> Vec<&'static str> {
        parse(line)
            .expect("options")
            .servers
            .into_iter()
            .map(|server| server.name)
            .collect()
    }

    #[test]
    fn all_servers_are_tried_and_in_a_short_run_the_oldest_and_the_newest() {
        assert_eq!(names("").len(), SERVERS.len());
        assert_eq!(names("--quick --optional"), ["redis6", "valkey9"]);
        assert_eq!(names("--quick redis8"), ["redis8"]);
        assert!(parse("redis5").is_err());
    }

    #[test]
    fn a_server_that_is_not_tried_is_a_failure_that_names_it() {
        let redict = ["Redict 7.3".to_owned()];
        assert_eq!(
            verdict(&[], &redict, false)
                .expect_err("one is missing")
                .to_string(),
            "not tried: Redict 7.3"
        );
        assert!(verdict(&[], &redict, true).is_ok() && verdict(&[], &[], false).is_ok());
        assert!(verdict(&redict, &[], true).is_err());
    }

    #[test]
    fn the_pages_name_the_versions_that_are_tried() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the workspace is above");
        let read = |name: &str| {
            fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let page = read(PAGE);
        let (_, table) = page.split_once(HEAD).expect("the table");
        let lines: Vec<_> = table
            .lines()
            .take_while(|line| line.starts_with("| "))
            .collect();
        assert_eq!(lines.len(), SERVERS.len());
        for (server, line) in SERVERS.iter().zip(lines) {
            let version = line
                .strip_prefix(&start(server))
                .and_then(|rest| rest.split(" | ").next());
            assert!(
                version.is_some_and(|version| version.starts_with(server.version)),
                "{line}"
            );
        }
        let oldest = format!("{} {} or newer", SERVERS[0].product, SERVERS[0].version);
        for name in [
            "README.md",
            "crates/tollgate/README.md",
            "crates/tollgate-envoy/README.md",
            PAGE,
        ] {
            assert!(
                read(name).contains(&oldest),
                "{name} does not say {oldest:?}"
            );
        }
    }
}
