use std::task::Waker;

use foldhash::fast::RandomState;

use super::*;
use tollgate_core::{Cost, Policy, PolicySet, Quota};

/// Returns a check in a queue, and what its caller has.
fn queued() -> (QueuedCheck, CheckRequest) {
    let policies = PolicySet::from(Policy::token_bucket("a", Quota::per_second(1)));
    let key = Key::new("acme");
    let hash = KeyHash {
        whole: 7,
        outermost: 7,
        hasher: RandomState::default(),
    };
    let check = Check::new(&policies, &key, Cost::ONE);
    let request = CheckRequest::new(check, hash, None, None, None);
    (QueuedCheck::new(request.clone(), 0), request)
}

fn poll(request: &CheckRequest) -> Poll<Option<CheckResult>> {
    request.poll_reply(&Context::from_waker(Waker::noop()))
}

#[test]
fn a_reply_is_received_once() {
    let (check, request) = queued();
    assert!(check.is_awaited() && poll(&request).is_pending());
    check.reply(Err(Error::new(ErrorKind::Unavailable, "away").into()));
    assert!(
        matches!(poll(&request), Poll::Ready(Some(Err(CallError::Failed(error)))) if error.to_string() == "away")
    );
    assert!(matches!(poll(&request), Poll::Ready(None)));
}

#[test]
fn a_dropped_side_tells_the_other() {
    let (check, request) = queued();
    drop(check);
    assert!(matches!(poll(&request), Poll::Ready(None)));
    let (check, request) = queued();
    request.give_up();
    assert!(!check.is_awaited());
}
