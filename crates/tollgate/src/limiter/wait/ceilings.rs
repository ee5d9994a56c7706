//! The ceilings of a check that may wait: the decision refuses a caller whose turn would come too late.

use std::time::Duration;

use crate::{
    Algorithm, Cost, PolicySet,
    clock::micros,
    model::{Ceiling, cost::Charge},
};

/// Returns the charge of a request that waits for `max_wait` at most, under the ceilings that follow from it.
///
/// A queue takes the request when all that is in it leaves in time. A bucket goes into debt for it when the debt is
/// paid in time, if it [can](can_owe).
pub(super) fn waiting(policies: &PolicySet, charge: &Charge, max_wait: Duration) -> Charge {
    let owes = can_owe(policies);
    under(policies, charge, max_wait, |algorithm| owes && algorithm.has_burst())
}

/// Returns the charge of a request that waits for its turn in a queue for `max_wait` at most, and in no debt.
pub(crate) fn queueing(policies: &PolicySet, charge: &Charge, max_wait: Duration) -> Charge {
    under(policies, charge, max_wait, |_| false)
}

fn under(policies: &PolicySet, charge: &Charge, max_wait: Duration, owes: impl Fn(Algorithm) -> bool) -> Charge {
    let (asked, wait_us) = (charge.borrow(), micros(max_wait));
    let ceiling = |at: usize, algorithm: Algorithm, burst: u64| match algorithm {
        _ if algorithm.is_queue() => Ceiling::units_of(asked.of(at).units()).within_us(wait_us),
        _ if owes(algorithm) => Ceiling::units_of(burst).within_us(wait_us),
        _ => Ceiling::units_of(burst),
    };
    let each = policies.iter().enumerate();
    let ceilings = each.map(|(at, policy)| ceiling(at, policy.algorithm(), policy.quota_ref().burst()));
    let is_needed = |policy: &crate::Policy| policy.algorithm().is_queue() || owes(policy.algorithm());
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
