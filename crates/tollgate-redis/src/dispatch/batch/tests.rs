use super::*;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

use crate::{
    deny_cache::KeyHash,
    dispatch::{pacer::Pacer, queue::Queue},
    protocol,
    server::Breaker,
};
use tollgate_core::{
    Algorithm, Cost, Key, Policy, PolicySet, Quota,
    raw::{KeyParts, PolicySetParts},
    store::{Check, Deadline},
};

/// Checks in a queue, and what their callers share with it.
struct Line {
    queue: Queue<QueuedCheck>,
    breaker: Breaker,
    callers: Vec<CheckRequest>,
}

impl Line {
    fn new() -> Self {
        Self {
            queue: Queue::new(Pacer::new(Instant::now())),
            breaker: Breaker::new(Instant::now()),
            callers: Vec::new(),
        }
    }

    fn push(&mut self, policies: &PolicySet, key: u64, cost: u64) {
        self.push_check(Check::new(policies, &Key::from(key), Cost::new(cost)));
    }

    fn push_check(&mut self, check: Check<'_>) {
        let request = check.to_request();
        let (mut waiting, epoch) = self.queue.enter(&self.breaker).expect("a closed breaker");
        waiting.push_back(QueuedCheck::new(request.clone(), epoch));
        drop(waiting);
        self.callers.push(request);
    }

    fn cut(&self, share: BatchLimit) -> Batch {
        Batch::cut(&mut self.queue.lock(), share, None)
    }

    fn len(&self) -> usize {
        self.queue.lock().len()
    }
}

trait ToRequest {
    fn to_request(self) -> CheckRequest;
}

impl ToRequest for Check<'_> {
    fn to_request(self) -> CheckRequest {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);
        CheckRequest::new(self, KeyHash::of(self.key, &HASHER), None, None, None)
    }
}

const WIDE: BatchLimit = BatchLimit {
    keys: usize::MAX,
    checks: usize::MAX,
};

fn set(policies: usize) -> PolicySet {
    let policy = |name| Policy::token_bucket(name, Quota::per_second(10));
    PolicySet::try_new(
        ["a", "b", "c", "d", "e"]
            .map(policy)
            .into_iter()
            .take(policies),
    )
    .expect("a set")
}

fn keys(batch: &Batch) -> usize {
    batch.groups.iter().map(|group| group.subjects.len()).sum()
}

#[test]
fn a_batch_holds_so_many_keys_that_the_server_is_not_blocked() {
    for (policies, most) in [(1, 64), (3, 21), (5, 12)] {
        let (set, mut waiting) = (set(policies), Line::new());
        (0..200).for_each(|key| waiting.push(&set, key, 1));
        let batch = waiting.cut(WIDE);
        assert_eq!(
            (keys(&batch), waiting.len()),
            (most, 200 - most),
            "{policies} policies"
        );
    }
}

#[test]
fn a_batch_holds_a_thousand_checks_of_one_key() {
    let (set, mut waiting) = (set(1), Line::new());
    (0..1_500).for_each(|_| waiting.push(&set, 7, 1));
    let batch = waiting.cut(WIDE);
    assert_eq!(
        (keys(&batch), batch.checks(), waiting.len()),
        (1, 1_024, 476)
    );
}

#[test]
fn a_batch_takes_its_share_and_never_nothing() {
    let (set, mut waiting) = (set(1), Line::new());
    (0..10).for_each(|key| waiting.push(&set, key, 1));
    assert_eq!(waiting.cut(BatchLimit { keys: 4, checks: 9 }).checks(), 4);
    assert_eq!(waiting.cut(BatchLimit { keys: 4, checks: 2 }).checks(), 2);
    assert_eq!(waiting.cut(BatchLimit { keys: 0, checks: 1 }).checks(), 1);
    (0..9).for_each(|_| waiting.push(&set, 3, 1));
    // More checks of a key that the batch holds add no key.
    assert_eq!(waiting.cut(BatchLimit { keys: 4, checks: 8 }).checks(), 8);
}

/// Returns the checks of each group as key and cost, in order.
fn calls(batch: &Batch) -> Vec<Vec<(String, u64)>> {
    let check = |check: &QueuedCheck| {
        let request = check.request();
        (
            String::from_utf8_lossy(request.key().as_bytes()).into_owned(),
            request.charge().cost.units(),
        )
    };
    batch
        .groups
        .iter()
        .map(|group| group.subjects.iter().flatten().map(check).collect())
        .collect()
}

#[test]
fn checks_of_one_key_and_several_costs_are_one_subject_in_the_order_in_which_they_came() {
    let (set, mut waiting) = (set(1), Line::new());
    for (key, cost) in [(1, 1), (2, 1), (1, 1), (3, 2), (2, 2), (1, 1), (2, 1)] {
        waiting.push(&set, key, cost);
    }
    let batch = waiting.cut(WIDE);
    let key = |key: u64, cost| {
        (
            String::from_utf8_lossy(Key::from(key).as_bytes()).into_owned(),
            cost,
        )
    };
    let expected = [
        key(1, 1),
        key(1, 1),
        key(1, 1),
        key(2, 1),
        key(2, 2),
        key(2, 1),
        key(3, 2),
    ];
    assert_eq!(calls(&batch), [expected]);
    assert_eq!((keys(&batch), waiting.len()), (3, 0));
}

#[test]
fn sets_of_one_shape_are_one_call_and_each_other_shape_is_another() {
    let named = |name: &str, units| {
        PolicySet::from(
            Policy::try_new(name, Algorithm::TokenBucket, Quota::per_day(units)).expect("a policy"),
        )
    };
    let window = PolicySet::from(Policy::fixed_window("w", Quota::per_second(1)));
    let mut waiting = Line::new();
    for (at, set) in [
        named("a", 1),
        window.clone(),
        named("b", 2),
        named("c", 3),
        window,
    ]
    .iter()
    .enumerate()
    {
        waiting.push(set, at as u64, 1);
    }
    let subjects = waiting
        .cut(WIDE)
        .groups
        .iter()
        .map(|group| group.subjects.len())
        .collect::<Vec<_>>();
    assert_eq!(subjects, [3, 2]);
}

#[test]
fn sets_that_share_a_state_are_in_different_calls_and_others_are_not() {
    let bucket = |name: &str, units| {
        Policy::try_new(name, Algorithm::TokenBucket, Quota::per_day(units)).expect("a policy")
    };
    // Policy `a` of key 7 is in three sets. The fourth check is that of the first again.
    let sets = [
        vec![bucket("a", 5)],
        vec![bucket("b", 5)],
        vec![bucket("a", 6)],
        vec![bucket("a", 5)],
    ];
    let sets = sets.map(|policies| PolicySet::try_new(policies).expect("a set"));
    let mut waiting = Line::new();
    sets.iter().for_each(|set| waiting.push(set, 7, 1));
    let batch = waiting.cut(WIDE);
    let amounts = |group: &Group| {
        let amount = |subject: &Subject| {
            subject[0]
                .request()
                .policies()
                .iter()
                .next()
                .expect("a policy")
                .quota()
                .amount()
        };
        group.subjects.iter().map(amount).collect::<Vec<_>>()
    };
    assert_eq!(
        batch.groups.iter().map(amounts).collect::<Vec<_>>(),
        [vec![5, 5], vec![6], vec![5]]
    );
}

#[test]
fn nested_keys_below_one_level_are_in_different_calls() {
    let site = Policy::token_bucket("site", Quota::per_second(10)).at_level(1);
    let set = PolicySet::from([site, Policy::token_bucket("own", Quota::per_second(10))]);
    let mut waiting = Line::new();
    for (outer, inner) in [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")] {
        waiting.push_check(Check::new(&set, &Key::new(outer).child(inner), Cost::ONE));
    }
    let batch = waiting.cut(WIDE);
    assert_eq!(
        batch
            .groups
            .iter()
            .map(|group| group.subjects.len())
            .collect::<Vec<_>>(),
        [2, 1, 1]
    );
}

/// Returns the keys on the server of each call.
fn names(batch: &Batch) -> Vec<Vec<String>> {
    let names = |subject: &Subject| {
        let request = subject[0].request();
        let name = |policy: &Policy| {
            let mut text = Vec::new();
            protocol::write_key(policy, request.key(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        request.policies().iter().map(name).collect::<Vec<_>>()
    };
    batch
        .groups
        .iter()
        .map(|group| group.subjects.iter().flat_map(names).collect())
        .collect()
}

#[test]
fn keys_that_share_a_branch_are_in_different_calls_and_others_are_not() {
    let bucket = |name| Policy::token_bucket(name, Quota::per_second(10));
    let both = PolicySet::from([bucket("address"), bucket("user").at_branch(2)]);
    let mut waiting = Line::new();
    // The third shares one branch with the first and one with the second. The fourth has equal
    // texts at other branches.
    for (address, user) in [("a", "x"), ("b", "y"), ("a", "y"), ("x", "a"), ("a", "x")] {
        waiting.push_check(Check::new(
            &both,
            &Key::new(address).with_branch(user),
            Cost::ONE,
        ));
    }
    let batch = waiting.cut(WIDE);
    assert_eq!(
        batch
            .groups
            .iter()
            .map(|group| group.subjects.len())
            .collect::<Vec<_>>(),
        [3, 1, 1]
    );
    assert_eq!(names(&batch)[1], ["a}:address:t1", "y}:user:t1"]);
}

#[test]
fn no_call_names_a_key_twice() {
    let bucket = |name| Policy::token_bucket(name, Quota::per_second(10));
    let sets = [
        PolicySet::from([bucket("p"), bucket("q").at_branch(2)]),
        PolicySet::from([bucket("q"), bucket("p").at_branch(2)]),
        PolicySet::from([bucket("p"), bucket("q")]),
        PolicySet::from([
            bucket("p").at_level(1),
            bucket("q").at_branch(2).at_level(2),
        ]),
        PolicySet::from([
            bucket("p").at_level(2).at_branch(2),
            bucket("q").at_level(1),
        ]),
        PolicySet::from([
            bucket("p").at_level(2),
            bucket("q").at_level(2).at_branch(2),
        ]),
    ];
    let part = |dice: usize| Key::from((dice % 2) as u64).child((dice / 2 % 2) as u64);
    let outer = |dice: usize| {
        if dice.is_multiple_of(3) {
            Key::from((dice % 2) as u64)
        } else {
            part(dice)
        }
    };
    for seed in 0..200_usize {
        let (mut waiting, mut sent) = (Line::new(), Vec::new());
        for step in 0..40_usize {
            let dice = seed * 7_919 + step * step * 31 + step;
            let (set, key) = (
                &sets[dice % sets.len()],
                outer(dice / 3).with_branch(outer(dice / 11)),
            );
            if set.reaches(&key).is_ok() {
                waiting.push_check(Check::new(set, &key, Cost::ONE));
            }
        }
        loop {
            let batch = waiting.cut(WIDE);
            if batch.is_empty() {
                break;
            }
            sent.extend(names(&batch));
        }
        for mut names in sent {
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "seed {seed}");
        }
    }
}

#[test]
fn a_reply_stays_within_what_lua_can_return() {
    let (set, mut waiting) = (set(5), Line::new());
    (0..1_000).for_each(|at| waiting.push(&set, 1, 1 + at % 2));
    let batch = waiting.cut(WIDE);
    // Each run has eleven numbers: the admitted checks, and two of each policy.
    assert_eq!((batch.checks(), waiting.len()), (363, 637));
}

#[tokio::test(start_paused = true)]
async fn a_check_that_would_be_answered_too_late_is_not_sent_unless_it_never_could_be_in_time() {
    let (set, key) = (set(1), Key::from(1_u64));
    let check = |timeout| {
        let deadline = Deadline::after(Duration::from_millis(timeout));
        Check::new(&set, &key, Cost::ONE).with_deadline(deadline)
    };
    let mut waiting = Line::new();
    for timeout in [50, 1_000, 10] {
        waiting.push_check(check(timeout));
    }
    let later = Deadline::after(Duration::ZERO).start() + Duration::from_millis(40);
    let batch = Batch::cut(
        &mut waiting.queue.lock(),
        WIDE,
        Some((later, Duration::from_millis(20))),
    );
    assert_eq!((batch.checks(), batch.late.len()), (2, 1));
    assert_eq!(
        batch.late[0]
            .request()
            .deadline()
            .expect("a deadline")
            .timeout(),
        Duration::from_millis(50)
    );
}

#[test]
fn a_caller_that_gave_up_is_not_sent() {
    let (set, mut waiting) = (set(1), Line::new());
    (0..3).for_each(|key| waiting.push(&set, key, 1));
    waiting.callers.remove(1).give_up();
    let batch = waiting.cut(WIDE);
    let sent: Vec<_> = batch.groups[0]
        .subjects
        .iter()
        .map(|subject| subject[0].request().key().clone())
        .collect();
    assert_eq!(sent, [Key::from(0_u64), Key::from(2_u64)]);
}

#[test]
fn callers_change_places_when_an_earlier_batch_comes_back() {
    let (set, mut waiting) = (set(1), Line::new());
    // Five checks of key 1, of which the second caller gives up later, and one of key 2.
    [1, 1, 1, 2]
        .into_iter()
        .for_each(|key| waiting.push(&set, key, 1));
    let mut refused = waiting.cut(WIDE).groups.remove(0);
    [1, 1]
        .into_iter()
        .for_each(|key| waiting.push(&set, key, 1));
    let mut executed = waiting.cut(WIDE).groups.remove(0);
    let place = |request: &CheckRequest| std::ptr::from_ref(&**request).addr();
    let callers: Vec<_> = waiting.callers.iter().map(place).collect();
    waiting.callers.remove(1).give_up();
    executed.change_places(&mut refused);
    let of = |group: Group| {
        group
            .into_checks()
            .map(|check| place(check.request()))
            .collect::<Vec<_>>()
    };
    assert_eq!(refused.checks, 3);
    assert_eq!(
        of(executed),
        [callers[0], callers[2]],
        "those that came first are answered first"
    );
    assert_eq!(of(refused), [callers[4], callers[5], callers[3]]);
}
