//! The ceilings of a check that may wait: the decision refuses a caller whose turn would come too late.

use std::time::Duration;

use crate::{
    Algorithm, Cost, Policy, PolicySet,
    clock::micros,
    model::{Ceiling, cost::Charge},
};

/// Returns the charge of a request that waits for `max_wait` at most, under the ceilings that follow from it.
///
/// A queue takes the request when all that is in it leaves in time. A bucket goes into debt for it when the debt is
/// paid in time, if it [can](can_owe). A request of a priority goes into no debt: it would take the share of others.
pub(super) fn waiting(policies: &PolicySet, charge: &Charge, max_wait: Duration) -> Charge {
    let owes = !charge.borrow().is_capped() && can_owe(policies);
    under(policies, charge, max_wait, |algorithm| owes && algorithm.has_burst())
}

/// Returns the charge of a request that waits for its turn in a queue for `max_wait` at most, and in no debt.
pub(crate) fn queueing(policies: &PolicySet, charge: &Charge, max_wait: Duration) -> Charge {
    under(policies, charge, max_wait, |_| false)
}

fn under(policies: &PolicySet, charge: &Charge, max_wait: Duration, owes: impl Fn(Algorithm) -> bool) -> Charge {
    let (asked, wait_us) = (charge.borrow(), micros(max_wait));
    let ceiling = |at: usize, policy: &Policy| {
        let (algorithm, quota) = (policy.algorithm(), policy.quota_ref());
        let in_time = Ceiling::units_of(asked.of(at).units()).within_us(wait_us);
        match asked.ceiling(at) {
            // The place in the queue is within the share of the priority, and within the wait.
            Some(share) if algorithm.is_queue() => share.lower_of(in_time, quota),
            Some(share) => share,
            None if algorithm.is_queue() => in_time,
            None if owes(algorithm) => Ceiling::units_of(quota.burst()).within_us(wait_us),
            None => Ceiling::units_of(quota.burst()),
        }
    };
    let ceilings = policies.iter().enumerate().map(|(at, policy)| ceiling(at, policy));
    let is_needed = |policy: &Policy| policy.algorithm().is_queue() || owes(policy.algorithm());
    match asked.cost > Cost::ZERO && policies.iter().any(is_needed) {
        true => charge.under(ceilings),
        false => charge.clone(),
    }
}

/// Returns whether a request may go into the debt of all policies together.
///
/// The units of a debt are charged now and used later. Several buckets have to give them out in one order and one by
/// one, so that each of them keeps its bound. A window counts units when they are charged, and units that were leased
/// are spent without a look at the debt.
fn can_owe(policies: &PolicySet) -> bool {
    let is_alone = policies.len() == 1;
    let reach = policies.shared()[0].reach();
    !policies.is_leased()
        && policies.iter().all(|policy| {
            let algorithm = policy.algorithm();
            let owes = algorithm.has_burst() && !algorithm.is_queue();
            owes && (is_alone || algorithm.is_continuous() && policy.reach() == reach)
        })
}
