//! The log-in example over HTTP: many log-ins at once, spellings of a name, users that do not
//! exist.

use std::{
    net::SocketAddr,
    sync::{Arc, Barrier},
    thread,
};

use tollgate_tests::{Process, RedisServer, Reply, machine, ports};

use crate::{STANDSTILL, http};

/// The example, and the address on which it listens.
struct Service {
    process: Process,
    address: SocketAddr,
}

/// An answer, as the client receives it.
struct Answer {
    status: u16,
    /// The lines of the head, without the status and the date.
    head: Vec<String>,
    body: String,
}

impl Service {
    fn start(redis_url: Option<&str>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("login_protection");
        command.env("LISTEN", address.to_string());
        if let Some(url) = redis_url {
            command.env("REDIS_URL", url);
        }
        Self {
            process: Process::start(command, "Try"),
            address,
        }
    }

    fn stop(mut self) {
        assert!(self.process.interrupt().success());
    }

    fn log_in(&self, user: &str, password: &str) -> Answer {
        log_in(self.address, user, password)
    }
}

fn log_in(address: SocketAddr, user: &str, password: &str) -> Answer {
    post(
        address,
        "/login",
        &format!(r#"{{"user": "{user}", "password": "{password}"}}"#),
    )
}

/// Sends JSON.
fn post(address: SocketAddr, target: &str, body: &str) -> Answer {
    let answer = http::open(
        address,
        "POST",
        target,
        &[("Content-Type", "application/json")],
        body,
    );
    let lines = answer
        .head
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty() && !line.starts_with("date:"));
    Answer {
        status: answer.status,
        head: lines.map(str::to_owned).collect(),
        body: answer.text(),
    }
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .iter()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

#[test]
fn thirty_right_log_ins_at_once_all_pass_and_the_fourth_wrong_one_does_not() {
    machine::undisturbed(STANDSTILL, thirty_right_log_ins_and_wrong_ones);
}

fn thirty_right_log_ins_and_wrong_ones() {
    let redis = RedisServer::start();
    for url in [None, Some(redis.url())] {
        let service = Service::start(url.as_deref());
        let address = service.address;

        let barrier = Arc::new(Barrier::new(30));
        let clients: Vec<_> = (0..30)
            .map(|_| {
                let barrier = barrier.clone();
                thread::spawn(move || {
                    barrier.wait();
                    log_in(address, "berta", "secret").status
                })
            })
            .collect();
        let statuses: Vec<_> = clients
            .into_iter()
            .map(|client| client.join().expect("a client"))
            .collect();
        assert_eq!(statuses, [200; 30], "{url:?}");

        // Spellings of one name are one user.
        let spellings = ["anna", "ANNA", " Anna ", "anna", "aNNa"];
        let guesses = spellings.map(|user| service.log_in(user, "guess").status);
        assert_eq!(guesses, [401, 401, 401, 429, 429], "{url:?}");
        assert_eq!(service.log_in("anna", "secret").status, 429);
        assert_eq!(service.log_in("berta", "secret").status, 200);
        service.stop();
    }
}

#[test]
fn a_right_password_forgives_the_user_and_not_the_address() {
    machine::undisturbed(STANDSTILL, log_ins_by_turns);
}

fn log_ins_by_turns() {
    let redis = RedisServer::start();
    for url in [None, Some(redis.url())] {
        let service = Service::start(url.as_deref());
        let attempts = [
            "guess", "guess", "secret", "guess", "guess", "secret", "guess", "guess", "guess",
            "secret",
        ];
        let statuses = attempts.map(|password| service.log_in("anna", password).status);
        assert_eq!(
            statuses,
            [401, 401, 200, 401, 401, 200, 401, 401, 401, 429],
            "{url:?}"
        );
        // Seven wrong ones came from this address. Three more lock it, although others log in
        // meanwhile.
        let guesses = ["nobody", "somebody", "whoever"];
        for user in guesses {
            assert_eq!(service.log_in("berta", "secret").status, 200);
            assert_eq!(service.log_in(user, "guess").status, 401, "{url:?}");
        }
        assert_eq!(service.log_in("berta", "secret").status, 429, "{url:?}");
        service.stop();
    }
}

#[test]
fn the_handler_denies_as_the_layer_does() {
    let service = Service::start(None);
    for attempt in 0..10 {
        let user = format!("user-{}", attempt / 3);
        assert_eq!(service.log_in(&user, "guess").status, 401);
    }
    // The handler denies the first user, and the layer denies this address.
    let by_layer = service.log_in("berta", "secret");
    service.stop();
    let service = Service::start(None);
    for _ in 0..3 {
        assert_eq!(service.log_in("anna", "guess").status, 401);
    }
    let by_handler = service.log_in("anna", "secret");
    service.stop();

    for answer in [&by_layer, &by_handler] {
        assert_eq!((answer.status, answer.body.as_str()), (429, ""));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let seconds: u64 = answer
            .header("retry-after")
            .expect("a wait")
            .parse()
            .expect("seconds");
        assert!((240..=300).contains(&seconds), "{seconds}");
    }
    assert_eq!(
        without_digits(&by_layer.head.join("\n")),
        without_digits(&by_handler.head.join("\n"))
    );
}

#[test]
fn an_attacker_learns_neither_the_limits_nor_what_is_left_of_them() {
    let service = Service::start(None);
    let statuses = [401, 401, 401, 429].map(|expected| {
        let answer = service.log_in("anna", "guess");
        let text = format!("{}\n{}", answer.head.join("\n"), answer.body).to_lowercase();
        for told in ["ratelimit", "rate-limit", "guesses", "policy", "quota"] {
            assert!(!text.contains(told), "{told} in {text}");
        }
        assert_eq!(
            answer.header("retry-after").is_some(),
            expected == 429,
            "{text}"
        );
        answer.status
    });
    service.stop();
    assert_eq!(statuses, [401, 401, 401, 429]);
}

#[test]
fn an_unknown_user_gets_the_answers_of_a_known_one() {
    let answers = ["anna", "nobody"].map(|user| {
        let service = Service::start(None);
        let answers: Vec<_> = (0..5).map(|_| service.log_in(user, "guess")).collect();
        service.stop();
        answers.into_iter().map(|answer| {
            (
                answer.status,
                without_digits(&answer.head.join("\n")),
                without_digits(&answer.body),
            )
        })
    });
    let [known, unknown] = answers.map(Iterator::collect::<Vec<_>>);
    assert_eq!(known, unknown);
    assert_eq!(
        known.iter().map(|answer| answer.0).collect::<Vec<_>>(),
        [401, 401, 401, 429, 429]
    );
}

/// Removes the numbers: a window may have one second less when the second user asks.
fn without_digits(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_ascii_digit())
        .collect()
}

#[test]
fn a_password_in_the_query_does_not_log_in_and_the_store_does_not_see_the_name() {
    machine::undisturbed(STANDSTILL, a_password_in_the_query);
}

fn a_password_in_the_query() {
    let redis = RedisServer::start();
    let service = Service::start(Some(&redis.url()));
    let query = post(service.address, "/login?user=berta&password=secret", "");
    assert_eq!(query.status, 400);
    assert_eq!(
        post(
            service.address,
            "/login",
            &format!(r#"{{"user": "{}"}}"#, "x".repeat(5000))
        )
        .status,
        413
    );

    assert_eq!(service.log_in("anna", "guess").status, 401);
    assert_eq!(service.log_in("anna", "guess").status, 401);
    service.stop();
    let keys = redis.command(&["KEYS", "*"]);
    let keys: Vec<_> = keys.items().iter().map(Reply::text).collect();
    assert!(
        keys.iter().any(|key| key.contains("guesses-user")),
        "{keys:?}"
    );
    assert!(!keys.iter().any(|key| key.contains("anna")), "{keys:?}");
}
