//! `cargo xtask release`: checks what has to hold before a release. `docs/contributors/release.md`
//! is the checklist.

mod steps;

pub(crate) use steps::unused;

use std::time::Instant;

use crate::{documentation, failure::Failure, metadata, package, workspace::Workspace};

/// A check before a release.
#[derive(Debug)]
struct Step {
    name: &'static str,
    run: fn(&Workspace) -> Result<(), Failure>,
}

/// All checks: those that take seconds first.
const STEPS: [Step; 9] = [
    Step {
        name: "metadata",
        run: metadata::check,
    },
    Step {
        name: "unused",
        run: steps::unused,
    },
    Step {
        name: "dependencies",
        run: steps::dependencies,
    },
    Step {
        name: "documentation",
        run: |workspace| documentation::check(workspace, false),
    },
    Step {
        name: "publish",
        run: package::rehearse,
    },
    Step {
        name: "semver",
        run: steps::semver,
    },
    Step {
        name: "msrv",
        run: steps::msrv,
    },
    Step {
        name: "minimal-versions",
        run: steps::minimal_versions,
    },
    Step {
        name: "features",
        run: steps::features,
    },
];

/// Runs the named steps, or all of them, also after one has failed.
///
/// # Errors
///
/// Names the steps that failed, or a step that does not exist.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let steps = chosen(arguments)?;
    let workspace = Workspace::load()?;
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    for step in steps {
        let start = Instant::now();
        let result = (step.run)(&workspace);
        let seconds = start.elapsed().as_secs();
        lines.push(match result {
            Ok(()) => format!("{:16} ok, {seconds} s", step.name),
            Err(failure) => {
                eprintln!("xtask: {failure}");
                failed.push(step.name);
                format!("{:16} FAILED, {seconds} s", step.name)
            }
        });
    }
    println!("\n{}", lines.join("\n"));
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "these steps failed: {}",
            failed.join(", ")
        )))
    }
}

fn chosen(arguments: &[String]) -> Result<Vec<&'static Step>, Failure> {
    if arguments.is_empty() {
        return Ok(STEPS.iter().collect());
    }
    let names = || STEPS.map(|step| step.name).join(", ");
    let find = |name: &String| {
        let step = STEPS.iter().find(|step| step.name == name);
        step.ok_or_else(|| {
            Failure::new(format!(
                "there is no step {name:?}, the steps are {}",
                names()
            ))
        })
    };
    arguments.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_steps_run_in_the_order_of_their_names_and_no_name_means_all() {
        let names = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(|name| (*name).to_owned()).collect();
            chosen(&arguments)
                .map(|steps| steps.into_iter().map(|step| step.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).expect("all").len(), STEPS.len());
        assert_eq!(
            names(&["msrv", "unused"]).expect("both exist"),
            ["msrv", "unused"]
        );
        let failure = names(&["msvr"]).expect_err("no such step").to_string();
        assert!(
            failure.contains("\"msvr\"") && failure.contains("msrv"),
            "{failure}"
        );
    }

    #[test]
    fn the_checklist_names_every_step() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the workspace is above");
        let checklist = std::fs::read_to_string(root.join("docs/contributors/release.md"))
            .expect("the checklist exists");
        for step in &STEPS {
            assert!(
                checklist.contains(&format!("| `{}` |", step.name)),
                "docs/contributors/release.md lacks {}",
                step.name
            );
        }
    }
}
