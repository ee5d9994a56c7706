//! The program of the README as a new user runs it.

use std::{
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant},
};

use tollgate_tests::{Process, RedisServer, machine, ports, wait};

use crate::{STANDSTILL, http};

/// Starts the program on a free port, in process or with this server.
fn quickstart(redis: Option<&RedisServer>) -> (Process, SocketAddr) {
    let variables = redis.map(|redis| ("REDIS_URL", redis.url()));
    start(variables)
}

/// Starts the program on a free port, with these variables.
fn start(variables: impl IntoIterator<Item = (&'static str, String)>) -> (Process, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command: Command = Process::program("quickstart");
    command
        .env("LISTEN", address.to_string())
        .env_remove("REDIS_URL")
        .env_remove("HOME_URL")
        .envs(variables);
    (Process::start(command, "Try"), address)
}

/// Returns the status and the whole answer, in lower case.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, answer) = http::send(address, "GET", path, &[]);
    (status, answer.to_ascii_lowercase())
}

/// Sends requests to the instances in turn. Returns how many passed, and the most that may pass.
fn flood(addresses: &[SocketAddr], requests: usize) -> (usize, usize) {
    let began = Instant::now();
    let passed = (0..requests)
        .filter(|at| get(addresses[at % addresses.len()], "/search").0 == 200)
        .count();
    // 10 at once, and 5 a second since.
    (
        passed,
        10 + (began.elapsed().as_secs_f64() * 5.0).ceil() as usize,
    )
}

#[test]
fn the_quickstart_limits_in_process_and_its_answers_carry_the_limits() {
    let (process, address) = quickstart(None);
    assert!(process.output().contains("curl"), "{}", process.output());
    let (passed, most) = flood(&[address], 30);
    assert!(
        (10..=most).contains(&passed),
        "{passed} passed, at most {most} may"
    );
    // Where the machine has stood still, units have come back.
    let answer = wait::until_some("a denial", Duration::from_secs(60), || {
        let (status, answer) = get(address, "/search");
        (status == 429).then_some(answer)
    });
    for field in [
        "retry-after: 1",
        "ratelimit-policy: \"burst\";q=10;w=2, \"daily\";q=50000;w=86400",
        "ratelimit: \"burst\";r=0;t=1, \"daily\";r=49",
        "cache-control: no-store",
    ] {
        assert!(answer.contains(field), "{field} in {answer}");
    }
    for _ in 0..40 {
        assert_eq!(get(address, "/healthz").0, 200);
    }
}

#[test]
fn the_quickstart_serves_each_path_that_the_readme_calls() {
    const SERVICE: &str = "http://127.0.0.1:3000";
    let (_process, address) = quickstart(None);
    let paths: Vec<_> = include_str!("../../../README.md")
        .lines()
        .filter(|line| line.contains("curl "))
        .filter_map(|line| {
            line.split_once(SERVICE)?
                .1
                .split([';', ' ', '`', '"', '\''])
                .next()
        })
        .collect();
    assert!(!paths.is_empty(), "the README calls the service");
    for path in paths {
        let (status, answer) = get(address, path);
        assert_eq!(status, 200, "{path}: {answer}");
    }
}

#[test]
fn the_quickstart_and_the_program_of_the_readme_log_to_stderr() {
    let redis = RedisServer::start();
    let (mut process, address) = quickstart(Some(&redis));
    redis.kill();
    assert_eq!(http::send(address, "POST", "/login", &[]).0, 503);
    process.wait_for_line("WARN");
    let started = "tracing_subscriber::fmt().with_writer(std::io::stderr).init();";
    for text in [
        include_str!("../../../README.md"),
        include_str!("../../../examples/quickstart/main.rs"),
    ] {
        let text: String = text.split_whitespace().collect();
        assert!(text.contains(started), "{text}");
    }
}

#[test]
fn the_command_knows_the_limits_of_the_quickstart_by_themselves() {
    let redis = RedisServer::start();
    let (_process, address) = quickstart(Some(&redis));
    let row = wait::until_some("a limited key", Duration::from_secs(60), || {
        // Where the machine has stood still, units have come back.
        for _ in 0..6 {
            http::send(address, "POST", "/login", &[]);
        }
        let mut who = Process::program("tollgate");
        who.args(["who", "--redis", &redis.url()]);
        let output = who.output().expect("the command starts");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines()
            .find(|line| line.contains("login"))
            .map(str::to_owned)
    });
    assert!(row.contains("127.0.0.1") && row.contains("5/min"), "{row}");

    // Whoever follows a page has published limiters too.
    for text in [
        include_str!("../../../README.md"),
        include_str!("../../../crates/tollgate/src/guide/in_production.md"),
    ] {
        assert!(text.contains(".published()"), "{text}");
    }
}

#[test]
fn what_fails_closed_has_one_recommended_deadline() {
    let texts = [
        ("README.md", include_str!("../../../README.md")),
        (
            "quickstart",
            include_str!("../../../examples/quickstart/main.rs"),
        ),
        (
            "login_protection",
            include_str!("../../../examples/login_protection.rs"),
        ),
        (
            "outages",
            include_str!("../../../crates/tollgate/src/guide/outages.md"),
        ),
        (
            "in_production",
            include_str!("../../../crates/tollgate/src/guide/in_production.md"),
        ),
    ];
    for (name, text) in texts {
        let closed: Vec<_> = text
            .split(';')
            .filter(|code| code.contains(".on_outage(Outage::Closed)"))
            .collect();
        assert!(!closed.is_empty(), "{name}");
        for code in closed {
            assert!(
                code.contains(".deadline(Duration::from_secs(1))"),
                "{name}: {code}"
            );
        }
    }
}

#[test]
fn two_instances_with_one_redis_share_one_limit() {
    machine::undisturbed(STANDSTILL, two_instances);
}

fn two_instances() {
    let redis = RedisServer::start();
    let ((_one, at_one), (_other, at_other)) = (quickstart(Some(&redis)), quickstart(Some(&redis)));
    let (passed, most) = flood(&[at_one, at_other], 30);
    assert!(
        (10..=most).contains(&passed),
        "{passed} passed, at most {most} may"
    );
    // A cached denial is not sent to the server.
    assert!(
        redis.calls("evalsha") + redis.calls("eval") >= passed as u64,
        "every admission is decided at the server"
    );
}

/// Returns the ends of the names of all keys, without those of the processes themselves.
fn keys(server: &RedisServer) -> Vec<String> {
    let names = server.command(&["KEYS", "*"]).items().to_vec();
    let names = names.iter().map(|name| name.text());
    let mut ends: Vec<_> = names
        .filter(|name| !name.contains("{replicas}"))
        .filter_map(|name| name.rsplit(':').next().map(str::to_owned))
        .collect();
    ends.sort();
    ends
}

#[test]
fn two_variables_let_regions_share_one_limit_and_count_the_others_for_themselves() {
    let (home, eu, us) = (
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    );
    let region = |name: &str, server: &RedisServer| {
        let local = format!("{}&region={name}", server.url());
        let home = format!("{}&durability=trust", home.url());
        start([("REDIS_URL", local), ("HOME_URL", home)])
    };
    let ((_eu, in_eu), (_us, in_us)) = (region("eu", &eu), region("us", &us));
    for (server, address) in [(&eu, in_eu), (&us, in_us)] {
        // Where the machine stands still, the program decides without a server.
        wait::until("a purse and two counters", Duration::from_secs(60), || {
            let (status, answer) = get(address, "/news");
            assert_eq!(status, 200, "{answer}");
            assert!(answer.contains("\"news\";q=2000"), "{answer}");
            get(address, "/search");
            keys(server) == ["f1", "purse2", "t1"]
        });
    }
    assert_eq!(keys(&home), ["home1"], "no other limit leaves its region");
}

#[test]
fn a_home_without_a_guard_is_refused_with_the_reason() {
    let mut command = Process::program("quickstart");
    command.env("REDIS_URL", "redis://127.0.0.1:1/?region=eu");
    command.env("HOME_URL", "redis://127.0.0.1:1/");
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("durability is not set"),
        "{said}"
    );
}
