//! Says what a layer promises for one request: the answer, and the units that are left after it.

use std::{collections::HashMap, time::Duration};

use tollgate::{Algorithm, Outage, Policy, Quota};
use tollgate_test_support::PATIENCE;
use tollgate_tower::{HeaderFormat, ResetFormat};

use super::{
    scenario::{BLOCKED, CostOption, EXEMPT, HOST, OTHER, Scenario, Settle, Source, Step},
    spent::Spent,
};

/// Holds what a client sees, and whether the service was called.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) is_called: bool,
    /// The fields that the format has, and `retry-after`.
    pub(super) fields: Vec<(&'static str, Option<String>)>,
}

/// A part of the hash of the keys that the layer enforces, which the model does not repeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enforced {
    pub(super) key: bool,
    pub(super) network: bool,
    pub(super) host: bool,
}

/// The time after which a reservation stays charged.
const TIME_TO_LIVE: Duration = Duration::from_secs(600);

/// A set and a key.
type Place = (usize, u64);

/// The units that were spent, by the set and the key, at the store and in the process.
pub(super) struct Model<'a> {
    scenario: &'a Scenario,
    /// Refunds return no more than they have to.
    is_least: bool,
    pub(super) now: u64,
    at_store: HashMap<Place, Vec<Spent>>,
    in_process: HashMap<Place, Vec<Spent>>,
}

/// One policy, and what a request asks of it.
struct Ask {
    policy: Policy,
    cost: u64,
    limit: u64,
}

impl<'a> Model<'a> {
    pub(super) fn new(scenario: &'a Scenario, now: u64, is_least: bool) -> Self {
        Self {
            scenario,
            is_least,
            now,
            at_store: HashMap::new(),
            in_process: HashMap::new(),
        }
    }

    /// Returns what each policy has left, at the store or in the process.
    pub(super) fn remaining(&mut self, place: Place, is_away: bool) -> Vec<u64> {
        let policies = self.policies(place.0, is_away);
        let now = self.now;
        let spent = self.spent(place, is_away);
        policies
            .iter()
            .zip(spent)
            .map(|(policy, spent)| spent.remaining(policy, now))
            .collect()
    }

    fn spent(&mut self, place: Place, is_away: bool) -> &mut Vec<Spent> {
        let count = self.scenario.sets[place.0].len();
        let states = if is_away {
            &mut self.in_process
        } else {
            &mut self.at_store
        };
        states
            .entry(place)
            .or_insert_with(|| vec![Spent::default(); count])
    }

    /// Returns the policies of a set. In an outage they are the share of a replica.
    fn policies(&self, set: usize, is_away: bool) -> Vec<Policy> {
        let policies = &self.scenario.sets[set];
        let replicas = match self.scenario.options.outage {
            outage if is_away && outage == Outage::local(2) => 2,
            _ => return policies.clone(),
        };
        let share = |policy: &Policy| {
            let (quota, is_bucket) = (policy.quota(), policy.algorithm().has_burst());
            let [amount, burst] =
                [quota.amount(), quota.burst()].map(|units| (units / replicas).max(1));
            // Where units come back one by one, the rate is divided exactly.
            let is_even = policy.algorithm() == Algorithm::IntervalBucket
                || quota.amount().is_multiple_of(replicas);
            let share = match is_bucket && !is_even {
                true => Quota::new(quota.amount(), quota.period() * replicas as u32),
                false => Quota::new(amount, quota.period()),
            };
            policy
                .clone()
                .with_quota(if is_bucket {
                    share.with_burst(burst)
                } else {
                    share
                })
                .expect("a policy")
        };
        policies.iter().map(share).collect()
    }

    /// Answers a request, and spends what it costs. `works` is called where the service works.
    pub(super) fn answer(&mut self, step: &Step, enforced: Enforced) -> Answer {
        let options = &self.scenario.options;
        let passes = || Answer {
            status: step.status,
            is_called: true,
            ..self.silent()
        };
        let rejects = |status| Answer {
            status,
            ..self.silent()
        };
        if options.is_layer() {
            if options.exempts && step.is_exempt {
                return self.works(step, passes());
            }
            if options.has_networks && step.network == 1 {
                return self.works(step, passes());
            }
            if options.has_networks && step.network == 2 && enforced.network {
                return rejects(403);
            }
            match (options.source, step.tier) {
                (Source::Tiers | Source::Function, EXEMPT) => return self.works(step, passes()),
                (Source::Function, BLOCKED) if step.key.is_some() && enforced.key => {
                    return rejects(429);
                }
                (Source::Function, BLOCKED) if step.key.is_some() => {
                    return self.works(step, passes());
                }
                _ => {}
            }
            if options.source == Source::Rules {
                return self.decide_by_rules(step, enforced);
            }
            let is_full = options.enforced.is_none_or(|percent| percent == 100);
            match step.key {
                None if options.or_exempt || !is_full => return self.works(step, passes()),
                None => return rejects(400),
                Some(_) => {}
            }
        }
        self.decide(step, enforced.key)
    }

    /// Answers a request that a limiter decides.
    fn decide(&mut self, step: &Step, is_enforced: bool) -> Answer {
        let (options, place) = (&self.scenario.options, self.place(step));
        let set = place.0;
        let silent = self.silent();
        let passes = Answer {
            status: step.status,
            is_called: true,
            ..silent.clone()
        };
        let whole = self.asks(step, &self.scenario.sets[set]);
        if whole.iter().any(|ask| ask.cost > ask.limit) {
            if is_enforced {
                return Answer {
                    status: 413,
                    ..silent
                };
            }
            self.charge_more(step, false);
            return self.works(step, passes);
        }
        match options.outage {
            Outage::Open if step.is_away => return self.works(step, passes),
            Outage::Closed if step.is_away && !is_enforced => return self.works(step, passes),
            Outage::Closed if step.is_away => {
                return Answer {
                    status: 503,
                    ..silent
                };
            }
            _ => {}
        }
        let mut asks = self.asks(step, &self.policies(set, step.is_away));
        // A cost that fits the whole quota and not the share spends all that the request may spend
        // of the share.
        asks.iter_mut()
            .for_each(|ask| ask.cost = ask.cost.min(ask.limit));

        let wait = self.wait_us(place, step.is_away, &asks);
        let longest = options
            .wait
            .filter(|_| options.settle != Settle::Reserve && is_enforced);
        let longest = longest.map_or(0, |longest| longest.as_micros() as u64);
        if wait > longest {
            if is_enforced {
                let is_owed = self.scenario.owes(step);
                let answer = self.answer_of(step, &asks, Some(if is_owed { longest } else { 0 }));
                return Answer {
                    status: 429,
                    is_called: false,
                    ..answer
                };
            }
            self.charge_more(step, false);
            return self.works(step, passes);
        }
        self.now += wait;
        let charges_after = options.settle == Settle::ChargeAfter && wait == 0;
        let (now, states) = (self.now, self.spent(place, step.is_away));
        let turn = asks
            .iter()
            .zip(states.iter())
            .map(|(ask, spent)| spent.turn_us(&ask.policy, now))
            .max();
        let mut entries = Vec::new();
        if !charges_after {
            entries = asks
                .iter()
                .zip(states.iter_mut())
                .map(|(ask, spent)| spent.spend(now, ask.cost))
                .collect();
        }
        let mut answer = self.answer_of(step, &asks, None);
        if wait > 0 {
            // The fields are those of the time at which it was decided to wait.
            answer
                .fields
                .retain(|(name, _)| !name.contains("ratelimit"));
        }
        self.wait(turn.unwrap_or(0), !charges_after && is_enforced);
        let answer = if is_enforced { answer } else { passes };
        self.charge_more(step, is_enforced);
        let answer = self.works(step, answer);
        self.settle(step, place, &asks, &entries);
        answer
    }

    /// Answers a request that the limits of its tenant and of its host decide. Limits that are not
    /// enforced deny nothing.
    fn decide_by_rules(&mut self, step: &Step, enforced: Enforced) -> Answer {
        let host = (step.tier == OTHER).then_some(HOST);
        let is_trial = self.scenario.options.is_trial;
        let limits = [
            (0, step.key, enforced.key && !is_trial),
            (1, host, enforced.host),
        ];
        let limits = limits
            .into_iter()
            .filter_map(|(set, key, is_enforced)| Some(((set, key?), is_enforced)));
        let (mut denied, mut never_fits, mut charged) = (0, false, Vec::new());
        for (place, is_enforced) in limits {
            let asks = self.asks(step, &self.scenario.sets[place.0]);
            if asks.iter().any(|ask| ask.cost > ask.limit) {
                never_fits |= is_enforced;
                continue;
            }
            match self.wait_us(place, false, &asks) {
                0 => charged.push((place, is_enforced, asks)),
                wait if is_enforced => denied = denied.max(wait),
                _ => {}
            }
        }
        let mut answer = Answer {
            status: 200,
            ..self.silent()
        };
        answer.fields.retain(|(name, _)| *name == "retry-after");
        if denied > 0 || never_fits {
            if self.scenario.is_in_redis && is_trial {
                self.charge_and_refund(charged);
            }
            let retry_after = (!never_fits).then(|| denied.div_ceil(1_000_000).to_string());
            answer.fields[0].1 = retry_after;
            return Answer {
                status: if never_fits { 413 } else { 429 },
                ..answer
            };
        }
        let (now, mut turn) = (self.now, 0);
        let mut settled = Vec::new();
        for (place, is_enforced, asks) in charged {
            let states = self.spent(place, false);
            let turns = asks
                .iter()
                .zip(states.iter())
                .map(|(ask, spent)| spent.turn_us(&ask.policy, now));
            turn = turn.max(turns.max().filter(|_| is_enforced).unwrap_or(0));
            let entries: Vec<_> = asks
                .iter()
                .zip(states)
                .map(|(ask, spent)| spent.spend(now, ask.cost))
                .collect();
            settled.push((place, asks, entries));
        }
        self.wait(turn, true);
        let answer = self.works(
            step,
            Answer {
                status: step.status,
                is_called: true,
                ..answer
            },
        );
        for (place, asks, entries) in settled {
            self.settle(step, place, &asks, &entries);
        }
        answer
    }

    /// Charges in one step, and refunds in another.
    fn charge_and_refund(&mut self, charged: Vec<(Place, bool, Vec<Ask>)>) {
        let now = self.now;
        for (place, _, asks) in charged {
            let unproved = self.unproved_us(&asks);
            for (ask, spent) in asks.iter().zip(self.spent(place, false)) {
                let entry = spent.spend(now, ask.cost);
                spent.refund(&ask.policy, now, entry, ask.cost, unproved);
            }
        }
    }

    /// Settles a request whose service has answered. `entries` are the charges.
    fn settle(&mut self, step: &Step, place: Place, asks: &[Ask], entries: &[usize]) {
        let (settle, now) = (self.scenario.options.settle, self.now);
        if entries.is_empty() {
            let fits = self.wait_us(place, step.is_away, asks) == 0;
            for (ask, spent) in asks
                .iter()
                .zip(self.spent(place, step.is_away))
                .filter(|_| fits && step.status == 401)
            {
                spent.spend(now, ask.cost);
            }
            return;
        }
        if settle == Settle::Reserve && step.works >= TIME_TO_LIVE {
            return;
        }
        let unproved = self.unproved_us(asks);
        for (at, ((ask, spent), entry)) in asks
            .iter()
            .zip(self.spent(place, step.is_away))
            .zip(entries)
            .enumerate()
        {
            let last = match settle {
                Settle::ChargeOn | Settle::ChargeAfter if step.status != 401 => 0,
                Settle::FinalCost | Settle::Reserve => step.last,
                Settle::FinalCosts if at == 0 => step.last,
                _ => ask.cost,
            };
            if last > ask.cost && settle == Settle::Reserve {
                spent.spend(now, last - ask.cost);
            }
            spent.refund(
                &ask.policy,
                now,
                *entry,
                ask.cost.saturating_sub(last),
                unproved,
            );
        }
    }

    /// Returns the age that a refund may have beside the time of the clock, where refunds return as
    /// little as they may. A decision over Redis that is alone with a token bucket has no time: its
    /// age is measured by the process.
    fn unproved_us(&self, asks: &[Ask]) -> Option<u64> {
        let is_alone = self.scenario.is_in_redis
            && asks.len() == 1
            && self.scenario.options.settle != Settle::Reserve;
        self.is_least.then_some(if is_alone {
            PATIENCE.as_micros() as u64
        } else {
            0
        })
    }

    /// Charges what the service charges with its limiter, which has the rank of the request.
    fn charge_more(&mut self, step: &Step, is_enforced: bool) {
        let place = self.place(step);
        let never_fits = self
            .asks(step, &self.scenario.sets[place.0])
            .iter()
            .any(|ask| step.more > ask.limit);
        let is_undecided =
            step.is_away && matches!(self.scenario.options.outage, Outage::Open | Outage::Closed);
        if !self.scenario.options.charges_more || step.more == 0 || never_fits || is_undecided {
            return;
        }
        let mut asks = self.asks(step, &self.policies(place.0, step.is_away));
        asks.iter_mut()
            .for_each(|ask| ask.cost = step.more.min(ask.limit));
        if self.wait_us(place, step.is_away, &asks) > 0 {
            return;
        }
        let (now, mut turn) = (self.now, 0);
        for (ask, spent) in asks.iter().zip(self.spent(place, step.is_away)) {
            turn = turn.max(spent.turn_us(&ask.policy, now));
            spent.spend(now, ask.cost);
        }
        self.wait(turn, is_enforced);
    }

    /// Waits for a turn. Over Redis, the clock of the test stands still meanwhile.
    fn wait(&mut self, turn: u64, waits: bool) {
        self.now += if waits && !self.scenario.is_in_redis {
            turn
        } else {
            0
        };
    }

    fn place(&self, step: &Step) -> Place {
        (self.scenario.set_of(step), step.key.unwrap_or(0))
    }

    /// Lets the service work.
    fn works(&mut self, step: &Step, answer: Answer) -> Answer {
        self.now += step.works.as_micros() as u64;
        answer
    }

    /// Returns how long it takes until a request fits.
    fn wait_us(&mut self, place: Place, is_away: bool, asks: &[Ask]) -> u64 {
        let now = self.now;
        let spent = self.spent(place, is_away);
        let denying = asks
            .iter()
            .zip(spent)
            .filter(|(ask, spent)| !spent.fits(&ask.policy, now, ask.cost, ask.limit));
        denying
            .map(|(ask, spent)| spent.wait_us(&ask.policy, now, ask.cost, ask.limit))
            .max()
            .unwrap_or(0)
    }

    fn asks(&self, step: &Step, policies: &[Policy]) -> Vec<Ask> {
        let options = &self.scenario.options;
        let ask = |(at, policy): (usize, &Policy)| {
            let cost = match options.cost {
                CostOption::OfRequest => step.cost,
                CostOption::Each if at == 0 => step.cost,
                _ => 1,
            };
            let rank = if options.has_priority {
                u64::from(step.rank)
            } else {
                100
            };
            Ask {
                policy: policy.clone(),
                cost,
                limit: (policy.quota().burst() * rank).div_ceil(100),
            }
        };
        policies.iter().enumerate().map(ask).collect()
    }

    /// Returns an answer without fields.
    fn silent(&self) -> Answer {
        let names = [
            "retry-after",
            "ratelimit",
            "x-ratelimit-remaining",
            "access-control-expose-headers",
        ];
        Answer {
            fields: names.map(|name| (name, None)).to_vec(),
            ..Answer::default()
        }
    }

    /// Returns the answer with the fields of a decision. `denied` is set for a denial: how long the
    /// request would wait.
    fn answer_of(&mut self, step: &Step, asks: &[Ask], denied: Option<u64>) -> Answer {
        let (options, now) = (&self.scenario.options, self.now);
        let mut answer = Answer {
            status: step.status,
            is_called: true,
            ..self.silent()
        };
        let spent = self.spent(self.place(step), step.is_away).clone();
        let seconds = |us: u64| us.div_ceil(1_000_000);
        let (mut states, mut retry_after) = (Vec::new(), 0);
        for (ask, spent) in asks.iter().zip(&spent) {
            // The units above the share of a rank are left to others.
            let (whole, kept) = (
                spent.remaining(&ask.policy, now),
                ask.policy.quota().burst() - ask.limit,
            );
            let left = whole.saturating_sub(kept);
            let fits = spent.fits(&ask.policy, now, ask.cost, ask.limit);
            let wait = if fits {
                0
            } else {
                spent.wait_us(&ask.policy, now, ask.cost, ask.limit)
            };
            let retry = wait.saturating_sub(denied.unwrap_or(u64::MAX));
            retry_after = retry_after.max(retry);
            let one_more = if whole < kept {
                spent.wait_us(&ask.policy, now, 1, ask.limit)
            } else {
                0
            };
            let until = if left == 0 && retry > 0 {
                retry
            } else {
                spent.more_us(&ask.policy, now).max(one_more)
            };
            states.push((&ask.policy, left, seconds(until)));
        }
        // A format with one value describes the policy that is closest to its limit. It is the only
        // one here.
        let only = (states.len() == 1).then(|| states[0]);
        let (mut names, mut has_fields) = (options.format.names().collect::<Vec<_>>(), true);
        let mut set = |name: &str, value: String| {
            let field = answer.fields.iter_mut().find(|(known, _)| *known == name);
            field.expect("a known field").1 = Some(value);
        };
        match (options.format, only) {
            (HeaderFormat::Ietf08, _) => {
                let member = |(policy, left, until): &(&Policy, u64, u64)| match until {
                    0 => format!("\"{}\";r={left}", policy.name()),
                    _ => format!("\"{}\";r={left};t={until}", policy.name()),
                };
                set(
                    "ratelimit",
                    states.iter().map(member).collect::<Vec<_>>().join(", "),
                );
            }
            (HeaderFormat::Ietf07, Some((policy, left, until))) => {
                let burst = policy.quota().burst();
                set(
                    "ratelimit",
                    format!("limit={burst}, remaining={left}, reset={until}"),
                );
            }
            (
                HeaderFormat::Legacy {
                    reset: ResetFormat::Seconds,
                }
                | HeaderFormat::RetryAfter,
                Some((_, left, _)),
            ) => {
                set("x-ratelimit-remaining", left.to_string());
            }
            (HeaderFormat::None, _) => {
                names = vec!["retry-after".parse().expect("a name")];
                has_fields = denied.is_some();
            }
            _ => {}
        }
        if options.exposes_headers && has_fields {
            let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
            set("access-control-expose-headers", names.join(", "));
        }
        if denied.is_some() {
            set("retry-after", seconds(retry_after).max(1).to_string());
        }
        // The other fields of several policies are not modelled.
        if only.is_none() && options.format != HeaderFormat::Ietf08 {
            answer
                .fields
                .retain(|(name, _)| !name.contains("ratelimit"));
        }
        answer
    }
}
