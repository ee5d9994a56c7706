//! Contains commonly used limiter scripts, for comparison. They were written for this bench, in the
//! shape of well-known scripts.

use crate::keys::KEYS;

/// Sets the number of subjects of a log. It is small, so that each log fills up within a short run.
pub(crate) const LOGS: usize = 1_000;

/// Describes one script, and how to call it.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    /// Prefixes of its keys. The subject follows in a hash tag.
    pub(crate) keys: &'static [&'static str],
    /// Arguments with which all requests are admitted.
    pub(crate) admitting: &'static [&'static str],
    /// Arguments with which all requests are denied, after the subjects are drained.
    pub(crate) denying: &'static [&'static str],
    /// Number of subjects.
    pub(crate) subjects: usize,
    /// Number of calls for each subject before denials are measured.
    pub(crate) drain: usize,
}

/// Lists the scripts. When a script admits, its reply is 1 or an array that begins with 1.
pub(crate) const COMMON: &[Common] = &[
    Common {
        name: "token bucket, two keys and floats (shape of Spring's request_rate_limiter)",
        text: BUCKET,
        keys: &["tokens", "timestamp"],
        admitting: &["1000", "36000", "1"],
        denying: &["1", "1", "2"],
        subjects: KEYS,
        drain: 1,
    },
    Common {
        name: "fixed window, INCR and PEXPIRE",
        text: COUNTER,
        keys: &["count"],
        admitting: &["1000000", "86400000"],
        denying: &["1", "86400000"],
        subjects: KEYS,
        drain: 1,
    },
    Common {
        name: "sliding log of 100, sorted set",
        text: LOG,
        keys: &["log"],
        admitting: &["1000", "300000"],
        denying: &["100", "86400000000"],
        subjects: LOGS,
        drain: 100,
    },
];

/// Counts tokens in seconds. It reads and writes both keys for each decision, also for a denial.
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

/// Counts the requests of a fixed window. Denied requests are counted too.
const COUNTER: &str = "
local count = redis.call('INCR', KEYS[1])
if count == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if count > tonumber(ARGV[1]) then
  return { 0, count, redis.call('PTTL', KEYS[1]) }
end
return { 1, count, redis.call('PTTL', KEYS[1]) }";

/// Stores the time of each admitted request in a sorted set.
const LOG: &str = "
local limit = tonumber(ARGV[1])
local period = tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now - period))
local count = redis.call('ZCARD', KEYS[1])
if count >= limit then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return { 0, 0, oldest[2] or 0 }
end
redis.call('ZADD', KEYS[1], string.format('%d', now), string.format('%d-%d', now, count))
redis.call('PEXPIRE', KEYS[1], math.ceil(period / 1000))
return { 1, limit - count - 1 }";
