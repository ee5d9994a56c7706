//! Random walks, for settings with more states than can be visited.
//! The exploration of all states is in `mod.rs`.

use super::{Protocol, Violation};

/// The most steps of a walk.
pub(super) const MAX_STEPS: usize = 400;

/// The outcome of random walks.
#[derive(Clone, Debug)]
pub struct Walked<S> {
    /// The number of walks.
    pub runs: u64,
    /// The number of steps of all of them.
    pub steps: u64,
    /// The walks after which a condition was met.
    pub met: u64,
    /// The first state that violates an invariant.
    pub violation: Option<Violation<S>>,
}

/// Takes random steps from the beginning until none is possible, again and again, and ends at the
/// first state that violates an invariant.
///
/// `begin` chooses the protocol of each walk by a random number, for example without some of the
/// faults. `meets` is asked about the last state of each walk, so that a caller knows that they do
/// something.
#[must_use]
pub fn walk<P: Protocol>(
    seed: u64,
    runs: u64,
    begin: impl Fn(u64) -> P,
    meets: impl Fn(&P, &P::State) -> bool,
) -> Walked<P::Step> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut walked = Walked {
        runs: 0,
        steps: 0,
        met: 0,
        violation: None,
    };
    while walked.runs < runs {
        walked.runs += 1;
        let protocol = begin(random.next() >> 20);
        let (mut state, mut path, mut steps) = (protocol.begin(), Vec::new(), Vec::new());
        while path.len() < MAX_STEPS {
            steps.clear();
            protocol.steps(&state, &mut steps);
            let Some((step, after)) = taken(&protocol, &state, &mut steps, &mut random) else {
                break;
            };
            (state, walked.steps) = (after, walked.steps + 1);
            path.push(step);
            let mut invariants = P::invariants().iter();
            if let Some(violated) =
                invariants.find(|invariant| !(invariant.holds)(&protocol, &state))
            {
                walked.violation = Some(Violation {
                    invariant: violated.name,
                    path,
                });
                return walked;
            }
        }
        walked.met += u64::from(meets(&protocol, &state));
    }
    walked
}

/// Takes one of the steps, by their weights. `None` when none of them is possible.
fn taken<P: Protocol>(
    protocol: &P,
    state: &P::State,
    steps: &mut Vec<P::Step>,
    random: &mut Random,
) -> Option<(P::Step, P::State)> {
    while !steps.is_empty() {
        let sum: u64 = steps.iter().map(|step| protocol.weight(step)).sum();
        let mut left = random.next() % sum;
        let at = steps.iter().position(|step| {
            let weight = protocol.weight(step);
            let is_here = left < weight;
            left = left.saturating_sub(weight);
            is_here
        });
        let step = steps.swap_remove(at?);
        if let Some(after) = protocol.after(state, &step) {
            return Some((step, after));
        }
    }
    None
}

/// Generates random numbers (xorshift), the same ones for a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
