//! Starts a server on a port and waits until it answers.

use std::{
    env, fs, io,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{Builder, Running};
use crate::{child_guard::ChildGuard, client::Client, wait};

pub(super) const LOG: &str = "server.log";
const CONFIGURATION: &str = "server.conf";

/// The longest time of a start on a slow machine; usually it takes milliseconds.
const STARTING: Duration = Duration::from_secs(30);

/// Another process listens on the port.
#[derive(Debug)]
pub(super) struct PortTaken;

/// Starts the server on `port` and waits until it answers there.
///
/// # Panics
///
/// When the server ends for another reason than the port, or does not answer.
pub(super) fn launch(
    settings: &Builder,
    directory: &Path,
    port: u16,
    tls_port: Option<u16>,
) -> Result<Running, PortTaken> {
    let log = directory.join(LOG);
    let before = fs::metadata(&log).map_or(0, |log| log.len());
    let mut running = spawn(settings, directory, port, tls_port)
        .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", settings.binary));

    let addr = settings.at(port);
    let started = Instant::now();
    let up = wait::until_some("the server to answer or to end", STARTING * 2, || {
        if running
            .process
            .try_wait()
            .expect("it is our process")
            .is_some()
        {
            Some(false)
        } else if answers(addr, settings.password.as_deref(), running.process.id()) {
            Some(true)
        } else {
            (started.elapsed() > STARTING).then_some(false)
        }
    });
    if up {
        return Ok(running);
    }
    running.end();
    let said = fs::read(&log).unwrap_or_default();
    let said =
        String::from_utf8_lossy(said.get(to_index(before)..).unwrap_or_default()).into_owned();
    if said.contains("ddress already in use") {
        return Err(PortTaken);
    }
    panic!("the server did not come up:\n{said}");
}

fn to_index(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

fn spawn(
    settings: &Builder,
    directory: &Path,
    port: u16,
    tls_port: Option<u16>,
) -> io::Result<Running> {
    let configuration = directory.join(CONFIGURATION);
    let mut lines = settings.configuration.clone();
    if let Some(password) = &settings.password {
        // In the file, not on the command line, which everybody on the machine may read.
        lines.push_str(&format!("requirepass \"{password}\"\n"));
    }
    fs::write(&configuration, lines)?;
    for (name, text) in &settings.files {
        fs::write(directory.join(name), text)?;
    }
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(directory.join(LOG))?;

    let binary = settings
        .binary
        .as_deref()
        .unwrap_or(Path::new("redis-server"));
    let mut process = Command::new(binary)
        .arg(&configuration)
        .args(["--port", &port.to_string()])
        .args(["--bind", &settings.at(port).ip().to_string()])
        // Nobody but us is where a server listens; away from loopback it asks for a password
        // otherwise.
        .args(["--protected-mode", "no"])
        .args(["--save", ""])
        .args(["--appendonly", "no"])
        .args(["--daemonize", "no"])
        .args(
            tls_port
                .map(|port| ["--tls-port".to_owned(), port.to_string()])
                .into_iter()
                .flatten(),
        )
        .args(&settings.arguments)
        .envs(settings.variables.iter().map(|(name, value)| (name, value)))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    match ChildGuard::on(&process, Some(directory)) {
        Ok(guard) => Ok(Running {
            _guard: guard,
            process,
        }),
        Err(error) => {
            let _ = process.kill();
            let _ = process.wait();
            Err(error)
        }
    }
}

/// Returns whether the process `pid` answers at `addr`; another server may have taken the port.
///
/// # Panics
///
/// When it is of another version than `SERVER_VERSION` says. `cargo xtask test --servers` sets the
/// variable.
fn answers(addr: SocketAddr, password: Option<&str>, pid: u32) -> bool {
    let Ok(info) = sign_in(addr, password).and_then(|mut client| client.command(&["INFO"])) else {
        return false;
    };
    if info.is_error() {
        return false;
    }
    let info = info.text();
    let is = |name: &str, expected: &str| fields(&info).any(|field| field == (name, expected));
    if !is("process_id", &pid.to_string()) || is("loading", "1") {
        return false;
    }
    if let Ok(version) = env::var("SERVER_VERSION") {
        assert!(
            info.lines().any(|line| line == version),
            "the server is not {version}, which SERVER_VERSION says"
        );
    }
    true
}

/// Connects, with the password if there is one.
pub(super) fn sign_in(addr: SocketAddr, password: Option<&str>) -> io::Result<Client> {
    let mut client = Client::connect(addr)?;
    if let Some(password) = password {
        let reply = client.command(&["AUTH", password])?;
        if reply.is_error() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                reply.text(),
            ));
        }
    }
    Ok(client)
}

/// Returns the `name:value` lines of an `INFO` reply.
pub(super) fn fields(info: &str) -> impl Iterator<Item = (&str, &str)> {
    info.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(':'))
}
