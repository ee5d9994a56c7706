//! The program as an operator runs it.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tollgate_envoy::proto::{
    config::RateLimitUnit,
    ratelimit::{rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient},
};
use tollgate_tests::{PostgresServer, Process, RedisServer, Reply, no_server, wait};
use tonic::transport::{Channel, Endpoint};

use crate::{
    ads::{Plane, config, resource},
    support::{LIMIT, http, tenant},
};

pub(crate) const RULES: &str =
    "{domain: shop, descriptors: [{key: tenant, rate_limit: {unit: year, requests_per_unit: 2}}]}";

/// Returns the command with free ports and no delay at the end, and without the variables of the
/// test's own environment.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-envoy"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    command
        .env_clear()
        .env("PATH", path)
        .args(["--host=127.0.0.1", "--port=0", "--debug-port=0"]);
    command.args(["--grpc-host=127.0.0.1", "--grpc-port=0"]);
    // A test may set other ones by flags, which go before variables.
    command
        .env("USE_STATSD", "false")
        .env("TOLLGATE_DRAIN_DELAY", "0")
        // A machine that stands still must not turn an answer into that of an outage.
        .env("TOLLGATE_DEADLINE", "60s");
    command
}

/// Starts the program, and waits until it serves.
pub(crate) fn start(command: Command) -> Process {
    Process::start(command, "gRPC: ")
}

fn run(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// Returns the place of a part, which the program has printed.
pub(crate) fn place(process: &Process, part: &str) -> String {
    let output = process.output();
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix(part)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("{output}")).to_owned()
}

pub(crate) async fn channel(process: &Process) -> Channel {
    Endpoint::from_shared(format!("http://{}", place(process, "gRPC")))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

pub(crate) async fn decide(channel: &Channel) -> Result<(Code, u32), tonic::Status> {
    let answer = RateLimitServiceClient::new(channel.clone())
        .should_rate_limit(tenant("acme"))
        .await?
        .into_inner();
    Ok((answer.overall_code(), answer.statuses[0].limit_remaining))
}

pub(crate) async fn is_healthy(process: &Process) -> bool {
    http(place(process, "HTTP"), "GET /healthcheck", "").await.0 == 200
}

pub(crate) async fn until_healthy(process: &Process) {
    wait::until_async("a healthy service", LIMIT, async || {
        is_healthy(process).await
    })
    .await;
}

pub(crate) struct Files(pub(crate) tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

#[tokio::test]
async fn the_example_is_served_and_ends_with_status_0() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/envoy/rules.yaml");
    let mut command = command();
    command.arg("--rules").arg(&rules);
    let mut process = start(command);
    assert!(
        process
            .output()
            .contains("(domains: 1, rules: 5, mode: native)"),
        "{}",
        process.output()
    );
    assert!(
        process
            .output()
            .contains("store: the memory of this process"),
        "{}",
        process.output()
    );
    until_healthy(&process).await;
    assert_eq!(decide(&channel(&process).await).await.unwrap().0, Code::Ok);
    let (_, page) = http(place(&process, "debug pages"), "GET /rlconfig", "").await;
    assert!(
        page.contains("shop.remote_address: unit=SECOND requests_per_unit=50"),
        "{page}"
    );
    let ended = tokio::task::spawn_blocking(move || process.terminate())
        .await
        .unwrap();
    assert_eq!(ended.code(), Some(0));
}

/// Swaps the link `current` of the directory.
fn swap(files: &Files, target: &str) {
    let next = files.0.path().join("next");
    std::os::unix::fs::symlink(target, &next).unwrap();
    fs::rename(next, files.0.path().join("current")).unwrap();
}

#[tokio::test]
async fn the_link_of_the_runtime_root_is_swapped() {
    let files = Files::new();
    for (version, requests) in [("a", 2), ("b", 20)] {
        let rules = RULES.replace(": 2}", &format!(": {requests}}}"));
        files.write(&format!("{version}/ratelimit/config/shop.yaml"), &rules);
    }
    swap(&files, "a");
    let mut command = command();
    command
        .env("RUNTIME_ROOT", files.0.path().join("current"))
        .env("RUNTIME_SUBDIRECTORY", "ratelimit");
    let process = start(command);
    let channel = channel(&process).await;
    assert_eq!(decide(&channel).await.unwrap(), (Code::Ok, 1));
    swap(&files, "b");
    wait::until_async("the new limit", LIMIT, async || {
        decide(&channel).await.unwrap().1 > 10
    })
    .await;
}

#[tokio::test]
async fn the_variables_of_envoys_service_are_read() {
    if no_server() {
        return;
    }
    let files = Files::new();
    files.write("limits/current/rules/shop.yaml", RULES);
    let redis = RedisServer::start();
    let mut command = command();
    command
        .env("RUNTIME_ROOT", files.0.path())
        .env("RUNTIME_SUBDIRECTORY", "limits/current")
        .env("RUNTIME_APPDIRECTORY", "rules")
        .env("REDIS_SOCKET_TYPE", "tcp")
        .env("REDIS_URL", redis.addr().to_string())
        .env("CACHE_KEY_PREFIX", "replaced:")
        .env("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
        .env("LIMIT_REMAINING_HEADER", "x-left")
        .env("REDIS_POOL_SIZE", "10")
        .env("REDIS_PERSECOND_URL", "h:1")
        .env("GRPC_PROT", "1")
        .env("TOLLGATE_NOTHING_LIKE_IT", "1")
        // Kubernetes sets these for a service of the name.
        .env("REDIS_PORT", "tcp://192.0.2.1:6379")
        .env("REDIS_PORT_6379_TCP_ADDR", "192.0.2.1")
        .env("REDIS_SERVICE_HOST", "192.0.2.1")
        .env("LOG_FORMAT", "json");
    let mut process = start(command);
    until_healthy(&process).await;
    let channel = channel(&process).await;
    let answer = RateLimitServiceClient::new(channel)
        .should_rate_limit(tenant("acme"))
        .await
        .unwrap()
        .into_inner();
    let left = answer
        .response_headers_to_add
        .iter()
        .find(|field| field.key == "x-left")
        .unwrap();
    assert_eq!(left.value, "1");
    let keys = redis.command(&["KEYS", "replaced:*"]);
    assert!(
        matches!(&keys, Reply::Array(keys) if !keys.is_empty()),
        "{keys:?}"
    );
    for line in [
        "store: Redis",
        "the variable REDIS_POOL_SIZE has no effect: all decisions share few connections",
        "the variable REDIS_PERSECOND_URL has no effect: all limits have one store",
        "the variable GRPC_PROT is unknown and has no effect; did you mean GRPC_PORT?",
        "the variable TOLLGATE_NOTHING_LIKE_IT is unknown and has no effect",
        r#""level":"WARN""#,
    ] {
        process.wait_for_line(line);
    }
    // The program tells them one after the other, before it serves.
    let output = process.output();
    assert_eq!(output.matches("the variable ").count(), 4, "{output}");
}

#[tokio::test]
async fn units_of_a_lease_are_returned_at_the_end() {
    if no_server() {
        return;
    }
    const LEASED: &str = "{domain: shop, descriptors: \
                          [{key: tenant, rate_limit: {unit: year, requests_per_unit: 10000, lease: true}}]}";
    let files = Files::new();
    let redis = RedisServer::start();
    let rules = files.write("rules.yaml", LEASED);
    let serve = || {
        let mut command = command();
        command
            .arg("--rules")
            .arg(&rules)
            .arg(format!("--store={}", redis.url()));
        start(command)
    };
    let mut process = serve();
    until_healthy(&process).await;
    let ended = channel(&process).await;
    for _ in 0..300 {
        decide(&ended).await.unwrap();
    }
    drop(ended);
    // The connection is closed meanwhile.
    let status = tokio::task::spawn_blocking(move || process.terminate())
        .await
        .unwrap();
    assert!(status.success());
    let process = serve();
    until_healthy(&process).await;
    let (_, remaining) = decide(&channel(&process).await).await.unwrap();
    // The new process may take a few units in advance.
    assert!((9_650..=9_705).contains(&remaining), "{remaining}");
}

/// Sets the password of the user `limits`, at the server and in the file.
fn set_password(redis: &RedisServer, file: &Path, password: &str) {
    let secret = format!(">{password}");
    let rights = ["on", "resetpass", &secret, "~*", "&*", "+@all"];
    let reply = redis.command(&[&["ACL", "SETUSER", "limits"][..], &rights].concat());
    assert!(!reply.is_error(), "{}", reply.text());
    let next = file.with_extension("next");
    fs::write(&next, format!("limits\n{password}\n")).unwrap();
    fs::rename(next, file).unwrap();
}

/// Returns the connections of the user `limits`, by their numbers.
fn connections(redis: &RedisServer) -> Vec<String> {
    let list = redis.command(&["CLIENT", "LIST"]).text();
    let of_user = list.lines().filter(|line| line.contains(" user=limits "));
    of_user
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn the_password_in_a_file_may_change() {
    if no_server() {
        return;
    }
    let (files, redis) = (Files::new(), RedisServer::start());
    let file = files.0.path().join("password");
    set_password(&redis, &file, "first");
    let mut command = command();
    command
        .env("TOLLGATE_CREDENTIALS_FILE", &file)
        .env("TOLLGATE_ON_OUTAGE", "fail")
        .arg("--rules")
        .arg(files.write("rules.yaml", &RULES.replace(": 2}", ": 20}")))
        .arg(format!("--store={}", redis.url()));
    let process = start(command);
    until_healthy(&process).await;
    let channel = channel(&process).await;
    for (password, left) in [("first", 19), ("second", 18), ("third", 17)] {
        set_password(&redis, &file, password);
        let ended = connections(&redis);
        redis.command(&["CLIENT", "KILL", "USER", "limits"]);
        // The server answers before it closes them, and the service connects again by itself.
        wait::until("new connections alone", LIMIT, || {
            let now = connections(&redis);
            !now.is_empty() && now.iter().all(|number| !ended.contains(number))
        });
        assert_eq!(decide(&channel).await.unwrap(), (Code::Ok, left));
    }
    let output = process.output();
    assert!(!output.contains("second"), "{output}");
}

#[tokio::test]
async fn two_instances_share_their_counts_in_postgres() {
    let files = Files::new();
    let postgres = PostgresServer::start();
    let rules = files.write("rules.yaml", RULES);
    let mut remaining = Vec::new();
    for _ in 0..2 {
        let mut command = command();
        command
            .arg("--rules")
            .arg(&rules)
            .arg(format!("--store={}&create=unlogged", postgres.url()));
        let process = start(command);
        until_healthy(&process).await;
        remaining.push(decide(&channel(&process).await).await.unwrap().1);
    }
    assert_eq!(remaining[1] + 1, remaining[0]);
}

#[tokio::test]
async fn the_service_is_unhealthy_until_redis_answers() {
    if no_server() {
        return;
    }
    let files = Files::new();
    let redis = RedisServer::start();
    redis.kill();
    let mut command = command();
    command
        .arg("--rules")
        .arg(files.write("rules.yaml", RULES))
        .arg(format!("--store={}", redis.url()));
    let process = start(command);
    assert!(!is_healthy(&process).await);
    redis.restart();
    until_healthy(&process).await;
}

#[tokio::test]
async fn rules_of_a_control_plane_make_the_service_healthy() {
    let mut plane = Plane::start().await;
    let mut command = command();
    command
        .env("CONFIG_TYPE", "GRPC_XDS_SOTW")
        .env("CONFIG_GRPC_XDS_NODE_ID", "n7");
    command.env("CONFIG_GRPC_XDS_SERVER_URL", plane.address.to_string());
    let process = start(command);
    let mut client = plane.client().await;
    assert_eq!(client.request().await.node.unwrap().id, "n7");
    assert!(!is_healthy(&process).await);
    let channel = channel(&process).await;
    assert_eq!(
        decide(&channel).await.unwrap_err().code(),
        tonic::Code::Unavailable
    );
    client.send("1", vec![resource(&config("shop", 5, RateLimitUnit::Day))]);
    client.request().await;
    until_healthy(&process).await;
    assert_eq!(decide(&channel).await.unwrap(), (Code::Ok, 4));
}

#[tokio::test]
async fn a_flag_goes_before_a_variable_and_a_variable_before_the_file() {
    let files = Files::new();
    let rules = files.write("rules.yaml", RULES);
    let text = format!(
        "rules = {:?}\nuse_prometheus = true\nprometheus_addr = \"127.0.0.1:0\"\nprometheus_path = \"/file\"\n\
         log_level = \"error\"\nextra_tags = {{ zone = \"a\" }}\n",
        rules.to_str().unwrap()
    );
    let mut command = command();
    command
        .arg("--config")
        .arg(files.write("settings.toml", &text));
    command
        .env("PROMETHEUS_PATH", "/variable")
        .env("LOG_LEVEL", "warn")
        .arg("--log-level=info");
    let process = start(command);
    until_healthy(&process).await;
    decide(&channel(&process).await).await.unwrap();
    let metrics = place(&process, "metrics");
    assert_eq!(http(&metrics, "GET /file", "").await.0, 404);
    let (status, page) = http(&metrics, "GET /variable", "").await;
    assert_eq!(status, 200);
    for name in [
        "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"tenant\"} 1",
        "tollgate_rule_units_total",
    ] {
        assert!(page.contains(name), "{page}");
    }
}

#[tokio::test]
async fn rules_may_come_later_when_the_start_is_forced() {
    let files = Files::new();
    // The directory is missing too.
    let directory = files.0.path().join("rules");
    let mut command = command();
    command
        .arg("--rules")
        .arg(&directory)
        .arg("--force-start-without-initial-config");
    let process = start(command);
    assert!(!is_healthy(&process).await);
    files.write("rules/shop.yaml", RULES);
    until_healthy(&process).await;
    assert_eq!(
        decide(&channel(&process).await).await.unwrap(),
        (Code::Ok, 1)
    );
}

#[tokio::test]
async fn grpc_is_served_at_a_socket_that_an_earlier_process_left() {
    let files = Files::new();
    let socket = files.0.path().join("rls.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let mut first = command();
    first
        .arg("--rules")
        .arg(files.write("rules.yaml", RULES))
        .arg("--grpc-uds")
        .arg(&socket);
    let mut process = start(first);
    assert_eq!(place(&process, "gRPC"), socket.to_str().unwrap());
    let uri = format!("unix://{}", socket.display());
    let channel = Endpoint::from_shared(uri).unwrap().connect().await.unwrap();
    assert_eq!(decide(&channel).await.unwrap().0, Code::Ok);
    // A second process does not take the socket away.
    let mut second = command();
    second
        .arg("--rules")
        .arg(files.write("rules.yaml", RULES))
        .arg("--grpc-uds")
        .arg(&socket);
    let (status, message) = run(second);
    assert_eq!(status, Some(2), "{message}");
    assert!(message.contains("cannot listen for gRPC"), "{message}");
    drop(channel);
    // The connection is closed by a task of this runtime.
    let ended = tokio::task::spawn_blocking(move || process.terminate())
        .await
        .unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(UnixStream::connect(&socket).is_err());
}

#[test]
fn wrong_settings_end_the_program_with_the_reason() {
    let files = Files::new();
    let rules = files.write("rules.yaml", RULES);
    let wrong = files.write(
        "wrong.yaml",
        "domain: shop\ndescriptors:\n- {key: a, rate_limit: {unit: minuet}}\n",
    );
    let settings = files.write("settings.toml", "grpc_prot = 1\n");
    let password = files.write("password", "secret\n");
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    for (arguments, expected) in [
        (vec![flag("rules", &wrong)], "wrong.yaml:3:"),
        (
            vec![flag("rules", Path::new("/nowhere"))],
            "the rules /nowhere do not exist",
        ),
        (
            vec![flag("config", &settings)],
            "unknown setting \"grpc_prot\"; did you mean grpc_port?",
        ),
        (
            vec![flag("rules", &rules), "--backend-type=memcache".to_owned()],
            "memcache is not supported",
        ),
        (
            vec![
                flag("rules", &rules),
                "--store=http://user:secret@h".to_owned(),
            ],
            "the store cannot be used",
        ),
        (
            vec![
                flag("rules", &rules),
                "--store=memory:?prefix=shop".to_owned(),
            ],
            "got `memory:?prefix=shop`",
        ),
        (
            vec![
                flag("rules", &rules),
                "--limit-limit-header=a b".to_owned(),
                "--limit-response-headers-enabled".to_owned(),
            ],
            "header",
        ),
        (
            vec![flag("rules", &rules), "--near-limit-header=a b".to_owned()],
            "near_limit_header: ",
        ),
        (
            vec![flag("rules", &rules), "--near-limit-share=80".to_owned()],
            "expected a number from 0 to 1",
        ),
        (
            vec![
                flag("rules", &rules),
                flag("credentials-file", Path::new("/nowhere")),
            ],
            "the file of credentials /nowhere cannot be read: entity not found",
        ),
        (
            vec![flag("rules", &rules), flag("credentials-file", &password)],
            "--credentials-file needs a store at a server",
        ),
        (
            vec![
                flag("rules", &rules),
                flag("credentials-file", &password),
                "--redis-url=h:1".to_owned(),
                "--redis-auth=secret".to_owned(),
            ],
            "the redis URL has a password as well",
        ),
        (
            vec![flag("rules", &rules), "--drain-timeout=soon".to_owned()],
            "expected numbers with the units",
        ),
        (
            vec![flag("rules", &rules), "--grpc-server-use-tls".to_owned()],
            "cannot read",
        ),
    ] {
        let mut command = command();
        command.args(&arguments);
        let (status, message) = run(command);
        assert_eq!(status, Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
        assert!(!message.contains("secret"), "{message}");
    }
}
