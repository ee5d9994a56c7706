//! Runs the requests of a trace against rules, on a store and a clock of its own.
//! Descriptors are made in `source.rs`, counts are kept in `tally.rs`.

use std::{collections::HashMap, num::NonZeroUsize, ptr, sync::Arc};

use tollgate::{MemoryStore, store::Clock};
use tollgate_rules::{Code, Rule, RuleLimiter, RuleSet, Rules, Treatment};

use super::{missing::Missing, source::Source, tally::Tally};
use crate::{failure::Failure, trace::Request};

/// The most states of the store. A full store drops states, and then denies less than the real one.
const MAX_STATES: NonZeroUsize = NonZeroUsize::new(1 << 20).expect("not zero");

/// The most requests that are held to suggest quotas.
const MAX_EVENTS: u64 = 10_000_000;

/// Decides requests as the rules would have done at their times.
pub(crate) struct Simulator {
    rules: Arc<RuleSet>,
    domain: String,
    source: Source,
    pub(super) missing: Missing,
    limiter: RuleLimiter,
    clock: Clock,
    store: MemoryStore,
    has_events: bool,
    /// The index of each rule in `tallies`, by its address.
    indices: HashMap<usize, usize>,
    pub(super) tallies: Vec<Tally>,
    pub(super) totals: Totals,
}

/// Counts whole requests.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) requests: u64,
    pub(super) denied: u64,
    /// Requests without a descriptor.
    pub(super) without_descriptor: u64,
    /// Requests from which no descriptors can be made, and the reason of the first one.
    pub(super) unusable: u64,
    pub(super) first_unusable: Option<String>,
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    /// The store was so full that it may have dropped states.
    pub(super) is_approximate: bool,
}

impl Simulator {
    /// Creates a simulator. With `has_events`, the requests of each rule are held, to suggest
    /// quotas.
    pub(crate) fn new(set: RuleSet, domain: &str, source: Source, has_events: bool) -> Self {
        let clock = Clock::manual(0);
        let store = MemoryStore::builder()
            .max_keys(MAX_STATES)
            .clock(clock.clone())
            .build();
        let rules = Rules::new(set);
        Self {
            rules: rules.current(),
            domain: domain.to_owned(),
            missing: Missing::of(&source),
            source,
            limiter: RuleLimiter::new(rules, store.clone()),
            clock,
            store,
            has_events,
            indices: HashMap::new(),
            tallies: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Decides a request. Requests must come in the order of their times.
    pub(crate) async fn request(&mut self, request: &Request) -> Result<(), Failure> {
        if self.totals.requests == 0 {
            self.begin(request.time_us);
        }
        self.totals.requests += 1;
        self.totals.last_us = request.time_us;
        self.clock.set(request.time_us);
        self.missing.look_at(request);
        let descriptors = match self.source.descriptors(request) {
            Ok(descriptors) => descriptors,
            Err(reason) => {
                self.totals.unusable += 1;
                self.totals.first_unusable.get_or_insert(reason);
                return Ok(());
            }
        };
        if descriptors.is_empty() {
            self.totals.without_descriptor += 1;
            return Ok(());
        }
        let rules = Arc::clone(&self.rules);
        let plan = rules
            .plan(&self.domain, &descriptors, 1)
            .map_err(Failure::new)?;
        let decision = self
            .limiter
            .check(&self.domain, &descriptors, 1)
            .await
            .map_err(Failure::new)?;
        self.totals.denied += u64::from(decision.is_denied());
        for (planned, status) in plan.iter().zip(decision.verdict().statuses()) {
            let Some(found) = planned.found() else {
                continue;
            };
            let Some(index) = self.indices.get(&address(found.rule())) else {
                continue;
            };
            let tally = &mut self.tallies[*index];
            match planned.treatment() {
                Treatment::Charged | Treatment::Unlimited => {
                    let is_denied = status.code() == Code::OverLimit || status.usage().shadow > 0;
                    tally.add(request.time_us, is_denied, found.key());
                }
                Treatment::Replaced => tally.replaced += 1,
                // The network of the client decides, so the request does not reach the rule.
                _ => {}
            }
        }
        if self.totals.requests.is_multiple_of(1 << 14) {
            self.check_room()?;
        }
        Ok(())
    }

    /// Begins the time of all rules, also of those that no request will match.
    fn begin(&mut self, start_us: u64) {
        self.totals.first_us = start_us;
        let rules = Arc::clone(&self.rules);
        for rule in rules.rules() {
            self.indices.insert(address(rule), self.tallies.len());
            self.tallies
                .push(Tally::new(rule, start_us, self.has_events));
        }
    }

    fn check_room(&mut self) -> Result<(), Failure> {
        self.totals.is_approximate |= self.store.len() > MAX_STATES.get() / 4 * 3;
        let events = self
            .tallies
            .iter()
            .filter_map(|tally| tally.events.as_ref())
            .map(|events| events.all.len() as u64);
        if events.sum::<u64>() > MAX_EVENTS {
            return Err(Failure::new(format_args!(
                "--suggest holds at most {MAX_EVENTS} requests in memory, use a shorter part of the trace"
            )));
        }
        Ok(())
    }
}

/// Returns the address of a rule, which stands for it as long as the set is held.
fn address(rule: &Rule) -> usize {
    ptr::from_ref(rule).addr()
}
