//! Finds every state that a protocol can reach, and tests its invariants in each.
//! See `leases/` and `regions/` for the protocols.
//!
//! The search is breadth first, so a violation comes with one of the shortest ways to it. A state
//! that was seen is remembered by a hash of 64 bits alone: of ten million states two are taken for
//! one with a probability of 0.000 003. The hash has no seed, so each run counts the same states.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::{self, Debug},
    hash::{BuildHasher, Hash},
};

use foldhash::{fast, quality};

mod walk;

pub use walk::{Walked, walk};

/// Describes a protocol by its states and the steps between them.
pub trait Protocol: Sized + 'static {
    /// Everything that servers, processes and messages on their way hold.
    type State: Clone + Hash;
    /// One thing that happens.
    type Step: Clone + Debug;

    /// Returns the state before anything has happened.
    fn begin(&self) -> Self::State;

    /// Lists the steps that may be possible in a state.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);

    /// Returns the state after a step. `None` when the step is not possible, or changes nothing.
    ///
    /// States that differ in the names of equal parts alone are one: the returned one has its parts
    /// in order.
    fn after(&self, state: &Self::State, step: &Self::Step) -> Option<Self::State>;

    /// Returns how often a random walk takes a step, beside others of its state.
    fn weight(&self, step: &Self::Step) -> u64;

    /// Lists what has to hold in every state.
    fn invariants() -> &'static [Invariant<Self>];
}

/// Holds in every state of a protocol without a mistake.
pub struct Invariant<P: Protocol> {
    /// The name by which tables call it.
    pub name: &'static str,
    /// Returns whether it holds in a state.
    pub holds: fn(&P, &P::State) -> bool,
}

impl<P: Protocol> Debug for Invariant<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Says where an exploration ends, and what it tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// The most steps to a state. All states if it is `None`.
    pub depth: Option<usize>,
    /// The only invariant that is tested. All of them if it is `None`.
    pub only: Option<&'static str>,
}

/// The outcome of an exploration.
#[derive(Clone, Debug)]
pub struct Explored<S> {
    /// The number of different states.
    pub states: usize,
    /// The number of steps that were taken. Most of them lead to a state that was seen before.
    pub steps: u64,
    /// The number of steps to the last state.
    pub depth: usize,
    /// Is true when each state that can be reached was seen.
    pub is_complete: bool,
    /// The first state that violates an invariant.
    pub violation: Option<Violation<S>>,
}

/// One of the shortest ways to a state that violates an invariant.
#[derive(Clone, Debug)]
pub struct Violation<S> {
    /// The name of the invariant.
    pub invariant: &'static str,
    /// The steps from the beginning on.
    pub path: Vec<S>,
}

/// Maps the hash of each state to that of the state before it, which is that of itself for the first
/// one.
type Seen = HashMap<u64, u64, fast::FixedState>;

/// Visits the states of a protocol, and ends at the first one that violates an invariant.
///
/// # Panics
///
/// When no invariant has the name of the limits.
#[must_use]
pub fn explore<P: Protocol>(protocol: &P, limits: Limits) -> Explored<P::Step> {
    let is_tested =
        |invariant: &&Invariant<P>| limits.only.is_none_or(|only| invariant.name == only);
    let tested: Vec<_> = P::invariants().iter().filter(is_tested).collect();
    assert!(!tested.is_empty(), "no invariant is {:?}", limits.only);
    let violated = |state: &P::State| {
        tested
            .iter()
            .find(|invariant| !(invariant.holds)(protocol, state))
    };
    let first = protocol.begin();
    let (mut seen, start) = (Seen::default(), hash(&first));
    seen.insert(start, start);
    let mut explored = Explored {
        states: 1,
        steps: 0,
        depth: 0,
        is_complete: true,
        violation: violated(&first).map(|invariant| Violation {
            invariant: invariant.name,
            path: Vec::new(),
        }),
    };
    let (mut level, mut steps) = (vec![(start, first)], Vec::new());
    while explored.violation.is_none() {
        let is_last = limits
            .depth
            .is_some_and(|depth| explored.depth + 1 >= depth);
        let (mut next, before) = (Vec::new(), seen.len());
        for (from, state) in level {
            steps.clear();
            protocol.steps(&state, &mut steps);
            for after in steps.iter().filter_map(|step| protocol.after(&state, step)) {
                explored.steps += 1;
                let hash = hash(&after);
                let Entry::Vacant(place) = seen.entry(hash) else {
                    continue;
                };
                place.insert(from);
                if let Some(invariant) = violated(&after) {
                    explored.violation = Some(Violation {
                        invariant: invariant.name,
                        path: path(protocol, &seen, hash),
                    });
                    (explored.states, explored.is_complete) = (seen.len(), false);
                    explored.depth += 1;
                    return explored;
                }
                if !is_last {
                    next.push((hash, after));
                }
            }
        }
        explored.states = seen.len();
        if seen.len() == before {
            break;
        }
        explored.depth += 1;
        if is_last {
            explored.is_complete = false;
            break;
        }
        level = next;
    }
    explored
}

/// Returns the steps to the state of this hash: from one state to the next that is on the way.
fn path<P: Protocol>(protocol: &P, seen: &Seen, end: u64) -> Vec<P::Step> {
    let mut hashes = vec![end];
    let mut at = end;
    while seen[&at] != at {
        at = seen[&at];
        hashes.push(at);
    }
    let mut state = protocol.begin();
    let mut path = Vec::new();
    for next in hashes.into_iter().rev().skip(1) {
        let mut steps = Vec::new();
        protocol.steps(&state, &mut steps);
        let found = steps.into_iter().find_map(|step| {
            let after = protocol.after(&state, &step)?;
            (hash(&after) == next).then_some((step, after))
        });
        let (step, after) = found.expect("the state was reached by a step");
        state = after;
        path.push(step);
    }
    path
}

fn hash(state: &impl Hash) -> u64 {
    quality::FixedState::default().hash_one(state)
}

#[cfg(test)]
mod tests;
