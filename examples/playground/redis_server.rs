//! A Redis server that the playground starts, stops and starts again.

use std::{
    env,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tollgate_examples::Failure;

/// The longest time in which the server answers after its start.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts the program in its arguments, and ends it when its own input ends. So the server never
/// outlives the playground, even if that is killed.
const LEASH: &str = r#""$@" & cat > /dev/null; kill -TERM $! 2> /dev/null; wait $!"#;

/// Runs a Redis server without persistence, on a free port of 127.0.0.1. A restart keeps the port.
#[derive(Debug)]
pub(crate) struct RedisServer {
    program: String,
    port: u16,
    running: Mutex<Option<Child>>,
}

impl RedisServer {
    /// Starts the server that `REDIS_SERVER` names, or `redis-server`, or `valkey-server`.
    ///
    /// # Errors
    ///
    /// Returns an error if none of them can be started.
    pub(crate) fn start() -> Result<Self, Failure> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let server = Self {
            program: find()?,
            port,
            running: Mutex::default(),
        };
        server.resume()?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.lock().is_some()
    }

    /// Starts the server if it is stopped, empty, and waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be started, or accepts no connection within 10 s.
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        let mut running = self.lock();
        if running.is_some() {
            return Ok(());
        }
        let port = self.port.to_string();
        let options = [
            "--bind",
            "127.0.0.1",
            "--port",
            &port,
            "--save",
            "",
            "--appendonly",
            "no",
        ];
        let mut child = Command::new("sh")
            .args(["-c", LEASH, "sh", &self.program])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let start = Instant::now();
        while TcpStream::connect(self.address()).is_err() {
            if start.elapsed() > PATIENCE {
                end(&mut child);
                return Err(format!(
                    "{} accepts no connection at {} within {PATIENCE:?}",
                    self.program,
                    self.address()
                )
                .into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        *running = Some(child);
        Ok(())
    }

    /// Ends the server, and waits until it is gone. Its data are lost.
    pub(crate) fn stop(&self) {
        if let Some(mut child) = self.lock().take() {
            end(&mut child);
        }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Closes the input of the leash, which then ends the server.
fn end(child: &mut Child) {
    drop(child.stdin.take());
    if let Err(error) = child.wait() {
        eprintln!("the Redis server cannot be waited for: {error}");
    }
}

fn find() -> Result<String, Failure> {
    let chosen = env::var("REDIS_SERVER")
        .ok()
        .filter(|program| !program.is_empty());
    let programs = match &chosen {
        Some(program) => vec![program.as_str()],
        None => vec!["redis-server", "valkey-server"],
    };
    let starts = |program: &&str| {
        let mut command = Command::new(program);
        let status = command
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    match programs.iter().copied().find(starts) {
        Some(program) => Ok(program.to_owned()),
        None => Err(format!(
            "--redis-server: {} cannot be started; install it, or set REDIS_SERVER to the program",
            programs.join(" or ")
        )
        .into()),
    }
}
