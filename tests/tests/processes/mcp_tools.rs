//! The example of agents: calls of tools by tool, user and cost, the wait in the result, permits of
//! long calls.

use std::{io::BufRead, net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tollgate_tests::{Process, RedisServer, machine, ports, wait};

use crate::{
    STANDSTILL,
    http::{self, Answer},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// The calls of a tool that a user has at once.
const BURST: usize = 5;

struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    fn start(redis_url: Option<&str>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("mcp_tools");
        command.env("LISTEN", address.to_string());
        if let Some(url) = redis_url {
            command.env("REDIS_URL", url);
        }
        Self {
            process: Process::start(command, "Try"),
            address,
        }
    }

    fn post(&self, headers: &[(&str, &str)], body: &str) -> Answer {
        http::open(self.address, "POST", "/mcp", headers, body)
    }

    fn send(&self, user: &str, message: &Value) -> Answer {
        let token = format!("Bearer {user}");
        let headers = [
            ("Authorization", token.as_str()),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
        ];
        self.post(&headers, &message.to_string())
    }

    /// Sends a request, and returns its status and its answer.
    fn ask(&self, user: &str, method: &str, params: &Value) -> (u16, Value) {
        let message = json!({"jsonrpc": "2.0", "id": "q-7", "method": method, "params": params});
        let answer = self.send(user, &message);
        let status = answer.status;
        let answer: Value = serde_json::from_str(&answer.text()).expect("a message");
        assert_eq!(
            (&answer["jsonrpc"], &answer["id"]),
            (&json!("2.0"), &json!("q-7"))
        );
        (status, answer)
    }

    /// Calls a short tool. Returns its result.
    fn call(&self, user: &str, tool: &str) -> Value {
        let (status, answer) =
            self.ask(user, "tools/call", &json!({"name": tool, "arguments": {}}));
        assert_eq!(status, 200, "{answer}");
        answer["result"].clone()
    }

    /// Begins a long call, whose answer is a stream.
    fn report(&self, user: &str) -> Answer {
        let params = json!({"name": "report", "_meta": {"progressToken": "p"}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        self.send(user, &message)
    }
}

fn is_stream(answer: &Answer) -> bool {
    answer.head.contains("content-type: text/event-stream")
}

/// Returns the text of a call that is denied, and its wait in seconds.
fn denial(result: &Value) -> (&str, u64) {
    assert_eq!(result["isError"], true, "{result}");
    let text = result["content"][0]["text"].as_str().expect("a text");
    let wait = result["_meta"]["tollgate/retryAfterSeconds"].as_u64();
    (text, wait.expect("a wait"))
}

#[test]
fn calls_of_agents_are_limited_by_tool_user_and_cost_and_long_ones_hold_a_permit() {
    machine::undisturbed(STANDSTILL, agents);
}

fn agents() {
    let redis = RedisServer::start();
    for url in [None, Some(redis.url())] {
        let mut server = Server::start(url.as_deref());
        short_calls(&server);
        long_calls(&server);
        wrong_messages(&server);
        assert!(server.process.terminate().success());
    }
}

fn short_calls(server: &Server) {
    let results: Vec<_> = (0..=BURST).map(|_| server.call("ann", "search")).collect();
    let passed = results.iter().filter(|result| result["isError"].is_null());
    assert_eq!(passed.count(), BURST);
    let (text, wait) = denial(&results[BURST]);
    assert!((1..=12).contains(&wait), "{wait}");
    let expected = format!(
        r#"Rate limit exceeded: the limit "calls-of-tool" is reached. Try again in {wait} s."#
    );
    assert_eq!(text, expected);
    assert_eq!(results[BURST]["resultType"], "complete");

    // What begins a session passes, and so does another user.
    for _ in 0..4 * BURST {
        let (status, answer) = server.ask(
            "ann",
            "initialize",
            &json!({"protocolVersion": "2025-11-25"}),
        );
        assert_eq!(
            (status, &answer["result"]["protocolVersion"]),
            (200, &json!("2025-11-25"))
        );
        let (_, answer) = server.ask("ann", "tools/list", &json!({}));
        assert_eq!(answer["result"]["tools"][0]["name"], "search");
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(server.send("ann", &note).status, 202);
    }
    assert!(server.call("bob", "search")["isError"].is_null());
}

fn long_calls(server: &Server) {
    let mut streams = vec![server.report("cid"), server.report("cid")];
    assert!(streams.iter().all(is_stream));
    let third = server.report("cid");
    assert!(!is_stream(&third));
    let third: Value = serde_json::from_str(&third.text()).expect("a message");
    let (text, _) = denial(&third["result"]);
    assert!(
        text.starts_with("Rate limit exceeded: two reports are running. "),
        "{text}"
    );

    // The client hangs up, and its permit is free.
    drop(streams.pop());
    let mut next = None;
    wait::until("a permit of the call that was left", PATIENCE, || {
        let answer = server.report("cid");
        let has_begun = is_stream(&answer);
        next = has_begun.then_some(answer);
        has_begun
    });
    let text = streams.remove(0).text();
    let messages: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    let (last, progress) = messages.split_last().expect("a message");
    assert_eq!(
        last["result"]["content"][0]["text"],
        "the report is written"
    );
    assert_eq!(progress.len(), 6);
    for (step, message) in (1..).zip(progress) {
        assert_eq!(message["method"], "notifications/progress");
        assert_eq!(
            message["params"],
            json!({"progressToken": "p", "progress": step, "total": 6})
        );
    }
    let mut line = String::new();
    let mut next = next.expect("a stream");
    assert!(next.rest.read_line(&mut line).expect("a line") > 0);
    drop(next);

    // Three of the day's six reports were charged: that without a permit was free. The limit of the
    // tool is reached after two more.
    let mut others = 0;
    wait::until("the denial by a limit", PATIENCE, || {
        let answer = server.report("cid");
        if is_stream(&answer) {
            others += 1;
            return false;
        }
        answer.text().contains("calls-of-tool")
    });
    // One more has accrued meanwhile where the machine is slow.
    assert!((2..=3).contains(&others), "{others}");
}

fn wrong_messages(server: &Server) {
    let code = |(status, answer): (u16, Value)| (status, answer["error"]["code"].as_i64());
    assert_eq!(
        code(server.ask("ann", "no/such", &json!({}))),
        (404, Some(-32_601))
    );
    assert_eq!(
        code(server.ask("ann", "tools/call", &json!({"name": "no"}))),
        (200, Some(-32_602))
    );
    assert_eq!(
        code(server.ask("ann", "tools/call", &json!([]))),
        (200, Some(-32_602))
    );
    let token = ("Authorization", "Bearer ann");
    let broken = server.post(&[token], "{");
    assert_eq!(broken.status, 400);
    assert!(broken.text().contains("-32700"));
    assert_eq!(server.post(&[], "{}").status, 401);
    assert_eq!(
        server
            .post(&[token, ("Origin", "http://evil.example")], "{}")
            .status,
        403
    );
}
