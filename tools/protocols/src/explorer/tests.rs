use super::{walk::MAX_STEPS, *};

/// Two hands that hold coins out of a box, which may be put back.
struct Coins {
    in_all: u8,
    allowed: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Move {
    Take(usize),
    PutBack(usize),
}

impl Protocol for Coins {
    type State = [u8; 2];
    type Step = Move;

    fn begin(&self) -> Self::State {
        [0; 2]
    }

    fn steps(&self, _: &Self::State, steps: &mut Vec<Move>) {
        steps.extend((0..2).flat_map(|hand| [Move::Take(hand), Move::PutBack(hand)]));
    }

    fn after(&self, state: &Self::State, step: &Move) -> Option<Self::State> {
        let mut after = *state;
        match *step {
            Move::Take(_) if state.iter().sum::<u8>() == self.in_all => return None,
            Move::Take(hand) => after[hand] += 1,
            Move::PutBack(hand) => after[hand] = state[hand].checked_sub(1)?,
        }
        after.sort_unstable();
        Some(after)
    }

    fn weight(&self, _: &Move) -> u64 {
        1
    }

    fn invariants() -> &'static [Invariant<Self>] {
        &[
            Invariant {
                name: "no hand holds more than allowed",
                holds: |coins, hands| hands.iter().all(|held| *held <= coins.allowed),
            },
            Invariant {
                name: "both hands hold less than all",
                holds: |coins, hands| hands.iter().sum::<u8>() <= coins.in_all,
            },
        ]
    }
}

/// The pairs of at most four coins whose order does not matter: 0+0, 0+1, 1+1, 0+2, …
#[test]
fn each_state_is_counted_once_whatever_the_order_of_equal_parts() {
    let coins = Coins {
        in_all: 4,
        allowed: 4,
    };
    let explored = explore(&coins, Limits::default());
    assert!(explored.is_complete && explored.violation.is_none());
    assert_eq!((explored.states, explored.depth), (9, 4));
}

#[test]
fn a_violation_comes_with_a_shortest_way_to_it() {
    let coins = Coins {
        in_all: 4,
        allowed: 2,
    };
    let explored = explore(&coins, Limits::default());
    let violation = explored.violation.expect("three coins in one hand");
    assert_eq!(violation.invariant, "no hand holds more than allowed");
    assert_eq!(violation.path.len(), 3);
    let mut state = coins.begin();
    for step in &violation.path {
        state = coins.after(&state, step).expect("a possible step");
    }
    assert_eq!(state, [0, 3]);
    assert!(!explored.is_complete);
}

#[test]
fn an_exploration_to_a_depth_is_not_complete_and_tests_its_last_states() {
    let coins = Coins {
        in_all: 4,
        allowed: 2,
    };
    let to = |depth| {
        let limits = Limits {
            depth: Some(depth),
            ..Limits::default()
        };
        explore(&coins, limits)
    };
    let explored = to(2);
    assert_eq!((explored.states, explored.depth), (4, 2));
    assert!(!explored.is_complete && explored.violation.is_none());
    assert!(to(3).violation.is_some());
}

#[test]
fn one_invariant_may_be_tested_alone() {
    let coins = Coins {
        in_all: 4,
        allowed: 2,
    };
    let limits = Limits {
        only: Some("both hands hold less than all"),
        ..Limits::default()
    };
    assert!(explore(&coins, limits).violation.is_none());
}

#[test]
fn walks_find_what_an_exploration_finds_and_repeat_for_a_seed() {
    let coins = |allowed| Coins { in_all: 4, allowed };
    let holds = |_: &Coins, hands: &[u8; 2]| hands[1] > 0;
    let walked = walk(1, 5, |_| coins(4), holds);
    assert_eq!((walked.runs, walked.steps), (5, 5 * MAX_STEPS as u64));
    assert!(walked.met > 0 && walked.violation.is_none());
    let violation = || {
        walk(1, 5, |_| coins(2), holds)
            .violation
            .expect("three coins")
    };
    assert_eq!(violation().invariant, "no hand holds more than allowed");
    assert_eq!(violation().path, violation().path);
}
