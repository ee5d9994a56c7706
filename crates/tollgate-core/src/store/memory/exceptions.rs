//! The exceptions of a store in this process, and the limiters that follow them.
//! See `store/exceptions/` for what an exception is.

use crate::{
    Error,
    clock::Clock,
    lock::Lock,
    store::{
        ExceptionCall, ExceptionList, ExceptionReply, ExceptionsInForce, exceptions::WeakExceptions,
    },
};

#[derive(Default)]
pub(super) struct KeptExceptions(Lock<(ExceptionList, Vec<WeakExceptions>)>);

impl KeptExceptions {
    pub(super) fn follow(&self, exceptions: &ExceptionsInForce, clock: &Clock) {
        let mut kept = self.0.lock();
        exceptions.set(kept.0.as_slice(), clock);
        kept.1.push(exceptions.downgrade());
    }

    /// Does what a call asks for. What changes is in force when this returns.
    pub(super) fn call(
        &self,
        call: &ExceptionCall,
        clock: &Clock,
    ) -> Result<ExceptionReply, Error> {
        let mut kept = self.0.lock();
        let (list, followers) = &mut *kept;
        let now_us = clock.now_us();
        let exceptions = list.apply(call, now_us)?;
        followers.retain(|follower| {
            let follower = follower.upgrade();
            if let Some(follower) = &follower {
                follower.set(list.as_slice(), clock);
            }
            follower.is_some()
        });
        Ok(ExceptionReply::new(now_us, exceptions))
    }
}
