//! `cargo xtask browser`: drives the pages of the playground and of the console in a headless browser.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    failure::{self, Failure},
    need, pypi,
    workspace::Workspace,
};

/// The files that pin the packages.
const PINS: [&str; 2] = ["package.json", "package-lock.json"];

/// Installs the browser and its packages, builds both examples as the tests are built, and runs
/// `tests/browser`.
///
/// # Errors
///
/// When the browser or its packages cannot be had, unless `--optional` is given; when an example
/// does not compile; when a test fails.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let is_known = |word: &String| ["--optional", "--write"].contains(&word.as_str());
    if !arguments.iter().all(is_known) {
        return Err(Failure::new("browser takes --optional and --write"));
    }
    let has = |option: &str| arguments.iter().any(|word| word == option);
    let workspace = Workspace::load()?;
    let home = workspace.target().join("browser");
    let provided = need::provide(need::BROWSER, workspace.target()).and_then(|needs| {
        let pins = workspace.root().join("tests/browser");
        packages(&pins, &home, &named(&needs, "NPM")).map(|()| needs)
    });
    let needs = match provided {
        Ok(needs) => needs,
        Err(failure) if has("--optional") => {
            eprintln!("*** THE BROWSER TESTS ARE LEFT OUT: {failure} ***");
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    let programs = ["--example", "playground", "--example", "console"];
    failure::run(&mut workspace.cargo_build(&programs))?;

    let pictures = if has("--write") {
        workspace.root().join("docs")
    } else {
        home.join("pictures")
    };
    let mut command = Command::new(named(&needs, "NODE"));
    // One file after the other: each has a browser of its own.
    command
        .args(["--test", "--test-concurrency=1", "--test-reporter=spec"])
        .args(tests(workspace.root()));
    command.current_dir(workspace.root()).envs(needs);
    command
        .env("BROWSER_PACKAGES", &home)
        .env("SCREENSHOTS", &pictures);
    let example = |name: &str| workspace.target().join("debug/examples").join(name);
    command
        .env("PLAYGROUND", example("playground"))
        .env("CONSOLE", example("console"));
    failure::run(&mut command)
}

/// Returns the path of the program that the variable names.
fn named(needs: &[(&'static str, PathBuf)], variable: &str) -> PathBuf {
    needs
        .iter()
        .find(|(name, _)| *name == variable)
        .map(|(_, path)| path.clone())
        .unwrap_or_default()
}

/// Returns the files of tests, in the order of their names.
fn tests(root: &Path) -> Vec<PathBuf> {
    let files = pypi::entries(&root.join("tests/browser")).into_iter();
    let mut tests: Vec<_> = files
        .filter(|path| path.to_string_lossy().ends_with(".test.mjs"))
        .collect();
    tests.sort();
    tests
}

/// Installs the packages that `from` pins into `home`, unless they are there already.
fn packages(from: &Path, home: &Path, npm: &Path) -> Result<(), Failure> {
    if is_current(from, home) {
        return Ok(());
    }
    fs::create_dir_all(home)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", home.display())))?;
    for pin in PINS {
        fs::copy(from.join(pin), home.join(pin))
            .map_err(|error| Failure::new(format!("cannot copy {pin}: {error}")))?;
    }
    let mut install = Command::new(npm);
    install
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(home);
    failure::run(&mut install).map_err(|failure| {
        Failure::new(format!(
            "the packages of the browser tests cannot be had: {failure}"
        ))
    })
}

/// Returns whether the packages of these pins were installed. npm writes its own list last.
fn is_current(from: &Path, home: &Path) -> bool {
    let is_same = |pin: &str| {
        let [wanted, installed] = [from, home].map(|directory| fs::read(directory.join(pin)).ok());
        wanted.is_some() && wanted == installed
    };
    PINS.into_iter().all(is_same) && home.join("node_modules/.package-lock.json").is_file()
}
