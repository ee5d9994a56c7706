//! A terminal for the command: a pseudo-terminal, and what stands on its screen.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    num::NonZero,
    os::fd::{AsFd as _, OwnedFd},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use tollgate_tests::wait;

const LIMIT: Duration = Duration::from_secs(60);

/// A program on a terminal of its own.
pub(super) struct Terminal {
    controller: OwnedFd,
    /// It is kept open, because the last settings of a terminal are gone with its last user.
    user: OwnedFd,
    child: Child,
    output: Arc<Mutex<Output>>,
}

struct Output {
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

impl Terminal {
    /// Starts the command on a terminal of this size.
    pub(super) fn start(command: &Command, rows: u16, columns: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let user = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let [tall, wide] = [rows, columns].map(|cells| NonZero::new(cells).unwrap());
        let output = Arc::new(Mutex::new(Output {
            screen: vt100::Parser::new(tall, wide, 0),
            bytes: Vec::new(),
        }));
        let stdio = || Stdio::from(user.try_clone().unwrap());
        // The program of util-linux makes it the controlling terminal, so that a change of its size
        // is told.
        let mut session = Command::new("setsid");
        session
            .args(["--ctty", "--wait"])
            .arg(command.get_program())
            .args(command.get_args());
        session
            .env_remove("TOLLGATE_REDIS_URL")
            .env("TERM", "xterm-256color");
        session.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        session.stdin(stdio()).stdout(stdio()).stderr(stdio());
        resize(&user, rows, columns);
        let child = session.spawn().unwrap();
        let terminal = Self {
            controller,
            user,
            child,
            output: Arc::clone(&output),
        };
        let mut reader = File::from(terminal.controller.try_clone().unwrap());
        thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                let mut output = output.lock().unwrap();
                output.screen.process(&buffer[..read]);
                output.bytes.extend(&buffer[..read]);
            }
        });
        terminal
    }

    /// Returns what stands on the screen.
    pub(super) fn screen(&self) -> String {
        self.output.lock().unwrap().screen.screen().contents()
    }

    /// Waits until the screen fulfils a condition, and returns it.
    pub(super) fn wait(&self, what: &str, is_met: impl Fn(&str) -> bool) -> String {
        wait::until_some(what, LIMIT, || {
            Some(self.screen()).filter(|screen| is_met(screen))
        })
    }

    /// Types keys.
    pub(super) fn type_keys(&self, keys: &[u8]) {
        File::from(self.controller.try_clone().unwrap())
            .write_all(keys)
            .unwrap();
    }

    /// Changes the size of the terminal.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        let [tall, wide] = [rows, columns].map(|cells| NonZero::new(cells).unwrap());
        self.output
            .lock()
            .unwrap()
            .screen
            .screen_mut()
            .set_size(tall, wide);
        resize(&self.controller, rows, columns);
    }

    /// Sends a signal to the program.
    pub(super) fn signal(&self, signal: Signal) {
        // The child is `setsid`, and its own child is the program, unless it replaced itself by it.
        let id = self.child.id();
        let path = format!("/proc/{id}/task/{id}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let program = children
            .split_whitespace()
            .next()
            .map_or(id, |child| child.parse().unwrap());
        kill_process(
            Pid::from_raw(i32::try_from(program).unwrap()).unwrap(),
            signal,
        )
        .unwrap();
    }

    /// Waits until the program has ended.
    pub(super) fn ended(&mut self) -> ExitStatus {
        wait::until_some("the end of the program", LIMIT, || {
            self.child.try_wait().unwrap()
        })
    }

    /// Returns whether the terminal reads lines and shows what is typed, as before the program.
    pub(super) fn is_restored(&self) -> bool {
        let modes = tcgetattr(&self.user).unwrap().local_modes;
        let output = self.output.lock().unwrap();
        let screen = output.screen.screen();
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
    }

    /// Returns all that the program has written.
    pub(super) fn written(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap().bytes).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn resize(terminal: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal.as_fd(), size).unwrap();
}
