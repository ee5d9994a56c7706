//! Ends a child process when the test process ends, also by a crash.
//!
//! `Drop` does not run for statics, aborts and kills. So a shell reads from a pipe that only the
//! test process holds. When the pipe closes, the shell kills the child.

use std::{
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

/// Guards a child process. Drop it before the child is reaped: after that, its number may belong to
/// another process.
#[derive(Debug)]
pub(crate) struct ChildGuard(Child);

impl ChildGuard {
    /// Guards the child. `directory` is removed with it.
    pub(crate) fn on(process: &Child, directory: Option<&Path>) -> io::Result<Self> {
        Command::new("sh")
            .args(["-c", "read -r _; kill -9 \"$1\"; ${2:+rm -rf \"$2\"}", "sh"])
            .arg(process.id().to_string())
            .args(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own group: a Ctrl-C that ends the tests must leave it its last moment.
            .process_group(0)
            .spawn()
            .map(Self)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Killed before `wait` closes the pipe: it never gets to kill anything.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn sleeper() -> Child {
        Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep is everywhere")
    }

    #[test]
    fn a_closed_pipe_kills_the_process_and_removes_its_directory() {
        let mut process = sleeper();
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let mut guard = ChildGuard::on(&process, Some(directory.path())).expect("sh is everywhere");
        drop(guard.0.stdin.take()); // what the kernel does when the test process is no more
        let status = process.wait().expect("it is our child");
        assert_eq!(status.signal(), Some(9));
        guard.0.wait().expect("it is our child");
        assert!(!directory.path().exists());
    }

    #[test]
    fn a_dropped_guard_leaves_the_process_alone() {
        let mut process = sleeper();
        drop(ChildGuard::on(&process, None).expect("sh is everywhere"));
        assert!(process.try_wait().expect("it is our child").is_none());
        process.kill().expect("it is our child");
        process.wait().expect("it is our child");
    }
}
