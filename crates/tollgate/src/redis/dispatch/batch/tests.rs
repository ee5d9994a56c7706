use super::*;
use crate::{
    Check, Cost, Key, Policy, PolicySet, Quota,
    redis::{
        deny_cache::KeyHash,
        dispatch::request::{self, ReplyReceiver},
    },
};

/// The batches under way: none, or one that holds a single key.
#[derive(Default)]
struct Sent(Option<BatchKeys>);

impl UnderWay for Sent {
    fn rivals(&self, request: &CheckRequest) -> u8 {
        u8::from(self.0.as_ref().is_some_and(|keys| keys.is_rival(request)))
    }

    fn holds(&self, rivals: u8, request: &CheckRequest) -> bool {
        rivals == 1 && self.0.as_ref().is_some_and(|keys| keys.holds(request))
    }
}

/// Checks in a queue. The callers wait as long as this is held.
#[derive(Default)]
struct Waiting {
    checks: VecDeque<QueuedCheck>,
    callers: Vec<ReplyReceiver>,
}

impl Waiting {
    fn push(&mut self, policies: &PolicySet, key: u64, cost: u64) {
        let check = Check { deadline: None, ..Check::new(policies, &Key::from(key), Cost::new(cost)) }.to_request(key);
        let (sender, caller) = request::channel(check);
        self.checks.push_back(QueuedCheck { sender, breaker_epoch: 0 });
        self.callers.push(caller);
    }

    fn cut(&mut self, limit: BatchLimit) -> Batch {
        Batch::cut(&mut self.checks, limit, &Sent::default())
    }
}

trait ToRequest {
    fn to_request(self, hash: u64) -> Arc<CheckRequest>;
}

impl ToRequest for Check<'_> {
    fn to_request(self, hash: u64) -> Arc<CheckRequest> {
        Arc::new(CheckRequest::new(self, KeyHash { whole: hash, outermost: hash }, None))
    }
}

const WIDE: BatchLimit = BatchLimit { subjects: usize::MAX, checks: usize::MAX };

fn set(policies: usize) -> PolicySet {
    let policy = |name| Policy::token_bucket(name, Quota::per_second(10));
    PolicySet::try_new(["a", "b", "c", "d", "e"].map(policy).into_iter().take(policies)).expect("a set")
}

fn keys(batch: &Batch) -> usize {
    batch.groups.iter().map(|group| group.subjects.len()).sum()
}

#[test]
fn a_batch_holds_so_many_keys_that_the_server_is_not_blocked() {
    for (policies, most) in [(1, 64), (3, 21), (5, 12)] {
        let (set, mut waiting) = (set(policies), Waiting::default());
        (0..200).for_each(|key| waiting.push(&set, key, 1));
        let batch = waiting.cut(WIDE);
        assert_eq!((keys(&batch), waiting.checks.len()), (most, 200 - most), "{policies} policies");
    }
}

#[test]
fn a_batch_holds_a_thousand_checks_of_one_key() {
    let (set, mut waiting) = (set(1), Waiting::default());
    (0..1_500).for_each(|_| waiting.push(&set, 7, 1));
    let batch = waiting.cut(WIDE);
    assert_eq!((keys(&batch), batch.len(), waiting.checks.len()), (1, 1_024, 476));
}

#[test]
fn a_batch_takes_its_share_and_never_nothing() {
    let (set, mut waiting) = (set(1), Waiting::default());
    (0..10).for_each(|key| waiting.push(&set, key, 1));
    assert_eq!(waiting.cut(BatchLimit { subjects: 4, checks: 9 }).len(), 4);
    assert_eq!(waiting.cut(BatchLimit { subjects: 4, checks: 2 }).len(), 2);
    assert_eq!(waiting.cut(BatchLimit { subjects: 0, checks: 1 }).len(), 1);
    (0..9).for_each(|_| waiting.push(&set, 3, 1));
    // More checks of a key that the batch holds add no key.
    assert_eq!(waiting.cut(BatchLimit { subjects: 4, checks: 8 }).len(), 8);
}

#[test]
fn a_check_of_the_same_key_with_another_cost_waits_and_the_call_before_it_is_sent_by_its_body() {
    let (set, mut waiting) = (set(1), Waiting::default());
    for (key, cost) in [(1, 1), (2, 1), (1, 1), (3, 2), (2, 2), (4, 1)] {
        waiting.push(&set, key, cost);
    }
    let batch = waiting.cut(WIDE);
    assert_eq!((batch.len(), waiting.checks.len()), (4, 2));
    let firm: Vec<_> = batch.groups.iter().map(|group| group.firm).collect();
    assert_eq!(firm, [Some(1), None], "key 2 is the second of the first group");
}

#[test]
fn a_check_waits_for_a_call_of_its_key_that_may_come_back_unless_both_are_equal() {
    let set = set(1);
    // Key 1 is under way. The number of checks that may leave meanwhile depends on both.
    for (is_firm, cost, leaves) in [(false, 1, 2), (false, 2, 1), (true, 2, 2)] {
        let mut waiting = Waiting::default();
        waiting.push(&set, 1, 1);
        if is_firm {
            waiting.push(&set, 1, 2);
        }
        let sent = Sent(Some(waiting.cut(WIDE).keys));
        waiting.checks.clear();
        waiting.push(&set, 2, cost);
        waiting.push(&set, 1, cost);
        let batch = Batch::cut(&mut waiting.checks, WIDE, &sent);
        assert_eq!(batch.len(), leaves, "firm {is_firm}, cost {cost}");
    }
}

#[test]
fn a_caller_that_gave_up_is_not_sent() {
    let (set, mut waiting) = (set(1), Waiting::default());
    (0..3).for_each(|key| waiting.push(&set, key, 1));
    drop(waiting.callers.remove(1));
    let batch = waiting.cut(WIDE);
    let sent: Vec<_> = batch.groups[0].subjects.iter().map(|subject| subject[0].request().key.clone()).collect();
    assert_eq!(sent, [Key::from(0_u64), Key::from(2_u64)]);
}

#[test]
fn callers_change_places_when_an_earlier_batch_comes_back() {
    let (set, mut waiting) = (set(1), Waiting::default());
    // Five checks of key 1, of which the second caller gives up later, and one of key 2.
    [1, 1, 1, 2].into_iter().for_each(|key| waiting.push(&set, key, 1));
    let mut refused = waiting.cut(WIDE).groups.remove(0);
    [1, 1].into_iter().for_each(|key| waiting.push(&set, key, 1));
    let mut executed = waiting.cut(WIDE).groups.remove(0);
    let callers: Vec<_> = waiting.callers.iter().map(|caller| Arc::as_ptr(caller.request())).collect();
    drop(waiting.callers.remove(1));
    executed.change_places(&mut refused);
    let of = |group: Group| group.into_senders().map(|sender| Arc::as_ptr(sender.request())).collect::<Vec<_>>();
    assert_eq!(refused.checks, 3);
    assert_eq!(of(executed), [callers[0], callers[2]], "those that came first are answered first");
    assert_eq!(of(refused), [callers[4], callers[5], callers[3]]);
}
