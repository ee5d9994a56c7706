//! Starts PgBouncer in front of a PostgreSQL server, for tests.

use std::{
    env, fmt, fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::{PostgresServer, child_guard::ChildGuard, ports, postgres::user, wait};

const PATIENCE: Duration = Duration::from_secs(60);

/// A pooler in transaction mode on a free port of 127.0.0.1. Each of its transactions may run in
/// another session, and each session serves all clients of a user. Dropping the value ends it.
pub struct PgBouncer {
    port: u16,
    _guard: ChildGuard,
    process: Child,
    _directory: TempDir,
}

impl PgBouncer {
    /// Starts a pooler with so many sessions for each of these users.
    ///
    /// # Panics
    ///
    /// When PgBouncer is missing, or does not start.
    #[must_use]
    pub fn start(server: &PostgresServer, sessions: u32, users: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path();
        let list: String = users
            .iter()
            .map(|user| format!("\"{user}\" \"\"\n"))
            .collect();
        fs::write(path.join("users"), list).expect("the directory is ours");
        let keeps = match keeps_statements() {
            true => "max_prepared_statements = 100\n",
            false => "",
        };
        for _ in 0..10 {
            let port = ports::free();
            let settings = format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                 unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
                 default_pool_size = {sessions}\nserver_tls_sslmode = disable\n{keeps}",
                server.port(),
                path.join("users").display()
            );
            fs::write(path.join("settings"), settings).expect("the directory is ours");
            let mut command = Command::new(binary());
            command.arg(path.join("settings"));
            if let Some(user) = user() {
                for file in ["", "users", "settings"] {
                    chown(path.join(file), Some(user), None).expect("root may");
                }
                command.uid(user);
            }
            let mut process = command
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the binary was found");
            let guard = ChildGuard::on(&process, Some(path)).expect("sh is everywhere");
            let is_up =
                wait::until_some("pgbouncer to answer or to end", PATIENCE, || match process
                    .try_wait()
                    .expect("it is our process")
                {
                    Some(_) => Some(false),
                    None => TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                        .is_ok()
                        .then_some(true),
                });
            if is_up {
                return Self {
                    port,
                    _guard: guard,
                    process,
                    _directory: directory,
                };
            }
        }
        panic!("pgbouncer did not come up");
    }

    /// Returns the URL of the database for a user.
    #[must_use]
    pub fn url(&self, user: &str) -> String {
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, self.port).into();
        format!("postgres://{user}@{address}/postgres?connect_timeout=60")
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl fmt::Debug for PgBouncer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgBouncer")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Returns whether the pooler that is installed keeps prepared statements in transaction mode, as
/// PgBouncer does from 1.21 on.
///
/// # Panics
///
/// When it is missing, or does not name its version.
#[must_use]
pub fn keeps_statements() -> bool {
    let output = Command::new(binary()).arg("--version").output();
    let text = output.expect("the binary was found").stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let minor = text
        .split_once("PgBouncer 1.")
        .and_then(|(_, rest)| rest.split('.').next()?.trim().parse::<u32>().ok());
    minor.unwrap_or_else(|| panic!("no version of PgBouncer 1: {text}")) >= 21
}

/// Finds the program: the one that `PGBOUNCER` names, else that on PATH or where Debian has it.
///
/// # Panics
///
/// When there is none; a test that needs it cannot be skipped.
fn binary() -> PathBuf {
    if let Some(chosen) = env::var_os("PGBOUNCER").filter(|chosen| !chosen.is_empty()) {
        return chosen.into();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<_> = env::split_paths(&path).collect();
    directories.extend(["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    let found = directories
        .into_iter()
        .map(|directory| directory.join("pgbouncer"))
        .find(|file| file.is_file());
    found.expect(
        "this test needs PgBouncer: run `cargo xtask test`, which installs it, or install pgbouncer, or name the binary \
         in PGBOUNCER",
    )
}
