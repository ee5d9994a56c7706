//! Ends a process when the test process ends, however that ends.
//!
//! `Drop` does not run for statics, aborts and kills. So a shell waits at the end of a pipe that only the test process
//! holds: when the pipe closes, it kills what it was told to.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// Dropped, it lets the process go; so it is dropped before the process is reaped and its number free for others.
#[derive(Debug)]
pub(crate) struct Leash(Child);

impl Leash {
    pub(crate) fn on(process: &Child) -> io::Result<Self> {
        Command::new("sh")
            .args(["-c", "read -r _; kill -9 \"$1\"", "sh", &process.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own group: a Ctrl-C that ends the tests must leave it its last moment.
            .process_group(0)
            .spawn()
            .map(Self)
    }
}

impl Drop for Leash {
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
        Command::new("sleep").arg("60").spawn().expect("sleep is everywhere")
    }

    #[test]
    fn a_closed_pipe_kills_the_process() {
        let mut process = sleeper();
        let mut leash = Leash::on(&process).expect("sh is everywhere");
        drop(leash.0.stdin.take()); // what the kernel does when the test process is no more
        let status = process.wait().expect("it is our child");
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn a_dropped_leash_leaves_the_process_alone() {
        let mut process = sleeper();
        drop(Leash::on(&process).expect("sh is everywhere"));
        assert!(process.try_wait().expect("it is our child").is_none());
        process.kill().expect("it is our child");
        process.wait().expect("it is our child");
    }
}
