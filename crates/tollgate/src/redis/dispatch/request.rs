//! A check as its caller and the worker share it, until it has a reply or its caller has given up.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use redis::Cmd;

use super::queue::Queued;
use crate::{
    Decision, Error, ErrorKind, Key, PolicySet,
    clock::Clock,
    model::cost::Charge,
    redis::{
        deny_cache::{Epoch, KeyHash},
        pots::Trip,
        protocol,
        server::{Call, CallError, NotExecuted, ScriptCall, Server},
    },
    runtime,
    store::{Check, Deadline},
};

/// Holds a check and, later, its reply.
///
/// The caller and the worker share it in one allocation.
pub(in crate::redis) struct CheckRequest {
    pub(in crate::redis) policies: PolicySet,
    pub(in crate::redis) key: Key,
    /// The hashes of the key.
    pub(in crate::redis) hash: KeyHash,
    pub(in crate::redis) charge: Charge,
    /// The tag for the logs among the policies. Empty without a log.
    pub(in crate::redis) tag: Box<[u8]>,
    pub(in crate::redis) sent: Instant,
    /// When the check was made, on the clock that decides instead of the server's.
    clock_us: Option<u64>,
    pub(in crate::redis) deadline: Option<Deadline>,
    /// The epoch of the deny cache, taken before the check was sent. `None` without a deny cache.
    pub(in crate::redis) deny_epoch: Option<Epoch>,
    /// Connects a check of leased policies with the pots.
    pub(in crate::redis) trip: Option<Trip>,
    /// The part of the slot that the server has.
    pub(in crate::redis) share: SlotShare,
    /// Is true when there is a reply, or no caller that waits for one.
    is_over: AtomicBool,
    reply: Mutex<Reply>,
}

/// The part of a slot that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) enum SlotShare {
    /// All of it.
    Whole,
    /// Some keys, because the slot is being moved away. The server refuses a call of which it has only some keys, so each
    /// subject is a call of its own.
    Leaving,
    /// Some keys, because the slot is being moved here. The same holds, and each call says `ASKING`.
    Arriving,
}

enum Reply {
    Awaited(Option<Waker>),
    Given(Result<Decision, Error>),
    /// The server certainly did not execute the check.
    NotExecuted(Box<NotExecuted>),
    /// There will be no reply, or the caller has it.
    Over,
}

/// The reason why a caller gets no reply.
#[derive(Debug)]
pub(super) enum NoReply {
    NotExecuted(Box<NotExecuted>),
    /// The sender was dropped.
    Dropped,
}

/// The side that replies. When it is dropped, the caller gets no reply.
#[derive(Debug)]
pub(super) struct ReplySender(Arc<CheckRequest>);

/// The side that waits. Dropping it gives up.
#[derive(Debug)]
pub(super) struct ReplyReceiver(Arc<CheckRequest>);

/// A check in the queue.
#[derive(Debug)]
pub(super) struct QueuedCheck {
    pub(super) sender: ReplySender,
    /// The epoch of the breaker when the check was queued.
    pub(super) breaker_epoch: u64,
}

impl CheckRequest {
    #[inline]
    pub(in crate::redis) fn new(check: Check<'_>, hash: KeyHash, deny_epoch: Option<Epoch>) -> Self {
        // A tag that no log stores is not sent.
        let tag = if check.policies.is_tagged() { check.tag.into() } else { Box::default() };
        Self {
            policies: check.policies.clone(),
            key: check.key.clone(),
            hash,
            // Units that were granted in advance are spent without looking at what others have spent.
            charge: if check.policies.is_leased() { check.charge().uncapped() } else { check.charge().to_owned() },
            tag,
            sent: check.deadline.map_or_else(runtime::now, Deadline::start),
            clock_us: None,
            deadline: check.deadline,
            deny_epoch,
            trip: None,
            share: SlotShare::Whole,
            is_over: AtomicBool::new(false),
            reply: Mutex::new(Reply::Awaited(None)),
        }
    }

    /// Adds the time of the clock that decides instead of the server's.
    #[inline]
    pub(in crate::redis) fn with_clock(mut self, clock: Option<&Clock>) -> Self {
        self.clock_us = clock.map(Clock::now_us);
        self
    }

    /// Returns the time that stands for that of a reply without one.
    pub(super) fn asked_us(&self) -> u64 {
        self.clock_us.unwrap_or_else(|| Decision::here_us(self.sent))
    }

    /// Adds what a check of leased policies needs of the pots.
    #[inline]
    pub(in crate::redis) fn with_trip(mut self, trip: Option<Trip>) -> Self {
        self.trip = trip;
        self
    }

    /// Returns the same request, to be sent to a server that has this share of its slot.
    pub(in crate::redis) fn again(&self, share: SlotShare) -> Self {
        let trip = self.trip.clone();
        Self {
            share,
            sent: self.sent,
            clock_us: self.clock_us,
            trip,
            ..Self::new(self.check(), self.hash.clone(), self.deny_epoch)
        }
    }

    pub(in crate::redis) fn check(&self) -> Check<'_> {
        let check = Check::of(&self.policies, &self.key, self.charge.borrow()).with_tag(&self.tag);
        Check { deadline: self.deadline, ..check }
    }

    /// Returns whether the check has ceilings.
    pub(super) fn is_capped(&self) -> bool {
        self.charge.borrow().is_capped()
    }

    /// Returns the call of a script that decides this check alone.
    pub(super) fn call<'a>(&'a self, server: &'a Server) -> impl Call + 'a {
        let fill = |command: &mut Cmd| {
            server.add_keys([(&self.policies, &self.key)], command);
            self.add_arguments(server, command);
        };
        ScriptCall {
            script: self.policies.shape().check(self.is_capped()),
            keys: self.policies.shape().keys(),
            is_asking: self.share == SlotShare::Arriving,
            fill,
        }
    }

    /// Adds the arguments that checks of the same policies, costs and tag share.
    pub(super) fn add_arguments(&self, server: &Server, command: &mut Cmd) {
        command.arg(&*protocol::pack(server.now(), self.charge.borrow(), &self.policies));
        if self.policies.is_tagged() {
            command.arg(&*self.tag);
        }
    }

    /// Returns whether there is a reply, or no caller that waits for one.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns whether there is a time at which the check ends.
    pub(super) fn has_end(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline.instant().is_some())
    }

    /// Returns the text that the policy at this place meters, and its hash: two checks may share a state only if they
    /// have such a text in common. `None` when a policy before it meters the same text, or when there is no such policy.
    pub(super) fn metered(&self, at: usize) -> Option<(u64, &[u8])> {
        if !self.policies.meters_parts() && !self.key.has_branches() {
            return (at == 0).then(|| (self.hash.whole, self.key.as_bytes()));
        }
        let policies = self.policies.shared();
        let policy = policies.get(at)?;
        if policies[..at].iter().any(|other| other.reach() == policy.reach()) {
            return None;
        }
        let level = policy.metered(&self.key);
        let hash = match policy.reach() {
            0 if !self.key.has_branches() => self.hash.whole,
            1 => self.hash.outermost,
            _ => level.hash(&self.hash.hasher),
        };
        Some((hash, level.as_bytes()))
    }

    /// Returns the key whose slot is that of the check: the branch that the first policy meters.
    pub(in crate::redis) fn routed_key(&self) -> &Key {
        self.policies.first_branch(&self.key)
    }

    /// Returns the hash by which the checks of a key are counted. All keys below one outermost level count as one. Of
    /// a key with branches, the first one counts.
    pub(super) fn key_hash(&self) -> u64 {
        self.hash.outermost
    }

    /// Returns whether the answer comes too late for a check that is sent now, and would not have been too late for one
    /// that did not wait.
    pub(super) fn has_waited_too_long(&self, now: Instant, round_trip: Duration) -> bool {
        self.deadline.is_some_and(|deadline| {
            deadline.timeout() > round_trip && deadline.instant().is_some_and(|end| end < now + round_trip)
        })
    }

    /// Returns whether the script decides both checks in one place: they have the same key and policies, and both have
    /// ceilings or none. Where the tag is stored, they also have the same tag and costs.
    pub(super) fn is_same_subject(&self, other: &Self) -> bool {
        self.key == other.key
            && self.share == other.share
            && self.is_capped() == other.is_capped()
            && self.policies.is_same(&other.policies)
            && (!self.policies.is_tagged() || (self.charge == other.charge && self.tag == other.tag))
    }

    /// Returns whether both checks read or write the same state, if the [text](Self::metered) that the policy at `place`
    /// meters is that of the policy at `other_place`.
    pub(super) fn shares_state(&self, place: usize, other: &Self, other_place: usize) -> bool {
        let reach = |request: &Self, at: usize| request.policies.shared()[at].reach();
        let reaches = (reach(self, place), reach(other, other_place));
        (reaches.0 == reaches.1 && self.policies.is_same(&other.policies))
            || self.policies.shares_state(&other.policies, reaches)
    }

    /// Returns whether one call names the policies, the costs and the tag of both checks once.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        self.charge == other.charge
            && self.share == other.share
            && self.is_tagged_alike(other)
            && self.policies.is_same(&other.policies)
    }

    /// Compares the tags. Most are empty, and a comparison of two empty slices takes the processor longer than all the
    /// other fields: it reads masked words at an address that is not mapped.
    fn is_tagged_alike(&self, other: &Self) -> bool {
        self.tag.len() == other.tag.len() && (self.tag.is_empty() || self.tag == other.tag)
    }

    /// A panic cannot leave a partial reply behind this lock, so a poisoned lock is used as it is.
    fn reply(&self) -> MutexGuard<'_, Reply> {
        self.reply.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn end(&self, end: Reply) {
        let mut reply = self.reply();
        if let Reply::Awaited(waker) = &mut *reply {
            let waker = waker.take();
            *reply = end;
            drop(reply);
            self.is_over.store(true, Ordering::Relaxed);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Creates the error of a check that would be answered too late, because others wait before it.
pub(super) fn overloaded(wait: Duration) -> Error {
    Error::new(
        ErrorKind::Overloaded,
        format!("the answer of redis would take {wait:?}, because many checks wait for it"),
    )
}

/// Creates the error of a check behind the most that may wait.
pub(super) fn crowded(most: usize) -> Error {
    Error::new(ErrorKind::Overloaded, format!("the queue is full: {most} checks wait for redis"))
}

/// Returns the two sides of a request.
pub(super) fn channel(request: Arc<CheckRequest>) -> (ReplySender, ReplyReceiver) {
    (ReplySender(Arc::clone(&request)), ReplyReceiver(request))
}

impl ReplySender {
    pub(super) fn request(&self) -> &Arc<CheckRequest> {
        &self.0
    }

    /// Returns whether the caller still waits.
    pub(super) fn is_awaited(&self) -> bool {
        !self.0.is_over()
    }

    /// Replies. A caller that gave up meanwhile gets nothing.
    pub(super) fn send(self, reply: Result<Decision, Error>) {
        self.0.end(Reply::Given(reply));
    }

    /// Ends the request without a reply. The caller has the outcome already.
    pub(super) fn finish(&self) {
        *self.0.reply() = Reply::Over;
    }

    /// Replies with the error of a call.
    pub(super) fn fail(self, error: CallError) {
        self.0.end(match error {
            CallError::NotExecuted(not_executed) => Reply::NotExecuted(not_executed),
            CallError::Failed(error) => Reply::Given(Err(error)),
        });
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        self.0.end(Reply::Over);
    }
}

impl Queued for QueuedCheck {
    fn breaker_epoch(&self) -> u64 {
        self.breaker_epoch
    }

    fn key_hash(&self) -> u64 {
        self.sender.request().key_hash()
    }
}

impl Future for ReplyReceiver {
    type Output = Result<Result<Decision, Error>, NoReply>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut reply = self.0.reply();
        match &mut *reply {
            Reply::Awaited(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            Reply::Given(_) | Reply::NotExecuted(_) => match std::mem::replace(&mut *reply, Reply::Over) {
                Reply::Given(reply) => Poll::Ready(Ok(reply)),
                Reply::NotExecuted(not_executed) => Poll::Ready(Err(NoReply::NotExecuted(not_executed))),
                _ => Poll::Ready(Err(NoReply::Dropped)),
            },
            Reply::Over => Poll::Ready(Err(NoReply::Dropped)),
        }
    }
}

impl ReplyReceiver {
    pub(super) fn request(&self) -> &Arc<CheckRequest> {
        &self.0
    }
}

impl Drop for ReplyReceiver {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for CheckRequest {
    /// Leaves out the key and the tag: both may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckRequest")
            .field("policies", &self.policies)
            .field("charge", &self.charge)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
