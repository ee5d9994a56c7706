//! Answers to denials, kept to be given again: who is denied keeps asking, and is told the same until a second is over.

use std::{cell::RefCell, iter::repeat_with, ptr, rc::Rc, time::Duration};

use http::response::Parts;
use tollgate::Decision;

use super::accept::Form;
use crate::{
    fields::{more_after, seconds},
    shared::Limit,
};

/// What the answer to a denial is made of: of one limit, equal ones are answered alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gist([u64; WORDS]);

/// The words before those of the policies.
const HEAD: usize = 4;

const WORDS: usize = HEAD + 2 * POLICIES;

/// Of a set of more than so many policies no answer is kept.
const POLICIES: usize = 4;

/// The head and the text of an answer.
pub(super) struct Answer {
    gist: Gist,
    pub(super) head: Parts,
    pub(super) text: Box<str>,
}

/// A place for one answer.
#[derive(Default)]
struct Slot {
    kept: Option<Rc<Answer>>,
    /// The hash of what was not found here at last.
    missed: u64,
}

/// So many answers are kept, for all limits together.
const SLOTS: usize = 64;

thread_local! {
    /// Each thread keeps its own, so that no lock and no count is fought over.
    static SLOTS_HERE: RefCell<Vec<Slot>> = const { RefCell::new(Vec::new()) };
}

impl Gist {
    /// That of a denial, but for the form, and how long it lasts. There is none where the answer depends on more.
    #[inline]
    pub(super) fn of(decision: &Decision, limit: &Limit) -> Option<(Self, Duration)> {
        let policies = limit.limiter.policies();
        if decision.is_degraded() || policies.len() > POLICIES || !limit.wording.is_steady() {
            return None;
        }
        let mut words = [0; WORDS];
        let (mut own, mut at, mut are_own) = (policies.iter(), 0, true);
        let (mut retry_after, mut exceeded, mut binding) = (None, 0, 0);
        // Not a loop around `next`, which would carry each state about.
        decision.states().for_each(|state| {
            // A store may have asked other policies than it was told.
            are_own &= own.next().is_some_and(|policy| ptr::eq(policy, state.policy()));
            if let Some(retry) = state.retry_after() {
                (exceeded, binding) = (exceeded + 1, at);
                retry_after = retry_after.max(Some(retry));
            }
            if let Some(words) = words[HEAD..].get_mut(2 * at..2 * at + 2) {
                words[0] = state.remaining() << 1 | u64::from(state.is_exceeded());
                words[1] = seconds(more_after(&state));
            }
            at += 1;
        });
        if !are_own {
            return None;
        }
        if exceeded > 1 {
            let binds = decision.binding()?.policy();
            binding = policies.iter().position(|policy| ptr::eq(policy, binds))?;
        }
        words[0] = limit.number;
        words[1] = seconds(retry_after?);
        words[2] = u64::from(decision.cost().units()) << 8 | binding as u64;
        Some((Self(words), retry_after?))
    }

    /// That of the answer in this form.
    #[inline]
    pub(super) fn in_form(mut self, form: Form) -> Self {
        self.0[3] = form as u64;
        self
    }

    /// Multiplied each for itself: they do not wait for one another.
    #[inline]
    fn hash(&self) -> u64 {
        self.0.iter().zip(FACTORS).fold(0, |hash, (word, factor)| word.wrapping_mul(factor).wrapping_add(hash))
    }
}

/// Odd numbers without a pattern.
const FACTORS: [u64; WORDS] = {
    let (mut factors, mut at) = ([0x9e37_79b9_7f4a_7c15_u64; WORDS], 1);
    while at < WORDS {
        factors[at] = factors[at - 1].wrapping_mul(0xd134_2543_de82_ef95);
        at += 1;
    }
    factors
};

/// The answer of this gist, if it is kept.
#[inline]
pub(super) fn find(gist: &Gist) -> Option<Rc<Answer>> {
    let look = |slots: &RefCell<Vec<Slot>>| {
        let slots = slots.try_borrow().ok()?;
        let answer = slots.get(place(gist.hash()))?.kept.as_ref()?;
        (answer.gist == *gist).then(|| Rc::clone(answer))
    };
    // A thread that ends keeps nothing.
    SLOTS_HERE.try_with(look).ok()?
}

/// Keeps an answer that was not found, when that happens for the second time: most are not given again.
#[cold]
pub(super) fn keep(gist: Gist, head: &Parts, text: &str) {
    let hash = gist.hash();
    let _ = SLOTS_HERE.try_with(|slots| {
        let Ok(mut slots) = slots.try_borrow_mut() else { return };
        if slots.is_empty() {
            slots.extend(repeat_with(Slot::default).take(SLOTS));
        }
        let Some(slot) = slots.get_mut(place(hash)) else { return };
        if slot.missed == hash {
            slot.kept = Some(Rc::new(Answer { gist, head: head.clone(), text: text.into() }));
        }
        slot.missed = hash;
    });
}

fn place(hash: u64) -> usize {
    (hash >> 32) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tollgate::{Limiter, MemoryStore, Policy, Quota};

    use super::*;
    use crate::{
        HeaderFormat, Reset,
        key::Global,
        rejection::Empty,
        shared::{Options, Shared},
    };

    fn kept() -> usize {
        SLOTS_HERE.with(|slots| slots.borrow().iter().filter(|slot| slot.kept.is_some()).count())
    }

    #[test]
    fn what_is_asked_for_twice_is_kept_and_never_more_than_there_are_places() {
        let (head, ()) = Response::new(()).into_parts();
        for number in 0..10_000 {
            let gist = Gist(std::array::from_fn(|at| if at == 1 { number } else { 7 }));
            assert!(find(&gist).is_none());
            keep(gist, &head, "once");
            assert!(find(&gist).is_none());
            keep(gist, &head, &number.to_string());
            assert_eq!(find(&gist).map(|answer| answer.text.to_string()), Some(number.to_string()));
        }
        assert_eq!(kept(), SLOTS);
    }

    #[test]
    fn a_minute_of_seconds_finds_places() {
        let places: std::collections::BTreeSet<_> = (1..=60)
            .map(|number| place(Gist(std::array::from_fn(|at| if at % 4 == 1 { number } else { 0 })).hash()))
            .collect();
        assert!(places.len() >= 30, "{} places", places.len());
    }

    #[test]
    fn what_tells_the_time_of_day_is_not_kept() {
        let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("daily", Quota::per_day(1)));
        let ask = || limiter.check("acme").into_ready().unwrap().unwrap();
        assert!(ask().is_allowed());
        for (reset, is_kept) in [(Reset::Seconds, true), (Reset::Epoch, false)] {
            let options = Options { dialect: HeaderFormat::Legacy { reset }, ..Options::default() };
            let shared = Shared::new(limiter.clone().into(), options, Global, Empty);
            assert_eq!(Gist::of(&ask(), &shared.limits[0]).is_some(), is_kept, "{reset:?}");
        }
    }
}
