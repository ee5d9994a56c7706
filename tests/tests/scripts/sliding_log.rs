//! The sliding log at a server: denied attempts cost no memory, and its entries say who spent.

use tollgate::{Cost, ErrorKind, Key, Policy, PolicySet, Quota};
use tollgate_test_support::{
    InRedis, START_US, Stored, Subject, calls::Script, connected_store, patient_limiter, stream,
};
use tollgate_tests::{RedisServer, Reply};

/// In a full run.
const ATTEMPTS: u64 = 1_000_000;
const AT_ONCE: u64 = 10_000;

/// The size of a log, and its state.
#[derive(Debug, PartialEq)]
struct Size {
    memory: i64,
    length: i64,
    state: Option<Stored>,
}

fn size(redis: &mut InRedis, policy: &Policy, key: &Key) -> Size {
    let at = Script::new(policy.clone()).keys(key).remove(0);
    let mut run = |words: &[&str]| {
        redis
            .run(
                &words
                    .iter()
                    .map(|&word| word.to_owned())
                    .collect::<Vec<_>>(),
            )
            .int()
    };
    let (memory, length) = (
        run(&["MEMORY", "USAGE", &at, "SAMPLES", "0"]),
        run(&["LLEN", &at]),
    );
    Size {
        memory,
        length,
        state: redis.stored(policy, key),
    }
}

/// Returns the calls of every command so far, by name.
fn calls(redis: &InRedis) -> Vec<(String, u64)> {
    let stats = redis.server.info("commandstats");
    let names = stats
        .keys()
        .filter_map(|name| name.strip_prefix("cmdstat_"));
    names
        .map(|name| (name.to_owned(), redis.server.calls(name)))
        .filter(|(name, _)| name != "info")
        .collect()
}

#[test]
fn a_million_denied_attempts_leave_memory_and_work_as_they_were() {
    let mut redis = InRedis::new();
    let policy = Policy::sliding_log("log", Quota::per_day(100));
    let set = PolicySet::from(policy.clone());
    let key = Key::from("victim");
    for _ in 0..100 {
        redis.advance(1_000);
        assert!(redis.check(&set, &key, 1).is_allowed());
    }
    let before = size(&mut redis, &policy, &key);
    assert_eq!(before.length, 100);

    let script = Script::new(set);
    let mut now = redis.now();
    let mut batches = Vec::new();
    for _ in 0..stream::part_of(ATTEMPTS) / AT_ONCE {
        let counted = calls(&redis);
        let attempts: Vec<Vec<Vec<u8>>> = (1..=AT_ONCE)
            .map(|at| script.check_tagged(&key, Cost::ONE, "eve", Some(now + at * 1_000)))
            .collect();
        now += AT_ONCE * 1_000;
        for reply in redis.client.pipeline(&attempts).expect("replies") {
            assert!(
                matches!(&reply, Reply::Array(words) if words[0].int() == -101),
                "not denied: {reply:?}"
            );
        }
        let since = calls(&redis).into_iter().map(|(name, calls)| {
            let earlier = counted
                .iter()
                .find(|(other, _)| *other == name)
                .map_or(0, |&(_, calls)| calls);
            (name, calls - earlier)
        });
        batches.push(since.filter(|&(_, calls)| calls > 0).collect::<Vec<_>>());
    }
    assert_eq!(size(&mut redis, &policy, &key), before);
    // The work is counted, not timed: the last calls run the same commands as the first ones, and
    // none of them writes.
    assert!(
        batches.iter().all(|batch| *batch == batches[0]),
        "{:?} then {:?}",
        batches[0],
        batches.last()
    );
    let names: Vec<_> = batches[0].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["evalsha", "lindex", "llen"]);
    assert!(
        now < START_US + 86_400_000_000,
        "all of them within the period"
    );
}

#[tokio::test]
async fn entries_are_the_newest_first_with_their_tags_and_bounded() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let build = |policies: Vec<Policy>| patient_limiter(store.clone(), policies);
    let limiter = build(vec![
        Policy::token_bucket("burst", Quota::per_hour(100)),
        Policy::sliding_log("log", Quota::per_hour(5)),
    ]);
    assert!(
        limiter
            .entries("192.0.2.7", 10)
            .await
            .expect("entries")
            .is_empty()
    );

    let longest = [0xff_u8; 64];
    let tags: [&[u8]; 4] = [b"ann", b"", b"a\0b\r\n", &longest];
    for tag in tags {
        assert!(
            limiter
                .check("192.0.2.7")
                .tag(tag)
                .await
                .expect("a decision")
                .is_allowed()
        );
    }
    let entries = limiter.entries("192.0.2.7", 10).await.expect("entries");
    assert_eq!(
        entries
            .iter()
            .map(tollgate::limiter::Entry::tag)
            .collect::<Vec<_>>(),
        [&longest[..], b"a\0b\r\n", b"", b"ann"]
    );
    assert!(entries.windows(2).all(|pair| pair[0].at() >= pair[1].at()));

    let two = limiter.entries("192.0.2.7", 2).await.expect("entries");
    assert_eq!(two, entries[..2]);
    assert!(
        limiter
            .entries("192.0.2.7", 0)
            .await
            .expect("entries")
            .is_empty()
    );

    let error = limiter
        .check("192.0.2.7")
        .tag(&[0; 65])
        .await
        .expect_err("no decision");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Config, "tag must be at most 64 bytes, got 65")
    );

    // A cost of two exceeds the rest. A denied attempt adds no entry, an admitted one adds an entry
    // per unit.
    assert!(
        limiter
            .check("192.0.2.7")
            .cost(Cost::new(2))
            .tag("eve")
            .await
            .expect("a decision")
            .is_denied()
    );
    assert_eq!(
        limiter.entries("192.0.2.7", 10).await.expect("entries"),
        entries
    );
    limiter.reset("192.0.2.7").await.expect("a reset");
    assert!(
        limiter
            .check("192.0.2.7")
            .cost(Cost::new(3))
            .tag("bob")
            .await
            .expect("a decision")
            .is_allowed()
    );
    let entries = limiter.entries("192.0.2.7", 10).await.expect("entries");
    assert_eq!(
        entries
            .iter()
            .map(tollgate::limiter::Entry::tag)
            .collect::<Vec<_>>(),
        [b"bob"; 3]
    );

    let error = build(vec![Policy::token_bucket("burst", Quota::per_hour(100))])
        .entries("192.0.2.7", 1)
        .await;
    assert_eq!(
        error.expect_err("no entries").kind(),
        ErrorKind::Unsupported
    );
}
