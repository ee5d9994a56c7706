//! The example of rules with the file `ranked.yaml`: ranks, networks, and a limit that is brought
//! into force.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use tollgate_tests::{Process, ports, wait};

use crate::http;

fn status(address: SocketAddr, path: &str, tenant: &str) -> u16 {
    http::send(address, "GET", path, &[("X-Tenant", tenant)]).0
}

/// Replaces a file by a rename.
fn write(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).expect("a file");
    fs::rename(next, path).expect("a rename");
}

/// Waits until the example has read its files again.
fn until(what: &str, holds: impl Fn() -> bool) {
    wait::until(what, Duration::from_secs(60), holds);
}

#[test]
fn the_file_with_ranks_networks_and_a_share_is_obeyed_and_exchanged() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let directory = tempfile::tempdir().expect("a directory");
    let (rules, blocked) = (
        directory.path().join("ranked.yaml"),
        directory.path().join("blocked.txt"),
    );
    let text = fs::read_to_string(examples.join("ranked.yaml")).expect("the rules");
    fs::write(&rules, &text).expect("a file");
    fs::copy(examples.join("blocked.txt"), &blocked).expect("the networks");
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command = Process::example("rules");
    command
        .env("LISTEN", address.to_string())
        .env("RULES", &rules);
    let mut process = Process::start(command, "Try");

    let passed = |path: &str| {
        (0..12)
            .filter(|_| status(address, path, "acme") == 200)
            .count()
    };
    // The limit of the tenant is spent, and in force for nobody.
    assert_eq!((passed("/export"), passed("/")), (6, 4));

    // The limit of the service goes, and that of the tenant comes into force.
    let enforced = text
        .replace("enforce: 0%", "enforce: 100%")
        .replace("quota: 10/h", "unlimited: true");
    write(&rules, &enforced);
    until("the limit of the service is gone", || {
        status(address, "/", "first") == 200
    });
    assert_eq!(
        [status(address, "/", "other"), status(address, "/", "other")],
        [200, 429]
    );
    assert_eq!(
        status(address, "/", "acme"),
        429,
        "what was spent in shadow is spent"
    );

    write(&blocked, "127.0.0.0/8\n");
    until("this client is denied", || {
        status(address, "/", "third") == 403
    });
    write(&blocked, "");
    until("this client is served again", || {
        status(address, "/", "third") != 403
    });
    assert!(process.interrupt().success());
}
