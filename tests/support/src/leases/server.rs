use std::collections::HashMap;

use crate::calls::Call;
use tollgate::{
    Policy, PolicySet,
    testing::{Grant, Report},
};

use super::{Account, Rolled, decide};

/// Holds the states that a server stores, by key and policy, and decides by the pure functions.
#[derive(Debug, Default)]
pub(super) struct PureServer(HashMap<String, Held>);

/// The state of a policy: the account, and the policy that wrote it.
#[derive(Clone, Debug)]
struct Held {
    account: Account,
    wrote: Policy,
}

impl Held {
    /// Returns what the server stores of a current account.
    fn stored(mut account: Account, policy: &Policy, now_us: u64) -> Self {
        account.note_debt(policy, now_us);
        Self {
            account,
            wrote: policy.clone(),
        }
    }
}

fn name(key: u64, policy: &Policy) -> String {
    format!("{key} {}", policy.name())
}

impl PureServer {
    /// Decides a call, and stores what the server stores.
    pub(super) fn decide(
        &mut self,
        policies: &PolicySet,
        key: u64,
        now_us: u64,
        call: &Call,
    ) -> (String, Option<Grant>) {
        let (mut accounts, mended) = self.current(policies, key, now_us);
        let before = accounts.clone();
        let (decision, grant) = decide(&mut accounts, policies, now_us, call);
        for (at, policy) in policies.iter().enumerate() {
            let held = self.0.get_mut(&name(key, policy)).expect("stored as it is");
            // Units that were only returned change what is outstanding, and not the state of the
            // algorithm.
            let mut current = before[at].clone();
            let mut is_charged = decision.is_allowed() && call.cost > 0;
            for Report {
                stamps,
                spent,
                returned,
            } in &call.reports
            {
                is_charged |= current.report(policy, now_us, stamps[at], *spent, 0);
                current.report(policy, now_us, stamps[at], 0, *returned);
            }
            if is_charged || mended[at] && call.cost > 0 {
                *held = Held::stored(accounts[at].clone(), policy, now_us);
            } else {
                for report in &call.reports {
                    held.account
                        .report(policy, now_us, report.stamps[at], 0, report.returned);
                }
            }
        }
        (format!("{decision:?}"), grant)
    }

    /// Lets the states that a reservation has charged remember what a late refund has to know.
    pub(super) fn remember(&mut self, policies: &PolicySet, key: u64, now_us: u64) {
        for policy in policies.iter() {
            let held = self
                .0
                .get_mut(&name(key, policy))
                .expect("stored as it was charged");
            held.account.remember(now_us);
        }
    }

    /// Refunds units that were spent at a time.
    pub(super) fn refund(
        &mut self,
        policies: &PolicySet,
        key: u64,
        now_us: u64,
        spent_us: u64,
        cost: u64,
    ) {
        let (accounts, _) = self.current(policies, key, now_us);
        for (mut account, policy) in accounts.into_iter().zip(policies.iter()) {
            if cost > 0 {
                account.refund(policy, now_us, spent_us, cost);
                self.0
                    .insert(name(key, policy), Held::stored(account, policy, now_us));
            }
        }
    }

    /// Charges units that need not fit.
    pub(super) fn owe(&mut self, policies: &PolicySet, key: u64, now_us: u64, cost: u64) {
        let (accounts, _) = self.current(policies, key, now_us);
        for (mut account, policy) in accounts.into_iter().zip(policies.iter()) {
            if account.owe(policy, now_us, cost) {
                self.0
                    .insert(name(key, policy), Held::stored(account, policy, now_us));
            }
        }
    }

    /// Returns the numbers of the outstanding units, as the server stores them.
    pub(super) fn book(&self, policy: &Policy, key: u64) -> Option<[f64; 5]> {
        let held = self.0.get(&name(key, policy))?;
        held.account
            .stored()
            .map(|numbers| numbers.map(|number| number as f64))
    }

    /// Returns the time at which the state equals a fresh one, when all outstanding units lapse.
    pub(super) fn fresh_us(&self, policy: &Policy, key: u64) -> u64 {
        self.0
            .get(&name(key, policy))
            .map_or(0, |held| held.account.fresh_at(&held.wrote))
    }

    /// Brings the accounts of a set to `now_us`. Ends of generations are stored, even when nothing
    /// else is.
    fn current(
        &mut self,
        policies: &PolicySet,
        key: u64,
        now_us: u64,
    ) -> (Vec<Account>, Vec<bool>) {
        let advance = |policy: &Policy| {
            let lease = policy.lease().expect("a leased policy");
            let fresh = || Held {
                account: Account::new(policy, lease, now_us),
                wrote: policy.clone(),
            };
            let held = self.0.entry(name(key, policy)).or_insert_with(fresh);
            if held.account.roll(policy, &held.wrote, lease, now_us) == Rolled::Charged {
                held.wrote = policy.clone();
            }
            let mut account = held.account.clone();
            let mended = account.advance(policy, &held.wrote, lease, now_us);
            (account, mended)
        };
        policies.iter().map(advance).unzip()
    }
}
