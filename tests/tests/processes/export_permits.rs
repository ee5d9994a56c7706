//! The example of long exports: two at a time, released when they end and when the client hangs up.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use tollgate_tests::{Process, RedisServer, ports, wait};

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts an export. Returns the head, in lower case, and the connection.
fn export(address: SocketAddr, tenant: &str, rows: u64) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(address).expect("the example listens");
    let head = format!("GET /export?rows={rows} HTTP/1.1\r\nHost: localhost\r\nX-Tenant: {tenant}\r\n");
    write!(stream, "{head}Connection: close\r\n\r\n").expect("a request");
    let (mut rest, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert!(rest.read_line(&mut head).expect("a head") > 0, "{head}");
    }
    (head.to_ascii_lowercase(), rest)
}

fn is_ok(head: &str) -> bool {
    head.starts_with("http/1.1 200")
}

#[test]
fn two_exports_of_a_tenant_run_at_a_time_and_a_hang_up_frees_a_permit() {
    let redis = RedisServer::start();
    for url in [None, Some(redis.url())] {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("export_permits");
        command.env("LISTEN", address.to_string());
        if let Some(url) = &url {
            command.env("REDIS_URL", url);
        }
        let mut process = Process::start(command, "Try");

        let [first, second] = [export(address, "acme", 1_000_000), export(address, "acme", 1_000_000)];
        assert!(is_ok(&first.0) && is_ok(&second.0), "{url:?}");
        let (third, mut document) = export(address, "acme", 1);
        assert!(third.starts_with("http/1.1 429") && third.contains("retry-after: "), "{third}");
        assert!(third.contains(r#"ratelimit: "exports";r=0"#), "{third}");
        let mut text = String::new();
        document.read_to_string(&mut text).expect("a document");
        assert!(text.contains(r#""violated-policies":["exports"]"#), "{text}");
        assert!(is_ok(&export(address, "other", 1).0), "another tenant has permits of its own");

        // The client hangs up.
        drop(first);
        wait::until("a permit of the export that was left", PATIENCE, || is_ok(&export(address, "acme", 1).0));

        // One export ends, and its permit goes to the next one.
        for _ in 0..2 {
            let (head, mut rows) = export(address, "acme", 2);
            let mut text = String::new();
            rows.read_to_string(&mut text).expect("rows");
            assert!(is_ok(&head) && text.contains("2,some data"), "{head}{text}");
        }
        drop(second);
        assert!(process.terminate().success());
    }
}
