//! Network namespaces for faults that one loopback cannot show: silent peers, lost packets.
//!
//! They have no names and end with their last process. A program first moves into one with
//! [`enter`], so that its virtual cables and its hosts file are not visible outside. Linux only,
//! and only for root.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Write},
    net::Ipv4Addr,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
};

use tempfile::TempDir;

use crate::{child_guard::ChildGuard, server};

/// The environment variable that [`enter`] sets.
const ENTERED: &str = "TOLLGATE_NAMESPACE";

const SCRIPT: &str = "server";

static NEXT: AtomicU8 = AtomicU8::new(0);

/// Returns whether this process runs in namespaces of its own.
#[must_use]
pub fn is_inside() -> bool {
    env::var_os(ENTERED).is_some()
}

/// Restarts this program in the same process, with the same arguments, in a network and a mount
/// namespace of its own. Returns at once where the program runs in them already.
///
/// # Errors
///
/// Names the reason: the user is not root, a program is missing, or the kernel refuses.
pub fn enter() -> Result<(), String> {
    if is_inside() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("needs root".to_owned());
    }
    for program in ["ip", "tc", "unshare", "nsenter"] {
        let found = Command::new(program)
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        found.map_err(|error| format!("needs {program} ({error})"))?;
    }
    let this = env::current_exe().map_err(|error| error.to_string())?;
    // Tried first: a container may forbid it to its root.
    let own = ["--net", "--mount", "sh", "-c"];
    let tried = Command::new("unshare")
        .args(own)
        .arg("ip link set lo up")
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        return Err("needs the right to make network namespaces".to_owned());
    }
    let mut again = Command::new("unshare");
    again
        .args(own)
        .args(["ip link set lo up && exec \"$0\" \"$@\""])
        .arg(this)
        .args(env::args_os().skip(1));
    Err(again.env(ENTERED, "1").exec().to_string())
}

/// A network namespace that a virtual cable connects to that of this process.
///
/// Dropping the value removes both, which happens with the test process at the latest. Drop its
/// servers first.
#[derive(Debug)]
pub struct NetworkNamespace {
    number: u8,
    guard: Option<ChildGuard>,
    holder: Child,
    directory: TempDir,
}

impl NetworkNamespace {
    /// Creates a namespace.
    ///
    /// # Panics
    ///
    /// Outside of namespaces, see [`enter`], and when the kernel refuses.
    #[must_use]
    pub fn start() -> Self {
        assert!(
            is_inside(),
            "islands are made in namespaces of one's own alone"
        );
        let directory = tempfile::Builder::new()
            .prefix("tollgate-namespace-")
            .tempdir()
            .expect("a temporary directory can be made");
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo there; exec sleep infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare can be started");
        let guard = ChildGuard::on(&holder, Some(directory.path())).expect("sh is everywhere");
        let mut there = String::new();
        BufReader::new(holder.stdout.take().expect("it is piped"))
            .read_line(&mut there)
            .expect("it is ours");
        assert_eq!(there, "there\n", "no namespace could be made");
        write_script(directory.path(), holder.id());
        let namespace = Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            guard: Some(guard),
            holder,
            directory,
        };
        let [home, away] = namespace.ends();
        let words = format!(
            "link add {home} address {} type veth peer name {away} address {}",
            mac(1),
            mac(2)
        );
        run(Command::new("ip").args(words.split(' ')));
        run(Command::new("ip").args([
            "link",
            "set",
            &away,
            "netns",
            &namespace.holder.id().to_string(),
        ]));
        run(&mut namespace.inside("ip", &["link", "set", "lo", "up"]));
        for (command, end, address) in [
            (Command::new("ip"), &home, namespace.local_address()),
            (namespace.command("ip"), &away, namespace.remote_address()),
        ] {
            let mut command = command;
            run(command.args(["address", "add", &format!("{address}/24"), "dev", end]));
        }
        run(Command::new("ip").args(["link", "set", &home, "up"]));
        run(&mut namespace.inside("ip", &["link", "set", &away, "up"]));
        namespace.restore();
        namespace
    }

    /// Returns the address of this end of the cable.
    #[must_use]
    pub fn local_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, 1)
    }

    /// Returns the address of the other end, in the namespace.
    #[must_use]
    pub fn remote_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, 2)
    }

    /// Returns a command that runs in the namespace.
    #[must_use]
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.holder.id().to_string(), "--net", "--"])
            .arg(program.as_ref());
        command
    }

    /// Makes a server run in the namespace.
    ///
    /// # Panics
    ///
    /// When there is no server binary.
    pub fn place(&self, builder: server::Builder) -> server::Builder {
        builder
            .binary(self.directory.path().join(SCRIPT))
            .address(self.remote_address())
    }

    /// Drops everything that the namespace sends. What is sent to it arrives.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    pub fn drop_sent(&self) {
        self.point(&mut self.command("ip"), 1, self.local_address(), 9);
    }

    /// Drops everything in both directions, without an error to either side.
    ///
    /// # Panics
    ///
    /// As [`NetworkNamespace::drop_sent`].
    pub fn cut(&self) {
        self.drop_sent();
        self.point(&mut Command::new("ip"), 0, self.remote_address(), 9);
    }

    /// Restores the connection in both directions.
    ///
    /// # Panics
    ///
    /// As [`NetworkNamespace::drop_sent`].
    pub fn restore(&self) {
        self.point(&mut self.command("ip"), 1, self.local_address(), 1);
        self.point(&mut Command::new("ip"), 0, self.remote_address(), 2);
    }

    /// Drops this percentage of the packets at random, in both directions.
    ///
    /// # Panics
    ///
    /// Without nft, see [`has_filter`].
    pub fn drop_packets(&self, percent: u32) {
        let rule = format!("numgen random mod 100 < {percent} drop");
        self.filter(&rule, &rule);
    }

    /// Limits the rate in each direction; packets that would wait longer than 200 ms are dropped.
    ///
    /// # Panics
    ///
    /// As [`NetworkNamespace::drop_sent`].
    pub fn limit_rate(&self, kilobits: u32) {
        let rate = format!("{kilobits}kbit");
        for (mut tc, end) in [Command::new("tc"), self.command("tc")]
            .into_iter()
            .zip(self.ends())
        {
            let words = [
                "qdisc", "replace", "dev", &end, "root", "tbf", "rate", &rate, "burst", "16kb",
                "latency", "200ms",
            ];
            run(tc.args(words));
        }
    }

    fn filter(&self, on_way_in: &str, on_way_out: &str) {
        let mut rules = String::from("add table inet tollgate\nflush table inet tollgate\n");
        for (hook, rule) in [("input", on_way_in), ("output", on_way_out)] {
            writeln!(
                rules,
                "add chain inet tollgate {hook} {{ type filter hook {hook} priority 0; }}"
            )
            .expect("a string");
            writeln!(rules, "add rule inet tollgate {hook} {rule}").expect("a string");
        }
        let mut nft = self
            .command(filter_program())
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("nft");
        nft.stdin
            .take()
            .expect("it is piped")
            .write_all(rules.as_bytes())
            .expect("it reads");
        assert!(
            nft.wait().expect("it is ours").success(),
            "nft refuses:\n{rules}"
        );
    }

    /// Sets the hardware address for `address` at an end. Frames to a number that no end has are
    /// lost.
    fn point(&self, ip: &mut Command, end: usize, address: Ipv4Addr, number: u8) {
        let (address, lladdr, device) = (address.to_string(), mac(number), &self.ends()[end]);
        run(ip.args([
            "neighbour",
            "replace",
            &address,
            "lladdr",
            &lladdr,
            "nud",
            "permanent",
            "dev",
            device,
        ]));
    }

    fn inside(&self, program: &str, words: &[&str]) -> Command {
        let mut command = self.command(program);
        command.args(words);
        command
    }

    /// Returns the names of the ends of the cable, here and in the namespace.
    fn ends(&self) -> [String; 2] {
        ["home", "away"].map(|end| format!("{end}{}", self.number))
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        drop(self.guard.take());
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        // The kernel takes its time to clear a namespace away; an end that is gone takes the other
        // with it.
        let _ = Command::new("ip")
            .args(["link", "delete", &self.ends()[0]])
            .stderr(Stdio::null())
            .status();
    }
}

/// Returns whether packets can be filtered: with the program that `NFT` names, or nft on PATH.
#[must_use]
pub fn has_filter() -> bool {
    let asked = Command::new(filter_program())
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

fn filter_program() -> PathBuf {
    env::var_os("NFT")
        .filter(|chosen| !chosen.is_empty())
        .map_or_else(|| "nft".into(), PathBuf::from)
}

/// Writes the script that runs a server in the namespace.
fn write_script(directory: &Path, holder: u32) {
    let script = directory.join(SCRIPT);
    let server = server::find_binary();
    let line = format!(
        "exec nsenter --target {holder} --net -- '{}' \"$@\"",
        server.display()
    );
    fs::write(&script, format!("#!/bin/sh\n{line}\n")).expect("it is our directory");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is our file");
}

fn mac(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("it can be started");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
