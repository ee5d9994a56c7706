use std::task::Waker;

use foldhash::fast::RandomState;

use super::*;
use crate::{Cost, Policy, Quota};

fn request_within(timeout: Duration) -> Arc<CheckRequest> {
    let policies = PolicySet::from(Policy::token_bucket("a", Quota::per_second(1)));
    let key = Key::new("acme");
    let check = Check::new(&policies, &key, Cost::ONE).with_deadline(Deadline::after(timeout));
    Arc::new(CheckRequest::new(check, KeyHash { whole: 7, outermost: 7, hasher: RandomState::default() }, None))
}

fn sides() -> (ReplySender, ReplyReceiver) {
    channel(request_within(Duration::from_secs(1)))
}

fn unavailable() -> Result<Decision, Error> {
    Err(Error::new(ErrorKind::Unavailable, "away"))
}

fn poll(receiver: &mut ReplyReceiver) -> Poll<Result<Result<Decision, Error>, NoReply>> {
    Pin::new(receiver).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_reply_is_received_once() {
    let (sender, mut receiver) = sides();
    assert!(sender.is_awaited() && poll(&mut receiver).is_pending());
    sender.send(unavailable());
    assert!(matches!(poll(&mut receiver), Poll::Ready(Ok(Err(error))) if error.to_string() == "away"));
    assert!(matches!(poll(&mut receiver), Poll::Ready(Err(NoReply::Dropped))));
}

#[test]
fn a_dropped_side_tells_the_other() {
    let (sender, mut receiver) = sides();
    drop(sender);
    assert!(matches!(poll(&mut receiver), Poll::Ready(Err(NoReply::Dropped))));
    let (sender, receiver) = sides();
    drop(receiver);
    assert!(!sender.is_awaited());
}
