//! Tests the entries of a sliding log.

use super::*;

fn tags(bench: &Bench, limit: usize) -> Vec<(u64, String)> {
    let check = Check::new(&bench.set, &bench.key, Cost::ZERO);
    let entries = bench
        .store
        .entries(check, limit)
        .into_ready()
        .unwrap()
        .unwrap();
    let text = |tag: &[u8]| String::from_utf8(tag.to_vec()).unwrap();
    entries
        .iter()
        .map(|entry| (entry.at_us() - EPOCH_US, text(entry.tag())))
        .collect()
}

fn check_tagged(bench: &Bench, cost: u64, tag: &str) -> bool {
    let check = Check::new(&bench.set, &bench.key, Cost::new(cost)).with_tag(tag.as_bytes());
    bench.store.decide(check).is_allowed()
}

#[test]
fn entries_lists_the_units_that_count_newest_first() {
    let bench = Bench::new(Policy::sliding_log("p", quota(4, 100)));
    assert!(check_tagged(&bench, 1, "ann"));
    assert!(check_tagged(bench.at(10), 2, "bob"));
    assert!(check_tagged(bench.at(20), 1, ""));
    assert!(!check_tagged(&bench, 1, "eve"));
    let all =
        [(20, ""), (10, "bob"), (10, "bob"), (0, "ann")].map(|(at, tag)| (at, tag.to_owned()));
    assert_eq!(tags(&bench, 10), all);
    assert_eq!(tags(&bench, 2), all[..2]);
    assert_eq!(tags(bench.at(99), 10), all);
    assert_eq!(tags(bench.at(100), 10), all[..3]);
    assert_eq!(tags(bench.at(110), 10), all[..1]);
    assert_eq!(tags(bench.at(120), 10), []);
}

#[test]
fn a_request_of_several_units_passes_when_enough_units_have_expired() {
    let bench = Bench::new(Policy::sliding_log("p", quota(4, 100)));
    for at in [0, 10, 20, 30] {
        assert!(bench.at(at).admits(1));
    }
    assert_eq!(one(&bench.check(1)).retry, Some(70));
    assert_eq!(
        one(&bench.check(3)),
        One {
            allowed: false,
            remaining: 0,
            retry: Some(90),
            reset: 100,
            more: 70
        }
    );
    assert!(!bench.at(119).admits(3));
    assert!(bench.at(120).admits(3));
}

/// A state on the heap is moved out during a decision. Making room for another state of the set
/// must not drop it as fresh meanwhile.
#[test]
fn a_log_is_kept_when_room_is_made_for_another_state_of_the_set() {
    let clock = Clock::manual(EPOCH_US);
    let store = MemoryStore::builder()
        .clock(clock)
        .max_keys(NonZeroUsize::new(2).unwrap())
        .build();
    let log = Policy::sliding_log("log", quota(4, 100));
    let key = Key::new("k");
    let decide =
        |set: &PolicySet, key: &Key, cost| store.decide(Check::new(set, key, Cost::new(cost)));
    let alone = PolicySet::from(log.clone());
    assert!(decide(&alone, &key, 3).is_allowed());
    assert!(decide(&alone, &Key::new("other"), 1).is_allowed());
    let both = PolicySet::from([Policy::sliding_buckets("buckets", quota(4, 100), 4), log]);
    assert_eq!(decide(&both, &key, 1).state("log").unwrap().remaining(), 0);
    assert!(decide(&alone, &key, 1).is_denied());
}
