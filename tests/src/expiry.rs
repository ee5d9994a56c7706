//! Reads the expiry of a key, on servers of every version.

use std::sync::LazyLock;

use crate::server::{binary_major, find_binary};

/// Answers as `PEXPIRETIME`. The time is read again until no millisecond ended in between, so the
/// sum is exact.
const SCRIPT: &str = "\
local function now_ms() local now = redis.call('TIME') return now[1] * 1000 + math.floor(now[2] / 1000) end
local now, left
repeat now = now_ms() left = redis.call('PTTL', KEYS[1]) until now_ms() == now
return left < 0 and left or now + left";

/// Is true where the server of the tests is older than 7.0, the first with `PEXPIRETIME`.
static IS_OLD: LazyLock<bool> = LazyLock::new(|| binary_major(&find_binary()) < 7);

/// Returns the command that answers when a key expires, in milliseconds of the Unix time: -1 for
/// never, -2 for no key.
///
/// ```
/// use tollgate_tests::{RedisServer, expiry_command};
///
/// let server = RedisServer::start();
/// server.command(&["SET", "held", "1", "PXAT", "4102444800123"]);
/// assert_eq!(server.command(&expiry_command("held")).int(), 4_102_444_800_123);
/// ```
#[must_use]
pub fn expiry_command<W: From<&'static str>>(key: W) -> Vec<W> {
    if *IS_OLD {
        vec!["EVAL".into(), SCRIPT.into(), "1".into(), key]
    } else {
        vec!["PEXPIRETIME".into(), key]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    #[test]
    fn the_script_answers_as_the_command_does() {
        let server = RedisServer::start();
        for set in [
            &["SET", "key", "1"][..],
            &["SET", "key", "1", "PXAT", "4102444800123"],
            &["SET", "key", "1", "PX", "77777"],
        ] {
            server.command(set);
            let answers = [vec!["EVAL", SCRIPT, "1", "key"], expiry_command("key")]
                .map(|it| server.command(&it).int());
            assert_eq!(answers[0], answers[1], "{set:?}");
        }
        assert_eq!(server.command(&["EVAL", SCRIPT, "1", "absent"]).int(), -2);
    }
}
