//! Law 13: damaged and foreign state counts as absent.
//!
//! A value under the key that the scripts did not write, or that was cut or changed, causes no
//! error, gives no more than a fresh key, causes no endless wait, and the state that is stored next
//! expires. The in-process store holds typed states, which cannot be damaged.

use std::time::Duration;

use tollgate::{
    Algorithm, Cost, Costs, Limiter, Policy, PolicySet, Quota, reservation::ReservationId,
    testing::ALGORITHMS,
};
use tollgate_test_support::{Deployment, InMap, Kind, START_US, Subject, decided, patient_limiter};
use tollgate_tests::{RedisServer, Reply};

use crate::key;

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
        command(
            "text as long as a state",
            [b"SET", key, b"abcdefghijklmnopqrstuvwx"],
        ),
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
    let mut plants: Vec<Plant> = (0..state.len())
        .map(|len| {
            command(
                format!("its first {len} bytes"),
                [b"SET", key, &state[..len]],
            )
        })
        .collect();
    plants.push(command(
        "it, twice",
        [b"SET", key, &[state, state].concat()],
    ));
    plants.push(command(
        "it and a byte",
        [b"SET", key, &[state, b"x"].concat()],
    ));
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
                command(
                    format!("a log that begins with {what}"),
                    [b"RPUSH", key, &entry, &now_us.to_le_bytes()],
                ),
                command(
                    format!("a log that ends with {what}"),
                    [b"RPUSH", key, &now_us.to_le_bytes(), &entry],
                ),
            ]
        })
        .collect();
    plants.push(command(
        "half an entry",
        [b"RPUSH", key, &now_us.to_le_bytes()[..4]],
    ));
    plants.push(command(
        "an entry and half of one",
        [b"RPUSH", key, &now_us.to_le_bytes(), b"1234"],
    ));
    plants
}

/// Returns what to plant, and whether it stems from a state of ours and so has an expiry. `state`
/// is a state of ours, and `None` for a list.
fn plants(state: Option<&[u8]>, key: &[u8], now_us: f64) -> impl Iterator<Item = (Plant, bool)> {
    let ours = match state {
        Some(state) => damaged(key, state, now_us),
        None => entries(key, now_us),
    };
    let foreign = foreign(key).into_iter().map(|plant| (plant, false));
    foreign.chain(ours.into_iter().map(|plant| (plant, true)))
}

/// Spends until a check is denied. Returns what went wrong.
async fn spend(limiter: &Limiter, server: &RedisServer, key: &str) -> Result<(), String> {
    let mut passed = 0;
    loop {
        let decision = limiter
            .check("acme")
            .await
            .map_err(|error| format!("{error} after {passed}"))?;
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
        return if wait.is_zero() || wait > LONGEST_WAIT {
            Err(format!("a wait of {wait:?}"))
        } else {
            Ok(())
        };
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
    let store = deployment
        .builder("damage")
        .deny_cache_cap(Duration::ZERO)
        .connect()
        .await
        .expect("a store");
    let (mut planted, mut wrong) = (0, Vec::new());
    for algorithm in ALGORITHMS {
        let policy =
            Policy::try_new("planted", algorithm, Quota::new(AMOUNT, PERIOD)).expect("a policy");
        let limiter = patient_limiter(store.clone(), policy);
        assert!(decided(&limiter, "acme").await.is_allowed());
        let key = server.command(&["KEYS", "*"]).items()[0].text();
        let time = server.command(&["TIME"]);
        let now_us = time.items()[0].text().parse::<f64>().expect("seconds") * 1e6;
        let state = match server.command(&["GET", &key]) {
            Reply::Bulk(state) => Some(state),
            // The state of a log is a list.
            _ => None,
        };
        for ((what, words), is_ours) in plants(state.as_deref(), key.as_bytes(), now_us) {
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
    assert!(
        wrong.is_empty(),
        "{} of {planted}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let stats = server.info("commandstats");
    // No script fails, and each is sent by its body once, beside the check that connecting makes.
    for command in ["cmdstat_eval", "cmdstat_evalsha"] {
        assert!(stats[command].ends_with("failed_calls=0"), "{stats:?}");
    }
    let once_per_algorithm = format!("calls={},", ALGORITHMS.len() + 1);
    assert!(
        stats["cmdstat_eval"].starts_with(&once_per_algorithm),
        "{stats:?}"
    );
}

/// Returns the bytes that a command plants, in which each entry of a list follows its length.
/// `None` where there are none.
fn bytes(words: &[Vec<u8>]) -> Option<Vec<u8>> {
    match words[0].as_slice() {
        b"SET" => Some(words[2].clone()),
        b"RPUSH" => Some(
            words[2..]
                .iter()
                .flat_map(|entry| [&[entry.len() as u8], entry.as_slice()].concat())
                .collect(),
        ),
        _ => None,
    }
}

#[test]
fn law_13_damaged_bytes_count_as_absent_over_a_map() {
    let mut planted = 0;
    for algorithm in ALGORITHMS {
        let policies = PolicySet::from(
            Policy::try_new("planted", algorithm, Quota::new(AMOUNT, PERIOD)).expect("one"),
        );
        let (mut subject, costs) = (InMap::new(), Costs::new(Cost::ONE));
        let name = format!("{{subject}}:planted:{}", algorithm.tag());
        // A reservation leaves the longest form of a state.
        let id = ReservationId::try_new("held").expect("an id");
        let reserved = subject.reserve(&policies, &key(), &id, &costs, 1);
        let state = subject.bytes.get(name.as_bytes()).expect("a state").value;
        let state = Some(state.as_slice()).filter(|_| algorithm != Algorithm::SlidingLog);
        for ((what, words), _) in plants(state, b"any", START_US as f64) {
            let Some(bytes) = bytes(&words) else { continue };
            planted += 1;
            // Every step reads the bytes, and none of them panics.
            for step in 0..4 {
                subject.bytes.plant(name.as_bytes(), &bytes);
                match step {
                    0 => drop(subject.look(&policies, &key(), 1)),
                    1 => subject.refund_decision(&policies, &key(), &costs, &reserved, START_US),
                    2 => subject.owe(&policies, &key(), 3),
                    _ => {}
                }
                subject.advance(1);
            }
            let mut passed = 0;
            let wait = loop {
                match subject.check(&policies, &key(), 1).retry_after() {
                    Some(wait) => break wait,
                    None => passed += 1,
                }
            };
            assert!(passed <= AMOUNT, "{algorithm:?}: {what}: {passed} passed");
            assert!(
                !wait.is_zero() && wait <= LONGEST_WAIT,
                "{algorithm:?}: {what}: a wait of {wait:?}"
            );
            if let Some(stored) = subject.bytes.get(name.as_bytes()).filter(|_| passed > 0) {
                let most_ms = subject.now() / 1_000 + 3 * PERIOD.as_millis() as u64;
                assert!(
                    stored.expires_ms <= most_ms,
                    "{algorithm:?}: {what}: it expires at {}",
                    stored.expires_ms
                );
            }
        }
    }
    println!("{planted} values planted");
    assert!(planted > 500, "{planted} values");
}
