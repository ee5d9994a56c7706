//! Law 13: damaged and foreign state counts as absent.
//!
//! A value under the key that the scripts did not write, or that was cut or changed, causes no error, gives no more than a
//! fresh key, causes no endless wait, and the state that is stored next expires. The in-process store holds typed states,
//! which cannot be damaged.

use std::time::Duration;

use tollgate::{Limiter, Policy, Quota, testing::ALGORITHMS};
use tollgate_test_support::{Deployment, Kind, patient_limiter};
use tollgate_tests::{RedisServer, Reply};

const AMOUNT: u64 = 5;
const PERIOD: Duration = Duration::from_secs(3_600);

/// The longest wait. A number that reads as a debt is one, and a debt is at most eight bursts.
const LONGEST_WAIT: Duration = PERIOD.saturating_mul(8);

/// Lists the foreign states, and the commands that plant them.
type Plant = (String, Vec<Vec<u8>>);

fn command<const N: usize>(what: impl Into<String>, words: [&[u8]; N]) -> Plant {
    (what.into(), words.map(<[u8]>::to_vec).into())
}

/// Doubles that no clock and no counter shows, and some that look plausible.
fn doubles(now_us: f64) -> Vec<(&'static str, f64)> {
    vec![
        ("NaN", f64::NAN),
        ("infinity", f64::INFINITY),
        ("minus infinity", f64::NEG_INFINITY),
        ("minus one", -1.0),
        ("minus zero", -0.0),
        ("a half", 0.5),
        ("2^53", 9_007_199_254_740_992.0),
        ("the greatest", f64::MAX),
        ("the least", f64::MIN_POSITIVE),
        ("a time a hundred years ahead", now_us + 3.2e15),
        ("a time a period and a half ahead", now_us + 5.4e9),
        ("a time long ago", now_us - 3.2e15),
        ("now", now_us),
    ]
}

/// Values of other types, and texts.
fn foreign(key: &[u8]) -> Vec<Plant> {
    vec![
        command("an empty string", [b"SET", key, b""]),
        command("a digit", [b"SET", key, b"7"]),
        command("nan in text", [b"SET", key, b"nan"]),
        command("text as long as a state", [b"SET", key, b"abcdefghijklmnopqrstuvwx"]),
        command("zeros", [b"SET", key, &[0; 24]]),
        command("ones", [b"SET", key, &[0xff; 24]]),
        command("a megabyte", [b"SET", key, &vec![b'x'; 1 << 20]]),
        command("a list of texts", [b"RPUSH", key, b"1", b"two", b""]),
        command("a hash", [b"HSET", key, b"tokens", b"3"]),
        command("a set", [b"SADD", key, b"a"]),
        command("a sorted set", [b"ZADD", key, b"1", b"a"]),
        command("a stream", [b"XADD", key, b"*", b"a", b"b"]),
    ]
}

/// The state that a script wrote: cut, lengthened, and with one number replaced.
fn damaged(key: &[u8], state: &[u8], now_us: f64) -> Vec<Plant> {
    let mut plants: Vec<Plant> =
        (0..state.len()).map(|len| command(format!("its first {len} bytes"), [b"SET", key, &state[..len]])).collect();
    plants.push(command("it, twice", [b"SET", key, &[state, state].concat()]));
    plants.push(command("it and a byte", [b"SET", key, &[state, b"x"].concat()]));
    for at in (0..state.len() / 8 * 8).step_by(8) {
        for (what, double) in doubles(now_us) {
            let mut state = state.to_vec();
            state[at..at + 8].copy_from_slice(&double.to_le_bytes());
            plants.push(command(format!("{what} at {at}"), [b"SET", key, &state]));
        }
    }
    plants
}

/// Logs with invalid entries.
fn entries(key: &[u8], now_us: f64) -> Vec<Plant> {
    let mut plants: Vec<Plant> = doubles(now_us)
        .into_iter()
        .flat_map(|(what, double)| {
            let entry = double.to_le_bytes();
            [
                command(format!("a log of {what}"), [b"RPUSH", key, &entry]),
                command(format!("a log that begins with {what}"), [b"RPUSH", key, &entry, &now_us.to_le_bytes()]),
                command(format!("a log that ends with {what}"), [b"RPUSH", key, &now_us.to_le_bytes(), &entry]),
            ]
        })
        .collect();
    plants.push(command("half an entry", [b"RPUSH", key, &now_us.to_le_bytes()[..4]]));
    plants.push(command("an entry and half of one", [b"RPUSH", key, &now_us.to_le_bytes(), b"1234"]));
    plants
}

/// Returns what to plant, and whether it stems from a state of ours and so has an expiry.
fn plants(server: &RedisServer, key: &str, now_us: f64) -> impl Iterator<Item = (Plant, bool)> {
    let ours = match server.command(&["GET", key]) {
        Reply::Bulk(state) => damaged(key.as_bytes(), &state, now_us),
        // The state of a log is a list.
        _ => entries(key.as_bytes(), now_us),
    };
    let foreign = foreign(key.as_bytes()).into_iter().map(|plant| (plant, false));
    foreign.chain(ours.into_iter().map(|plant| (plant, true)))
}

/// Spends until a check is denied. Returns what went wrong.
async fn spend(limiter: &Limiter, server: &RedisServer, key: &str) -> Result<(), String> {
    let mut passed = 0;
    loop {
        let decision = limiter.check("acme").await.map_err(|error| format!("{error} after {passed}"))?;
        let Some(wait) = decision.retry_after() else {
            passed += 1;
            if passed > AMOUNT {
                return Err("more passed than a fresh key admits".to_owned());
            }
            let ttl = server.command(&["PTTL", key]).int();
            if !(1..=3 * PERIOD.as_millis() as i64).contains(&ttl) {
                return Err(format!("it expires in {ttl} ms"));
            }
            continue;
        };
        return if wait.is_zero() || wait > LONGEST_WAIT { Err(format!("a wait of {wait:?}")) } else { Ok(()) };
    }
}

#[tokio::test]
async fn law_13_damaged_and_foreign_state_counts_as_absent() {
    let test = "law_13_damaged_and_foreign_state_counts_as_absent";
    plant_on(&Deployment::start(Kind::Server, test).expect("redis is always there")).await;
}

#[tokio::test]
async fn law_13_damaged_and_foreign_state_counts_as_absent_on_valkey() {
    let test = "law_13_damaged_and_foreign_state_counts_as_absent_on_valkey";
    if let Some(valkey) = Deployment::start(Kind::Valkey, test) {
        plant_on(&valkey).await;
    }
}

async fn plant_on(deployment: &Deployment) {
    let server = deployment.masters()[0];
    let store = deployment.builder("damage").deny_cache_cap(Duration::ZERO).connect().await.expect("a store");
    let (mut planted, mut wrong) = (0, Vec::new());
    for algorithm in ALGORITHMS {
        let policy = Policy::try_new("planted", algorithm, Quota::new(AMOUNT, PERIOD)).expect("a policy");
        let limiter = patient_limiter(store.clone(), policy);
        assert!(limiter.check("acme").await.expect("a decision").is_allowed());
        let key = server.command(&["KEYS", "*"]).items()[0].text();
        let time = server.command(&["TIME"]);
        let now_us = time.items()[0].text().parse::<f64>().expect("seconds") * 1e6;
        for ((what, words), is_ours) in plants(server, &key, now_us) {
            planted += 1;
            server.command(&["DEL", &key]);
            assert!(!server.command(&words).is_error(), "{what}");
            if is_ours {
                server.command(&["PEXPIRE", &key, "3600000"]);
            }
            if let Err(outcome) = spend(&limiter, server, &key).await {
                wrong.push(format!("{algorithm:?}: {what}: {outcome}"));
            }
        }
        server.command(&["FLUSHALL"]);
    }
    println!("{planted} states planted");
    assert!(wrong.is_empty(), "{} of {planted}:\n{}", wrong.len(), wrong.join("\n"));
    let stats = server.info("commandstats");
    // No script fails, and each is sent by its body once.
    for command in ["cmdstat_eval", "cmdstat_evalsha"] {
        assert!(stats[command].ends_with("failed_calls=0"), "{stats:?}");
    }
    let once_per_algorithm = format!("calls={},", ALGORITHMS.len());
    assert!(stats["cmdstat_eval"].starts_with(&once_per_algorithm), "{stats:?}");
}
