//! Decisions over several shards of the in-process store.

use loom::{sync::Arc, thread};

use crate::shards::{LockedShards, Shards};

/// A shard: the units that are left in it.
type Left = u64;

/// Hashes of keys in the first, the second and the third shard of three.
const HASHES: [u64; 3] = [0, 1 << 63, u64::MAX];

/// Spends a unit of each shard, or none.
fn spend(shards: &Shards<Left>, hashes: &[u64]) -> bool {
    let (mut locked, _) = shards.lock_all_at(hashes, || 7);
    let has_unit = |locked: &mut LockedShards<'_, Left>, hash: u64| *locked.shard(hash) > 0;
    let is_admitted = hashes.iter().all(|&hash| has_unit(&mut locked, hash));
    if is_admitted {
        hashes.iter().for_each(|&hash| *locked.shard(hash) -= 1);
    }
    is_admitted
}

fn left(shards: &Shards<Left>) -> Vec<u64> {
    HASHES
        .iter()
        .map(|&hash| *shards.lock_all(&[hash]).shard(hash))
        .collect()
}

/// The model checker reports every order of the threads in which they wait for each other for ever.
#[test]
fn threads_that_lock_the_same_shards_in_any_order_wait_for_each_other_and_never_for_ever() {
    loom::model(|| {
        let shards = Arc::new(Shards::new(3, || 2));
        let [one, two, three] = HASHES;
        let spending = |hashes: [u64; 2]| {
            let shards = Arc::clone(&shards);
            thread::spawn(move || spend(&shards, &hashes))
        };
        let (first, second) = (spending([two, one]), spending([three, two]));
        let third = spend(&shards, &[one, three]);
        let admitted = [
            first.join().expect("a thread"),
            second.join().expect("a thread"),
            third,
        ];
        assert_eq!((admitted, left(&shards)), ([true; 3], vec![0, 0, 0]));
    });
}

#[test]
fn of_two_threads_that_want_the_last_unit_of_a_shard_one_gets_it_and_the_other_spends_nothing() {
    loom::model(|| {
        let shards = Arc::new(Shards::new(3, || 1));
        let [one, two, three] = HASHES;
        let other = Arc::clone(&shards);
        let spending = thread::spawn(move || spend(&other, &[two, one]));
        let is_admitted = spend(&shards, &[three, two]);
        let other_is_admitted = spending.join().expect("a thread");
        let expected = if is_admitted { [1, 0, 0] } else { [0, 0, 1] };
        assert_eq!(
            (is_admitted != other_is_admitted, left(&shards)),
            (true, expected.to_vec())
        );
    });
}

/// Two keys in one shard take its lock once.
#[test]
fn one_shard_is_locked_once() {
    loom::model(|| {
        let shards = Shards::new(1, || 4);
        assert!(spend(&shards, &HASHES));
        assert_eq!(*shards.lock_all(&HASHES).shard(0), 1);
    });
}
