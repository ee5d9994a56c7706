//! Finds the error of a command inside the text in which Redis 6.2 wraps it.
//! What it then means is decided in `error.rs`.

use redis::{RedisError, Value};

/// Returns the error of the command inside the script where Redis 6.2 has wrapped it, and any other
/// error as it is.
///
/// A call that a server refuses inside a script is answered with its own code since Redis 7.0
/// (`-READONLY …`). Redis 6.2 answers
/// `-ERR Error running script (call to f_…): @user_script:7: @user_script: 7: -READONLY …`.
pub(crate) fn unwrapped(error: RedisError) -> RedisError {
    let refusal = error
        .detail()
        .and_then(refusal)
        .map(|line| redis::parse_redis_value(format!("-{line}\r\n").as_bytes()));
    match refusal {
        Some(Ok(Value::ServerError(refusal))) => refusal.into(),
        _ => error,
    }
}

/// Returns the refusal in the text of a wrapped error: a code in capitals, and words.
fn refusal(text: &str) -> Option<&str> {
    let (_, mut rest) = text
        .strip_prefix("Error running script (call to f_")?
        .split_once("): ")?;
    while let Some(place) = rest.strip_prefix("@user_script:") {
        rest = place.trim_start().split_once(": ")?.1;
    }
    let line = rest.trim_start_matches('-').lines().next()?;
    let code = line.split(' ').next()?;
    (code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase())).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the code and the text of the error of a reply as the server writes it.
    fn read(line: &str) -> (Option<String>, Option<String>) {
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => {
                let error = unwrapped(error.into());
                (
                    error.code().map(str::to_owned),
                    error.detail().map(str::to_owned),
                )
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_refusal_inside_a_script_of_an_older_server_has_its_own_code() {
        const SCRIPT: &str = "Error running script (call to f_31ae025655f0d675e9b2257e0bcf5f969fcbbff5): @user_script:1: ";
        for (inside, refusal) in [
            (
                "@user_script: 1: -OOM command not allowed",
                "OOM command not allowed",
            ),
            (
                "@user_script: 12: -READONLY You can't write: now",
                "READONLY You can't write: now",
            ),
            (
                "@user_script: 1: -NOREPLICAS Not enough",
                "NOREPLICAS Not enough",
            ),
            (
                "@user_script: 1: -MISCONF Redis is configured",
                "MISCONF Redis is configured",
            ),
            (
                "WRONGTYPE Operation against a key",
                "WRONGTYPE Operation against a key",
            ),
        ] {
            assert_eq!(
                read(&format!("ERR {SCRIPT}{inside}")),
                read(refusal),
                "{inside}"
            );
        }
        for line in [
            "ERR any text",
            "READONLY a replica",
            &format!("ERR {SCRIPT}attempt to index a nil value"),
            &format!(
                "ERR {SCRIPT}@user_script: 1: The user executing the script can't run this command or subcommand"
            ),
            "ERR Error running script (call to f_1",
        ] {
            assert!(
                read(line)
                    .1
                    .is_some_and(|text| line.trim_end().ends_with(&text)),
                "{line}"
            );
        }
    }
}
