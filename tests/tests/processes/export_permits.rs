//! The example of long exports: two at a time, released when they end and when the client hangs up.

use std::{net::SocketAddr, time::Duration};

use tollgate_tests::{Process, RedisServer, machine, ports, wait};

use crate::{
    STANDSTILL,
    http::{self, Answer},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts an export.
fn export(address: SocketAddr, tenant: &str, rows: u64) -> Answer {
    http::open(
        address,
        "GET",
        &format!("/export?rows={rows}"),
        &[("X-Tenant", tenant)],
        "",
    )
}

#[test]
fn two_exports_of_a_tenant_run_at_a_time_and_a_hang_up_frees_a_permit() {
    machine::undisturbed(STANDSTILL, exports);
}

fn exports() {
    let redis = RedisServer::start();
    for url in [None, Some(redis.url())] {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("export_permits");
        command.env("LISTEN", address.to_string());
        if let Some(url) = &url {
            command.env("REDIS_URL", url);
        }
        let mut process = Process::start(command, "Try");

        let [first, second] = [
            export(address, "acme", 1_000_000),
            export(address, "acme", 1_000_000),
        ];
        assert_eq!((first.status, second.status), (200, 200), "{url:?}");
        let third = export(address, "acme", 1);
        assert!(
            third.status == 429 && third.head.contains("retry-after: "),
            "{}",
            third.head
        );
        assert!(
            third.head.contains(r#"ratelimit: "exports";r=0"#),
            "{}",
            third.head
        );
        let text = third.text();
        assert!(
            text.contains(r#""violated-policies":["exports"]"#),
            "{text}"
        );
        assert_eq!(
            export(address, "other", 1).status,
            200,
            "another tenant has permits of its own"
        );

        // The client hangs up.
        drop(first);
        wait::until("a permit of the export that was left", PATIENCE, || {
            export(address, "acme", 1).status == 200
        });

        // One export ends, and its permit goes to the next one.
        for _ in 0..2 {
            let rows = export(address, "acme", 2);
            assert_eq!(rows.status, 200, "{}", rows.head);
            let text = rows.text();
            assert!(text.contains("2,some data"), "{text}");
        }
        drop(second);
        assert!(process.terminate().success());
    }
}
