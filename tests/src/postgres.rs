//! Starts PostgreSQL servers for tests.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;

use crate::{WallClock, child_guard::ChildGuard, ports, wait};

/// The longest time in which a server starts or ends.
const PATIENCE: Duration = Duration::from_secs(60);

const LOG: &str = "server.log";

/// The settings of every server: the tests write little, and many of them run at a time. A server
/// that is killed loses nothing without `fsync`; only a machine that loses its power would. Its shared
/// memory lies in its directory, so nothing is left of it.
const SETTINGS: &str = "fsync = off\nshared_buffers = 16MB\nmax_connections = 200\nlisten_addresses = '127.0.0.1'\n\
    unix_socket_directories = ''\nlog_min_messages = warning\nwal_level = replica\nmax_wal_senders = 4\n\
    wal_sender_timeout = 5s\ndynamic_shared_memory_type = mmap\n";

/// The user `guarded` needs a password, which it does not have.
const GUARDED: &str = "host all guarded 127.0.0.1/32 scram-sha-256\n";

/// A PostgreSQL server on a free port of 127.0.0.1, with the database `postgres`, whose user
/// `postgres` needs no password.
///
/// Dropping the value ends the server and removes its directory. Both happen with the test process
/// at the latest. A server does not run as root: it then runs as the user `nobody`.
pub struct PostgresServer {
    directory: TempDir,
    port: u16,
    /// The variables of its clock.
    variables: Vec<(OsString, OsString)>,
    running: Mutex<Option<(ChildGuard, Child)>>,
}

impl PostgresServer {
    /// Starts a server.
    ///
    /// # Panics
    ///
    /// When PostgreSQL is missing, or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Starts a server with further lines of its configuration.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with(settings: &str) -> Self {
        Self::start_in(settings, Vec::new())
    }

    /// Starts a server whose time is that of this clock.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_by(clock: &WallClock) -> Self {
        Self::start_in("", clock.variables().into())
    }

    fn start_in(settings: &str, variables: Vec<(OsString, OsString)>) -> Self {
        let directory = directory();
        let data = directory.path().join("data");
        run(program("initdb")
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C",
                "-D",
            ])
            .arg(&data));
        let access = data.join("pg_hba.conf");
        let lines = fs::read_to_string(&access).expect("initdb wrote it");
        fs::write(&access, format!("{GUARDED}{lines}")).expect("the directory is ours");
        Self::launch(directory, settings, variables)
    }

    /// Starts a standby, which follows this server from now on. Its name for
    /// `synchronous_standby_names` is `standby`.
    ///
    /// # Panics
    ///
    /// When no copy can be made, or it does not start.
    #[must_use]
    pub fn standby(&self) -> Self {
        let directory = directory();
        let from = format!(
            "host=127.0.0.1 port={} user=postgres application_name=standby",
            self.port
        );
        run(program("pg_basebackup")
            .args([
                "--no-sync",
                "--checkpoint=fast",
                "--wal-method=stream",
                "--write-recovery-conf",
                "-d",
            ])
            .arg(from)
            .arg("-D")
            .arg(directory.path().join("data")));
        Self::launch(directory, "", Vec::new())
    }

    fn launch(directory: TempDir, settings: &str, variables: Vec<(OsString, OsString)>) -> Self {
        let configuration = directory.path().join("data/postgresql.auto.conf");
        let before = fs::read_to_string(&configuration).unwrap_or_default();
        let lines = format!("{before}\n{SETTINGS}{settings}\n");
        fs::write(&configuration, lines).expect("the directory is ours");
        let mut server = Self {
            directory,
            port: 0,
            variables,
            running: Mutex::default(),
        };
        // Another process may take the port before the server does.
        for _ in 0..10 {
            server.port = ports::free();
            if server.spawn() {
                return server;
            }
        }
        panic!("the server did not come up:\n{}", server.log());
    }

    /// Starts the process. Returns whether it answers.
    fn spawn(&self) -> bool {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.directory.path().join(LOG))
            .expect("the directory is ours");
        let process = program("postgres")
            .arg("-D")
            .arg(self.directory.path().join("data"))
            .args(["-p", &self.port.to_string()])
            .envs(self.variables.iter().cloned())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn();
        let mut process = process.expect("the binary was found");
        let guard =
            ChildGuard::on(&process, Some(self.directory.path())).expect("sh is everywhere");
        let is_up = wait::until_some("postgres to answer or to end", PATIENCE, || {
            match process.try_wait().expect("it is our process") {
                Some(_) => Some(false),
                None => self.answers().then_some(true),
            }
        });
        *self.running() = is_up.then_some((guard, process));
        is_up
    }

    /// Returns whether the server accepts a session.
    fn answers(&self) -> bool {
        // The version 3.0 of the protocol, and who asks.
        let begin = b"\0\0\0\x17\0\x03\0\0user\0postgres\0\0";
        let ask = || -> std::io::Result<u8> {
            let mut stream = TcpStream::connect(self.addr())?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(begin)?;
            let mut kind = [0];
            stream.read_exact(&mut kind)?;
            Ok(kind[0])
        };
        ask().is_ok_and(|kind| kind == b'R')
    }

    /// Returns its port, which does not change.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the URL of its database. A store may take a minute to connect by it, because a
    /// machine that stands still for a moment exceeds the second that is usual.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.addr()) + "?connect_timeout=60"
    }

    /// Returns its URL with another address, as that of a [`Proxy`](crate::Proxy) in front of it,
    /// and without options.
    #[must_use]
    pub fn url_at(&self, addr: SocketAddr) -> String {
        format!("postgres://postgres@{addr}/postgres")
    }

    /// Returns its log, over all its restarts.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.directory.path().join(LOG)).map_or_else(
            |_| String::new(),
            |log| String::from_utf8_lossy(&log).into_owned(),
        )
    }

    /// Kills it (SIGKILL) with all its processes, and waits until it is gone. Does nothing if it is
    /// not running.
    pub fn kill(&self) {
        if let Some((guard, mut process)) = self.running().take() {
            drop(guard);
            signal(&process, Signal::KILL);
            let _ = process.wait();
        }
    }

    /// Ends it as an operator does (SIGINT): it undoes what runs, and closes all connections.
    ///
    /// # Panics
    ///
    /// When it was not running.
    pub fn stop(&self) {
        let (guard, mut process) = self.running().take().expect("the server is not running");
        drop(guard);
        let pid = Pid::from_child(&process);
        kill_process(pid, Signal::INT).expect("it is our process");
        process.wait().expect("it is our process");
    }

    /// Starts it again on its port, with the content that it has. It recovers what a kill has left.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn restart(&self) {
        self.kill();
        // Processes of the killed server may still hold its memory.
        wait::until("postgres to start again", PATIENCE, || {
            let _ = fs::remove_file(self.directory.path().join("data/postmaster.pid"));
            self.spawn()
        });
    }

    /// Makes a standby the server that accepts writes, and waits until it is.
    ///
    /// # Panics
    ///
    /// When it is none.
    pub fn promote(&self) {
        run(program("pg_ctl")
            .args(["promote", "--wait", "-D"])
            .arg(self.directory.path().join("data")));
    }

    /// Stops all its processes (SIGSTOP): connections stay open, and no answer comes.
    ///
    /// # Panics
    ///
    /// When it is not running.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues after [`pause`](Self::pause).
    ///
    /// # Panics
    ///
    /// When it is not running.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, sent: Signal) {
        let running = self.running();
        let (_, process) = running.as_ref().expect("the server is not running");
        signal(process, sent);
    }

    fn running(&self) -> MutexGuard<'_, Option<(ChildGuard, Child)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl std::fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresServer")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Sends a signal to all processes of a server. Each is a group of its own.
fn signal(process: &Child, sent: Signal) {
    let children = children(process.id());
    let _ = kill_process(Pid::from_child(process), sent);
    for child in children.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process(child, sent);
    }
}

/// Returns the processes that a process has started.
fn children(of: u32) -> Vec<i32> {
    let listed = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output();
    let listed = listed.expect("ps is everywhere").stdout;
    let child = |line: &str| {
        let (pid, parent) = line.trim().split_once(char::is_whitespace)?;
        (parent.trim() == of.to_string()).then(|| pid.parse().ok())?
    };
    String::from_utf8_lossy(&listed)
        .lines()
        .filter_map(child)
        .collect()
}

/// Returns a directory that the server's user owns.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    if let Some(user) = user() {
        chown(directory.path(), Some(user), None).expect("root may");
    }
    directory
}

/// Returns the user of a server when the tests run as root, which PostgreSQL refuses.
pub(crate) fn user() -> Option<u32> {
    const NOBODY: u32 = 65_534;
    getuid().is_root().then_some(NOBODY)
}

/// Returns a command of PostgreSQL, in the directory of the server program.
fn program(name: &str) -> Command {
    let mut command = Command::new(binaries().join(name));
    // The messages that tests look for are English, and the user's settings are not those of tests.
    command
        .env_clear()
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .current_dir("/");
    if let Some(user) = user() {
        command.uid(user);
    }
    command
}

/// Finds the directory of the programs: that of the server that `POSTGRES` names, else of the one
/// on PATH, else the newest where Debian has them.
///
/// # Panics
///
/// When there is none; a test that needs a server cannot be skipped.
fn binaries() -> PathBuf {
    let chosen = env::var_os("POSTGRES").filter(|chosen| !chosen.is_empty());
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates: Vec<PathBuf> = match chosen {
        Some(chosen) => vec![chosen.into()],
        None => env::split_paths(&path)
            .map(|directory| directory.join("postgres"))
            .collect(),
    };
    for version in (14..30).rev() {
        candidates.push(format!("/usr/lib/postgresql/{version}/bin/postgres").into());
    }
    let server = candidates.into_iter().find(|file| file.is_file());
    let server = server.expect(
        "this test needs a PostgreSQL server: run `cargo xtask test`, which installs one, or install postgresql, \
         or name the binary `postgres` in POSTGRES",
    );
    // The other programs stand beside the real file.
    let server = fs::canonicalize(&server).unwrap_or(server);
    server.parent().unwrap_or(Path::new("/")).to_owned()
}

fn run(command: &mut Command) {
    let done = command
        .stdin(Stdio::null())
        .output()
        .expect("the programs of PostgreSQL");
    assert!(
        done.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}
