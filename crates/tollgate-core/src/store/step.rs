//! The step from states to decisions over several policies: all are charged, or none. Every store
//! that decides in Rust takes it.
//! What a single policy does is in `algorithm/`; where states lie is known to each store.
//! Redis has the same step as a script.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_model::{
    Entry,
    algorithm::{Advanced, PolicyLevel, Refund, State, numbers},
    raw::{Cascade, Charge, DecisionParts, PolicyLevels, PolicyParts, PolicySetParts},
};

use super::{
    Check, ReservationId, Settlement,
    check::CheckParts,
    reservation::{Adjustment, Record, Reserved},
};
use crate::{Cost, Decision, Policy};

/// Has the states of a key, and its reservations. Nobody else changes them during a step.
///
/// `at` is the place of the policy in the set of the check. The place of a stored state holds until
/// a state is [set](Self::set) that had none, or [removed](Self::remove).
pub(crate) trait States {
    /// Returns the place of the state of a policy.
    fn find(&mut self, at: usize, policy: &Policy) -> Option<usize>;

    /// Returns a stored state, and the [interval](Policy::interval_us) of the policy that stored it, if
    /// this policy has another one.
    ///
    /// A state that was moved out is put back here. Nothing else may be changed.
    fn state(
        &mut self,
        at: usize,
        policy: &Policy,
        place: usize,
    ) -> Option<(&mut State, Option<f64>)>;

    /// Stores a state that has changed, at its place if it has one.
    fn set(
        &mut self,
        at: usize,
        policy: &Arc<Policy>,
        place: Option<usize>,
        state: State,
        stored_interval: Option<f64>,
        now_us: u64,
    );

    fn remove(&mut self, at: usize, policy: &Policy);

    /// Returns the record of a reservation that has not lapsed.
    fn record(&mut self, check: Check<'_>, id: &ReservationId, now_us: u64) -> Option<Record>;

    fn set_record(&mut self, check: Check<'_>, id: &ReservationId, record: Record);
}

/// A state that was loaded for a check.
struct Loaded {
    place: Option<usize>,
    advanced: Advanced,
    fits: bool,
    /// The state is stored. When it is not, a state that was moved out is put back unchanged.
    is_written: bool,
}

/// Decides over all policies of the check, and charges all or none. The charge of a reservation is
/// remembered, because its commit may return units late.
pub(crate) fn check(
    states: &mut impl States,
    check: Check<'_>,
    now_us: u64,
    is_reserved: bool,
) -> PolicyLevels {
    // All states are loaded and tried before one is changed: a policy that denies must not cost the
    // others anything.
    let policies = check.policies.shared();
    let mut loaded: SmallVec<[Loaded; 4]> = policies
        .iter()
        .enumerate()
        .map(|(at, policy)| {
            let place = states.find(at, policy);
            let advanced = match place.and_then(|place| states.state(at, policy, place)) {
                Some((state, interval)) => state.advance(policy, interval, now_us),
                // A fresh state has the time 0, and a charge needs it at this time.
                None => State::fresh(policy.algorithm()).advance(policy, None, now_us),
            };
            let fits = advanced.state.fits(policy, now_us, check.charge().ask(at));
            Loaded {
                place,
                advanced,
                fits,
                is_written: false,
            }
        })
        .collect();
    let is_admitted = loaded.iter().all(|loaded| loaded.fits);
    let levels = PolicyLevels::collect(policies.iter().zip(&mut loaded).enumerate().map(
        |(at, (policy, loaded))| {
            let (cost, ask) = (
                check.cost_of(at).units(),
                check.charge().ask(at).denied_unless(loaded.fits),
            );
            let is_free = !loaded.fits || cost == 0;
            let stored = loaded
                .place
                .filter(|_| is_free)
                .and_then(|place| states.state(at, policy, place));
            let as_stored = stored.and_then(|(state, interval)| {
                state.reading_as_stored(policy, interval?, now_us, ask)
            });
            let Loaded {
                advanced: Advanced { state, mended },
                fits,
                is_written,
                ..
            } = loaded;
            let is_charged = is_admitted && cost > 0;
            if is_charged {
                // Before the reading is taken: that of an admitted check includes its charge.
                state.charge(policy, now_us, cost, check.tag);
                if is_reserved {
                    state.remember(now_us);
                }
            }
            // A peek changes no stored state.
            *is_written = is_charged || (*mended && cost > 0);
            let reading = as_stored.unwrap_or_else(|| state.reading(policy, now_us, ask));
            (
                &**policy,
                PolicyLevel {
                    fits: *fits,
                    reading,
                },
            )
        },
    ));
    write(states, policies, loaded, now_us);
    levels
}

/// Stores the states that were charged or mended, and puts back the states that were moved out.
fn write(
    states: &mut impl States,
    policies: &[Arc<Policy>],
    loaded: SmallVec<[Loaded; 4]>,
    now_us: u64,
) {
    // New states are stored last, because that may move the other states.
    let mut new = SmallVec::<[_; 4]>::new();
    for (at, (policy, loaded)) in policies.iter().zip(loaded).enumerate() {
        let Loaded {
            place,
            advanced: Advanced { mut state, mended },
            is_written,
            ..
        } = loaded;
        if is_written {
            // The reading was taken as if it were none.
            state.note_debt(policy, None, now_us);
            match place {
                Some(_) => states.set(at, policy, place, state, None, now_us),
                None => new.push((at, policy, state)),
            }
        } else if !mended
            && state.is_moved()
            && let Some((stored, _)) = place.and_then(|place| states.state(at, policy, place))
        {
            // A mended state does not go back: it is a copy, and the stored one was not moved.
            *stored = state;
        }
    }
    for (at, policy, state) in new {
        states.set(at, policy, None, state, None, now_us);
    }
}

/// Returns what [`check`] would decide, and changes nothing.
pub(crate) fn look(states: &mut impl States, check: Check<'_>, now_us: u64) -> PolicyLevels {
    let each = check.policies.shared().iter().enumerate();
    PolicyLevels::collect(each.map(|(at, policy)| {
        let ask = check.charge().ask(at);
        let place = states.find(at, policy);
        let stored = place.and_then(|place| states.state(at, policy, place));
        // A copy, because advancing may move the state out, and a look stores nothing.
        let stored = stored.map(|(state, interval)| (state.looked_at(), interval));
        let state = match stored.clone() {
            Some((mut state, interval)) => state.advance(policy, interval, now_us).state,
            None => {
                State::fresh(policy.algorithm())
                    .advance(policy, None, now_us)
                    .state
            }
        };
        let fits = state.fits(policy, now_us, ask);
        let as_stored = stored
            .filter(|_| !fits || ask.cost == 0)
            .and_then(|(state, interval)| state.reading_as_stored(policy, interval?, now_us, ask));
        let reading =
            as_stored.unwrap_or_else(|| state.reading(policy, now_us, ask.denied_unless(fits)));
        (&**policy, PolicyLevel { fits, reading })
    }))
}

/// Refunds the cost of `check`, which was spent at `spent_us`. `decision` has the places in a
/// queue.
pub(crate) fn refund(
    states: &mut impl States,
    check: Check<'_>,
    now_us: u64,
    spent_us: u64,
    decision: Option<&Decision>,
) {
    change(states, check, now_us, spent_us, |at| {
        let cost = check.cost_of(at).units();
        let ahead = || decision.and_then(|decision| decision.ahead_of(at));
        // A decision has the end of its places as a time from then on, and a state has it by the
        // clock.
        let end = || ahead().map(|(whole, part)| (spent_us + whole, part));
        if cost == 0 {
            Adjustment::None
        } else {
            Adjustment::Refund(cost, end())
        }
    });
}

/// Divides the cost of a check over what its policies have left.
fn divide(states: &mut impl States, check: Check<'_>, cascade: Cascade, now_us: u64) -> Charge {
    // What each policy has left decides how the cost is divided, and has to be known before any is
    // charged.
    let peek = Check {
        cost: Cost::ZERO,
        each: None,
        ..check
    };
    let levels = look(states, peek, now_us);
    let left = levels
        .iter(check.policies)
        .map(|(policy, level)| numbers(policy, &level, 0).remaining);
    let left: SmallVec<[u64; 4]> = left.collect();
    check.charge().divided_over(cascade, &left)
}

/// Decides a check and records what it charges, or repeats the answer of the reservation that is
/// held.
pub(crate) fn reserve(
    states: &mut impl States,
    check: Check<'_>,
    id: &ReservationId,
    life_us: u64,
    now_us: u64,
) -> Reserved {
    // A repeated request is charged once, and gets the answer of the first.
    if let Some(record) = states.record(check, id, now_us) {
        return record.repeated(check);
    }
    let divided = check
        .charge()
        .cascade()
        .map(|cascade| divide(states, check, cascade, now_us));
    let check = divided
        .as_ref()
        .map_or(check, |charge| check.with_charge(charge));
    let levels = self::check(states, check, now_us, true);
    // A denial charged nothing, so a repeated request is decided anew.
    if levels.fit() {
        states.set_record(check, id, Record::new(check, &levels, now_us, life_us));
    }
    Reserved {
        levels,
        charge: check.charge().to_owned(),
        at_us: now_us,
    }
}

/// Settles a reservation at the costs of `check`, by the commit of this number.
pub(crate) fn commit(
    states: &mut impl States,
    check: Check<'_>,
    id: &ReservationId,
    number: u64,
    now_us: u64,
) -> Settlement {
    let Some(mut record) = states.record(check, id, now_us) else {
        return Settlement::Lapsed;
    };
    // The record stays as a tombstone: a commit that is repeated because its answer was lost finds
    // it, and changes nothing.
    let settlement = record.settlement(number);
    if record.settled_by == 0 {
        record.settled_by = number;
        states.set_record(check, id, record.clone());
        change(states, check, now_us, record.at_us, |at| {
            record.change(at, &check.policies.shared()[at], check.cost_of(at))
        });
    }
    settlement
}

/// Changes the states of a check. What is refunded was spent at `spent_us`. A state that is fresh
/// then is removed.
fn change(
    states: &mut impl States,
    check: Check<'_>,
    now_us: u64,
    spent_us: u64,
    change: impl Fn(usize) -> Adjustment,
) {
    for (at, policy) in check.policies.shared().iter().enumerate() {
        let change = change(at);
        if change == Adjustment::None {
            continue;
        }
        let place = states.find(at, policy);
        let stored = place.and_then(|place| states.state(at, policy, place));
        let mut fresh = State::fresh(policy.algorithm());
        let (stored, interval) = stored.unwrap_or((&mut fresh, None));
        // The policy is that of the decision, and may have been changed since. An open window is
        // read by the period with which it was opened.
        let own = interval.and_then(|interval| stored.adjusted_under(policy, interval, now_us));
        let own = own.map(Arc::new);
        let policy = own.as_ref().unwrap_or(policy);
        // Not advanced: that would cut what others have spent under a higher quota.
        let mut state = stored.adjustable(policy, now_us);
        let interval = interval.filter(|_| own.is_some() || state.keeps_interval(now_us));
        let is_written = match change {
            Adjustment::None => false,
            Adjustment::Owe(cost) => state.owe(policy, interval, now_us, cost),
            Adjustment::Refund(cost, end) => state.refund(&Refund {
                policy,
                stored_interval: interval,
                now_us,
                spent_us,
                cost,
                end,
            }),
        };
        if is_written {
            state.note_debt(policy, interval, now_us);
            if state.fresh_at(policy) > now_us {
                states.set(at, policy, place, state, interval, now_us);
            } else if place.is_some() {
                // A missing state reads as a fresh one, and takes no memory.
                states.remove(at, policy);
            }
        } else if let Some((stored, _)) = place.and_then(|place| states.state(at, policy, place))
            && state.is_moved()
            && !stored.is_moved()
        {
            // The entries that were moved out go back. A mended copy does not: the stored state
            // still has its own.
            *stored = state;
        }
    }
}

/// Lists up to `limit` units that the log at this place of the set counts, newest first.
pub(crate) fn entries(
    states: &mut impl States,
    (at, log): (usize, &Policy),
    now_us: u64,
    limit: usize,
) -> Vec<Entry> {
    let place = states.find(at, log);
    match place.and_then(|place| states.state(at, log, place)) {
        Some((state, _)) => {
            let entries = state.entries(log, now_us).take(limit);
            entries.map(|(at_us, tag)| Entry::new(at_us, tag)).collect()
        }
        None => Vec::new(),
    }
}

/// Removes the states that belong to the key of the check, or to one branch of it, alone.
pub(crate) fn reset(states: &mut impl States, check: Check<'_>) {
    for (at, policy) in check
        .policies
        .iter()
        .enumerate()
        .filter(|(_, policy)| policy.is_own(check.key))
    {
        states.remove(at, policy);
    }
}
