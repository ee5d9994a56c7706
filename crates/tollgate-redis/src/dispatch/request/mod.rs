//! A check on its way to one server: what its caller and the worker share, its call, and its reply.
//! Who sends it, and when, is decided in `sender.rs` and `worker.rs`.

use std::{
    mem,
    ops::Deref,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use redis::{Cmd, Value};

use super::queue::Queued;
use crate::{
    deny_cache::{Epoch, KeyHash},
    lease::LeaseCall,
    protocol::{self, Purpose, Script, ScriptsOf},
    server::{Call, CallError, Server},
};
use tollgate_core::{
    Decision, Error, ErrorKind, Key, PolicySet,
    raw::{ChargeRef, CheckParts, DecisionParts, Lock, PolicySetParts, runtime},
    store::{Check, Deadline, KeptCheck},
};

/// Holds a check and, later, its reply.
///
/// The caller and the worker share it in one allocation, as clones.
#[derive(Clone)]
pub(crate) struct CheckRequest(KeptCheck<Request>);

/// What the store has to know of a check.
pub(crate) struct Request {
    /// The hashes of the key.
    pub(crate) hash: KeyHash,
    pub(crate) sent: Instant,
    /// When the check was made, on the clock that decides instead of the server's.
    pub(crate) clock_us: Option<u64>,
    /// The epoch of the deny cache, taken before the check was sent. `None` without a deny cache.
    pub(crate) deny_epoch: Option<Epoch>,
    /// Connects a check of leased policies with the leased units.
    pub(crate) lease_call: Option<LeaseCall>,
    /// The part of the slot that the server has.
    pub(crate) share: SlotShare,
    /// There is a reply, or no caller that waits for one.
    is_over: AtomicBool,
    reply: Lock<Reply>,
}

/// The part of a slot that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotShare {
    /// All of it.
    Whole,
    /// Some keys, because the slot is being moved away. The server refuses a call of which it has
    /// only some keys, so each subject is a call of its own.
    Leaving,
    /// Some keys, because the slot is being moved here. The same holds, and each call says
    /// `ASKING`.
    Arriving,
}

/// The decision on a check, or the error and whether the server certainly did not execute the
/// check.
pub(crate) type CheckResult = Result<Decision, CallError>;

enum Reply {
    Awaited(Option<Waker>),
    Given(CheckResult),
    /// There will be no reply, or the caller has it.
    Over,
}

/// A check in the queue or in a batch, which has to be replied to. When it is dropped, the caller
/// gets no reply.
#[derive(Debug)]
pub(super) struct QueuedCheck {
    request: CheckRequest,
    /// The epoch of the breaker when the check was queued.
    pub(super) breaker_epoch: u64,
}

impl Deref for CheckRequest {
    type Target = Request;

    #[inline]
    fn deref(&self) -> &Request {
        self.0.data()
    }
}

impl CheckRequest {
    #[inline]
    pub(crate) fn new(
        check: Check<'_>,
        hash: KeyHash,
        deny_epoch: Option<Epoch>,
        clock_us: Option<u64>,
        lease_call: Option<LeaseCall>,
    ) -> Self {
        let uncapped;
        let check = if check.policies.is_leased() && check.charge().is_capped() {
            // Units that were granted in advance are spent without looking at what others have
            // spent.
            uncapped = check.charge().uncapped();
            check.with_charge(&uncapped)
        } else {
            check
        };
        Self(check.keep_with(Request {
            hash,
            sent: check.deadline.map_or_else(runtime::now, Deadline::start),
            clock_us,
            deny_epoch,
            lease_call,
            share: SlotShare::Whole,
            is_over: AtomicBool::new(false),
            reply: Lock::new(Reply::Awaited(None)),
        }))
    }

    /// Returns the check that the store is asked.
    #[inline]
    pub(super) fn check(&self) -> Check<'_> {
        self.0.check()
    }

    #[inline]
    pub(super) fn policies(&self) -> &PolicySet {
        self.check().policies
    }

    #[inline]
    pub(super) fn key(&self) -> &Key {
        self.check().key
    }

    #[inline]
    pub(super) fn charge(&self) -> ChargeRef<'_> {
        self.check().charge()
    }

    #[inline]
    pub(super) fn tag(&self) -> &[u8] {
        self.check().tag
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.check().deadline
    }

    /// Returns the copy of the check, which a limiter may share.
    #[inline]
    pub(crate) fn kept(&self) -> KeptCheck {
        self.0.clone().into()
    }

    /// Reads the reply to the call of this check alone.
    pub(super) fn decision(&self, value: &Value) -> CheckResult {
        // Stands for the time of a reply without one.
        let asked_us = self
            .clock_us
            .unwrap_or_else(|| Decision::here_us(self.sent));
        Ok(protocol::decision(
            self.policies(),
            self.charge(),
            asked_us,
            value,
        )?)
    }

    /// Returns the same request, to be sent to a server that has this share of its slot.
    pub(crate) fn again(&self, share: SlotShare) -> Self {
        Self(self.check().keep_with(Request {
            hash: self.hash.clone(),
            lease_call: self.lease_call.clone(),
            share,
            is_over: AtomicBool::new(false),
            reply: Lock::new(Reply::Awaited(None)),
            ..**self
        }))
    }

    /// Returns whether the check has ceilings.
    pub(super) fn is_capped(&self) -> bool {
        self.charge().is_capped()
    }

    /// Returns the script that decides this check alone.
    pub(super) fn script(&self) -> &Script {
        let shape = self.policies().shape();
        shape.script(Purpose::Check, self.is_capped())
    }

    /// Writes the call of this script.
    pub(super) fn call(&self, server: &Server, by_body: bool) -> Call {
        let fill = |command: &mut Cmd| {
            server.add_keys([(self.policies(), self.key())], command);
            self.add_arguments(server, command);
        };
        Call::of(self.script(), by_body, self.policies().shape().keys(), fill)
            .asking(self.share == SlotShare::Arriving)
    }

    /// Adds the arguments that checks of the same policies, costs and tag share.
    pub(super) fn add_arguments(&self, server: &Server, command: &mut Cmd) {
        command.arg(&*protocol::pack(
            server.now(),
            self.charge(),
            self.policies(),
        ));
        if self.policies().is_tagged() {
            command.arg(self.tag());
        }
    }

    /// Returns whether there is a reply, or no caller that waits for one.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the key whose slot is that of the check: the branch that the first policy meters.
    pub(crate) fn routed_key(&self) -> &Key {
        self.policies().first_branch(self.key())
    }

    fn end(&self, end: Reply) {
        let mut reply = self.reply.lock();
        if let Reply::Awaited(waker) = &mut *reply {
            let waker = waker.take();
            *reply = end;
            drop(reply);
            self.give_up();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Notes that no caller waits for a reply any more.
    pub(super) fn give_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits for the reply. `None` when there will be none.
    pub(super) fn poll_reply(&self, cx: &Context<'_>) -> Poll<Option<CheckResult>> {
        let mut reply = self.reply.lock();
        if let Reply::Awaited(waker) = &mut *reply {
            match waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        Poll::Ready(match mem::replace(&mut *reply, Reply::Over) {
            Reply::Given(outcome) => Some(outcome),
            Reply::Awaited(_) | Reply::Over => None,
        })
    }
}

/// Creates the error of a check that would be answered too late, because others wait before it.
pub(super) fn overloaded(wait: Duration) -> Error {
    Error::new(
        ErrorKind::Overloaded,
        format!("the answer of redis would take {wait:?}, because many checks wait for it"),
    )
}

impl QueuedCheck {
    pub(super) fn new(request: CheckRequest, breaker_epoch: u64) -> Self {
        Self {
            request,
            breaker_epoch,
        }
    }

    pub(super) fn request(&self) -> &CheckRequest {
        &self.request
    }

    /// Returns whether the caller still waits.
    pub(super) fn is_awaited(&self) -> bool {
        !self.request.is_over()
    }

    /// Replies. A caller that gave up meanwhile gets nothing.
    pub(super) fn reply(self, outcome: CheckResult) {
        self.request.end(Reply::Given(outcome));
    }
}

impl Drop for QueuedCheck {
    fn drop(&mut self) {
        if self.is_awaited() {
            self.request.end(Reply::Over);
        }
    }
}

impl Queued for QueuedCheck {
    fn breaker_epoch(&self) -> u64 {
        self.breaker_epoch
    }

    fn key_hash(&self) -> u64 {
        self.request.hash.outermost
    }
}

// Leaves out the key and the tag: both may identify a person.
tollgate_core::debug_fields! { CheckRequest: policies = .policies(), charge = .charge(), .. }

#[cfg(test)]
mod tests;
