//! The example of a language model: slices, settlement at the end of a stream, streams that the limit
//! ends, clients that hang up, streams at the same time, header formats.

use std::{io::BufRead, net::SocketAddr, time::Duration};

use tollgate_tests::{Process, RedisServer, machine, ports, wait};

use crate::{
    STANDSTILL,
    http::{self, Answer},
};

const PATIENCE: Duration = Duration::from_secs(30);

struct Gateway {
    process: Process,
    address: SocketAddr,
}

impl Gateway {
    fn start(redis_url: Option<&str>, headers: &str) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("llm_gateway");
        command
            .env("LISTEN", address.to_string())
            .env("HEADERS", headers);
        if let Some(url) = redis_url {
            command.env("REDIS_URL", url);
        }
        Self {
            process: Process::start(command, "Try"),
            address,
        }
    }

    fn stop(mut self) {
        assert!(self.process.terminate().success());
    }

    fn send(&self, method: &str, target: &str, api_key: &str, body: &str) -> Answer {
        http::open(
            self.address,
            method,
            target,
            &[("X-Api-Key", api_key), ("Content-Type", "application/json")],
            body,
        )
    }

    /// Asks the model for a short answer. The prompt has two tokens.
    fn ask(&self, api_key: &str, max_tokens: u64) -> Answer {
        self.prompt(api_key, "tell me", max_tokens)
    }

    /// Asks the model for an answer of all tokens. The prompt has two tokens.
    fn ask_for_story(&self, api_key: &str, max_tokens: u64) -> Answer {
        self.prompt(api_key, "long story", max_tokens)
    }

    fn prompt(&self, api_key: &str, prompt: &str, max_tokens: u64) -> Answer {
        self.send(
            "POST",
            "/chat",
            api_key,
            &format!(r#"{{"prompt": "{prompt}", "max_tokens": {max_tokens}}}"#),
        )
    }

    /// Returns the tokens that are charged to a key.
    fn used(&self, api_key: &str) -> u64 {
        let text = self.send("GET", "/usage", api_key, "").text();
        let (_, left) = text.split_once(r#""tokens":"#).expect("a number of tokens");
        let left: u64 = left
            .split('}')
            .next()
            .and_then(|left| left.parse().ok())
            .expect("a number");
        10_000 - left
    }
}

/// Reads this number of events, and hangs up.
fn hang_up_after(mut answer: Answer, events: usize) {
    let mut line = String::new();
    for _ in 0..events {
        line.clear();
        while !line.starts_with("data:") {
            line.clear();
            assert!(answer.rest.read_line(&mut line).expect("a line") > 0);
        }
    }
}

#[test]
fn tokens_are_reserved_and_settled_when_the_stream_ends_or_the_client_hangs_up() {
    machine::undisturbed(STANDSTILL, reservations);
}

fn reservations() {
    let redis = RedisServer::start();
    for url in [None, Some(redis.url())] {
        let gateway = Gateway::start(url.as_deref(), "ietf");

        let whole = gateway.ask("whole", 200);
        assert_eq!(whole.status, 200, "{}", whole.head);
        let state = whole
            .head
            .lines()
            .find_map(|line| line.strip_prefix("ratelimit: "))
            .expect("a state");
        assert!(
            state.contains(r#""tokens";r=9934;t="#) && state.contains(r#""streams";r=1"#),
            "{state}"
        );
        assert!(
            whole.head.contains(r#""tokens";q=10000;qu="tokens";w=60"#),
            "{}",
            whole.head
        );
        let text = whole.text();
        assert_eq!(text.matches("data:").count(), 41, "{text}");
        wait::until("the settlement of a whole stream", PATIENCE, || {
            gateway.used("whole") == 42
        });
        let usage = gateway.send("GET", "/usage", "whole", "").text();
        assert!(usage.contains(r#""plan":19958"#), "{usage}");
        assert!(usage.contains(r#""requests":59"#), "{usage}");

        gateway.ask("short", 3).text();
        wait::until("the settlement of a short stream", PATIENCE, || {
            gateway.used("short") == 5
        });

        // The whole story would take two minutes.
        hang_up_after(gateway.ask_for_story("impatient", 5_000), 3);
        wait::until("the settlement of a stream that was left", PATIENCE, || {
            gateway.used("impatient") < 66
        });
        let used = gateway.used("impatient");
        assert!(used >= 5, "{used}");

        let words = |count| "long ".repeat(count);
        let never = gateway.prompt("greedy", &words(10_000), 1);
        assert!(
            never.status == 413 && !never.head.contains("retry-after"),
            "{}",
            never.head
        );
        assert_eq!(gateway.used("greedy"), 0);

        // One slice is left, so the stream ends there, and not in a debt.
        let edge = gateway.prompt("edge", &words(9_900), 300);
        assert_eq!(edge.status, 200, "{}", edge.head);
        let text = edge.text();
        let (tokens, end) = text.split_once("event: end").expect("a last event");
        assert_eq!(tokens.matches("data:").count(), 64, "{text}");
        assert!(end.contains(r#""finish_reason":"rate_limit""#), "{end}");
        assert!(end.contains("rate limit tokens exceeded"), "{end}");
        assert_eq!(gateway.used("edge"), 9_964);

        // Two streams are open. The third one is charged nothing.
        let streams = [
            gateway.ask_for_story("busy", 4_000),
            gateway.ask_for_story("busy", 4_000),
        ];
        let third = gateway.ask("busy", 100);
        assert_eq!(third.status, 429);
        assert!(
            third
                .head
                .contains(r#"ratelimit-policy: "streams";q=2;qu="concurrent-requests""#),
            "{}",
            third.head
        );
        assert!(third.head.contains("retry-after: 1"), "{}", third.head);
        assert!(third.text().contains(r#""violated-policies":["streams"]"#));
        streams
            .into_iter()
            .for_each(|stream| hang_up_after(stream, 1));
        wait::until("a free permit", PATIENCE, || {
            gateway.ask("busy", 0).status == 200
        });
        gateway.stop();
    }
}

#[test]
fn headers_have_the_format_of_the_service_that_is_simulated() {
    for (format, names) in [
        (
            "openai",
            [
                "x-ratelimit-remaining-requests: 59",
                "x-ratelimit-remaining-tokens: 9934",
            ],
        ),
        (
            "anthropic",
            [
                "anthropic-ratelimit-requests-remaining: 59",
                "anthropic-ratelimit-tokens-remaining: 9934",
            ],
        ),
    ] {
        let gateway = Gateway::start(None, format);
        let answer = gateway.ask("acme", 200);
        for name in names {
            assert!(answer.head.contains(name), "{name} in {}", answer.head);
        }
        hang_up_after(answer, 1);
        gateway.stop();
    }
}
