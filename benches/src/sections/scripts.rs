//! Measures the server time of one decision for scripts, and compares it with an empty script.

use std::sync::Arc;

use tollgate::{Policy, Quota};

use super::PLENTY;
use crate::{
    keys::KEYS,
    load::{self, Contestant, Crowd},
    pace::Pace,
    peers::{Call, Pipelined},
    report::{Findings, Table, Target, figure},
    server::Server,
};

/// Counts tokens in seconds, as Spring's script does. It reads and writes both keys for each
/// decision.
const BUCKET: &str = "
local rate = tonumber(ARGV[1])
local capacity = tonumber(ARGV[2])
local requested = tonumber(ARGV[3])
local now = tonumber(redis.call('TIME')[1])
local ttl = math.floor(capacity / rate * 2)

local tokens = tonumber(redis.call('get', KEYS[1]))
if tokens == nil then
  tokens = capacity
end
local refreshed = tonumber(redis.call('get', KEYS[2]))
if refreshed == nil then
  refreshed = 0
end

local filled = math.min(capacity, tokens + math.max(0, now - refreshed) * rate)
local allowed = filled >= requested
local left = filled
local answer = 0
if allowed then
  left = filled - requested
  answer = 1
end
if ttl > 0 then
  redis.call('setex', KEYS[1], ttl, left)
  redis.call('setex', KEYS[2], ttl, now)
end
return { answer, left }";

/// Counts the requests of a fixed window.
const COUNTER: &str = "
local count = redis.call('INCR', KEYS[1])
if count == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if count > tonumber(ARGV[1]) then
  return { 0, count, redis.call('PTTL', KEYS[1]) }
end
return { 1, count, redis.call('PTTL', KEYS[1]) }";

pub(crate) fn run(pace: &Pace) -> Findings {
    let server = Arc::new(Server::start());
    let runtime = load::runtime();
    let day = Quota::per_day(90_000_000);
    let three = [
        PLENTY,
        Policy::fixed_window("b", day),
        Policy::window_from_first_hit("c", day),
    ];
    let keys = |names: &'static [&str]| {
        move |key: &str| {
            let keys = names.iter().map(|name| format!("{name}:{{{key}}}"));
            keys.collect::<Vec<_>>()
        }
    };
    let calls = [
        ("`return 1`", Call::noop(&server)),
        ("**token bucket**", Call::ours(&server, PLENTY)),
        (
            "**three: bucket, window, window from first hit**",
            Call::ours(&server, three),
        ),
        (
            "token bucket, two keys and floats (shape of Spring's request_rate_limiter)",
            Call::new(
                &server,
                BUCKET,
                keys(&["tokens", "timestamp"]),
                &["1000", "36000", "1"],
            ),
        ),
        (
            "fixed window, INCR and PEXPIRE",
            Call::new(
                &server,
                COUNTER,
                keys(&["count"]),
                &["1000000000", "86400000"],
            ),
        ),
    ];
    let contestants = calls.map(|(name, call)| {
        let pipelined = runtime.block_on(Pipelined::new(&server, call));
        Contestant::new(name, &runtime, Some(&server), pipelined)
    });
    let crowd = Crowd::near(Pipelined::CONNECTIONS, KEYS);
    let series = load::turns(&contestants, pace.load, crowd);

    let about = "50 connections, 16 calls in flight on each, 10 000 keys. *CPU* is the processor time of the server per \
                 call, including its work for sockets. *Noop* is `EVALSHA` of `return 1` with one key. Bold rows are \
                 scripts of Tollgate.";
    let heads = ["", "CPU µs", "CPU, to noop"];
    let mut table = Table::new("Cost at the server, admitted", about, &heads);
    for one in &series {
        table.row([
            one.name.clone(),
            figure(one.median(|load| load.server_us / Pipelined::CALLS as f64)),
            figure(one.ratio(&series[0], |load| load.server_us)),
        ]);
    }
    let mut findings = Findings::default();
    let to_noop = series[1].ratio(&series[0], |load| load.server_us);
    let measure = "Redis CPU, token bucket, one call, to noop";
    findings.goal(measure, Target::AtMost(2.9), to_noop, " ×");
    findings.tables.push(table);
    findings
}
