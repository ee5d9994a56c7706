//! The server: a clock, and the accounts of all keys.

use tollgate::{
    Lease, Policy, PolicySet,
    testing::{Grant, Stamp},
};
use tollgate_test_support::calls::Call;
use tollgate_test_support::leases::{Account, Answer, step};

use super::mistake::Mistake;

/// Keeps an account for each policy and key. The accounts of an outer policy are those of all keys.
#[derive(Debug)]
pub(crate) struct Server {
    accounts: Vec<Option<(Account, Policy)>>,
    keys: usize,
    is_nested: bool,
    mistake: Option<Mistake>,
}

impl Server {
    pub(crate) fn new(
        policies: usize,
        keys: usize,
        is_nested: bool,
        mistake: Option<Mistake>,
    ) -> Self {
        Self {
            accounts: vec![None; policies * keys],
            keys,
            is_nested,
            mistake,
        }
    }

    /// Returns the place of the account of a policy and a key.
    pub(crate) fn place(&self, policy: usize, key: usize) -> usize {
        policy * self.keys
            + if self.is_nested && policy == 0 {
                0
            } else {
                key
            }
    }

    /// Decides a call.
    pub(crate) fn decide(
        &mut self,
        policies: &PolicySet,
        lease: Lease,
        key: usize,
        now: u64,
        call: &Call,
    ) -> Answer {
        let mut mended = false;
        let mut accounts = Vec::new();
        for (at, policy) in policies.iter().enumerate() {
            let stored = &self.accounts[self.place(at, key)];
            let (mut account, wrote) = match stored {
                Some((account, wrote)) if now < self.expires_us(account, wrote) => {
                    (account.clone(), wrote)
                }
                _ => (Account::new(policy, lease, now), policy),
            };
            self.lapse_wrongly(&mut account, policy, wrote, lease, now);
            mended |= account.settle(policy, wrote, lease, now);
            accounts.push(account);
        }
        let answer = match self.mistake {
            None => step(&mut accounts, policies, now, call),
            Some(_) => self.step(&mut accounts, policies, lease, now, call),
        };
        if answer.written || mended {
            for (at, (account, policy)) in accounts.into_iter().zip(policies.iter()).enumerate() {
                let place = self.place(at, key);
                self.accounts[place] = Some((account, policy.clone()));
            }
        }
        answer
    }

    /// Refunds units of a direct check.
    pub(crate) fn refund(
        &mut self,
        policies: &PolicySet,
        lease: Lease,
        key: usize,
        [now, spent]: [u64; 2],
        cost: u64,
    ) {
        for (at, policy) in policies.iter().enumerate() {
            let place = self.place(at, key);
            if let Some((account, wrote)) = &mut self.accounts[place] {
                account.settle(policy, wrote, lease, now);
                account.refund(policy, now, spent, cost);
                *wrote = policy.clone();
            }
        }
    }

    /// Forgets the states of a key.
    pub(crate) fn reset(&mut self, key: usize) {
        for policy in 0..self.accounts.len() / self.keys {
            let place = self.place(policy, key);
            self.accounts[place] = None;
        }
    }

    /// Forgets everything.
    pub(crate) fn lose(&mut self) {
        self.accounts.fill(None);
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn expires_us(&self, account: &Account, policy: &Policy) -> u64 {
        if self.is(Mistake::EarlyExpiry) {
            without_outstanding(account, policy).fresh_at(policy)
        } else {
            account.fresh_at(policy)
        }
    }

    fn lapse_wrongly(
        &self,
        account: &mut Account,
        policy: &Policy,
        wrote: &Policy,
        lease: Lease,
        now: u64,
    ) {
        let current = account.stamp();
        let ends = (current.generation + 1) * lease.length().as_micros() as u64;
        let previous = Stamp {
            generation: current.generation.saturating_sub(1),
            ..current
        };
        if now >= ends && self.is(Mistake::LapseIsFree) {
            account.report(policy, now, previous, 0, u64::MAX);
        }
        if now >= ends && self.is(Mistake::LapseIsEarly) {
            let begin = ends - lease.length().as_micros() as u64;
            account.settle_state(policy, wrote, begin);
            account.report(policy, begin, previous, u64::MAX, 0);
        }
    }

    /// Decides with the mistake. Without one it equals [`step`].
    fn step(
        &self,
        accounts: &mut [Account],
        policies: &PolicySet,
        lease: Lease,
        now: u64,
        call: &Call,
    ) -> Answer {
        let mut written = false;
        for (at, (account, policy)) in accounts.iter_mut().zip(policies.iter()).enumerate() {
            for report in &call.reports {
                let current = account.stamp();
                let mut stamp = report.stamps[at];
                if self.is(Mistake::AnyBirth) {
                    stamp.birth = current.birth;
                }
                if self.is(Mistake::AnyGeneration) {
                    stamp.generation = current
                        .generation
                        .min(stamp.generation.max(current.generation - 1));
                }
                let (spent, returned) = match self.mistake {
                    Some(Mistake::ReportIsFree) => (0, report.spent + report.returned),
                    _ => (report.spent, report.returned),
                };
                written |= account.report(policy, now, stamp, spent, returned);
            }
        }
        let admitted = accounts
            .iter()
            .zip(policies.iter())
            .all(|(account, policy)| match self.mistake {
                Some(Mistake::OutstandingIsFree) => {
                    without_outstanding(account, policy).fits(policy, now, call.cost)
                }
                _ => account.fits(policy, now, call.cost),
            });
        if !admitted || call.cost == 0 {
            return Answer {
                admitted,
                grant: None,
                written,
            };
        }
        for (account, policy) in accounts.iter_mut().zip(policies.iter()) {
            account.charge(policy, now, call.cost, &[]);
        }
        let each = accounts
            .iter()
            .zip(policies.iter())
            .map(|(account, policy)| match self.mistake {
                Some(Mistake::NoShare) => call.want.min(account.remaining(policy, now) / 4),
                Some(Mistake::OutstandingIsFree) => {
                    without_outstanding(account, policy).grantable(policy, lease, now, call.want)
                }
                _ => account.grantable(policy, lease, now, call.want),
            });
        let units = if self.is(Mistake::MostOfTheSet) {
            each.max()
        } else {
            each.min()
        }
        .unwrap_or(0);
        let longer = if self.is(Mistake::LongLife) {
            lease.length().as_micros() as u64
        } else {
            0
        };
        let life_us = accounts
            .iter()
            .map(|account| account.life_us(now))
            .min()
            .unwrap_or(0)
            + longer;
        let granted = if self.is(Mistake::GrantIsForgotten) {
            0
        } else {
            units
        };
        let grant = (units > 0).then(|| Grant {
            stamps: accounts
                .iter_mut()
                .map(|account| account.grant(granted, call.birth))
                .collect(),
            units,
            life_us,
        });
        Answer {
            admitted,
            grant,
            written: true,
        }
    }
}

/// Returns the account as if all outstanding units were returned.
fn without_outstanding(account: &Account, policy: &Policy) -> Account {
    let mut account = account.clone();
    let current = account.stamp();
    for generation in [current.generation, current.generation.saturating_sub(1)] {
        account.report(
            policy,
            0,
            Stamp {
                generation,
                ..current
            },
            0,
            u64::MAX,
        );
    }
    account
}
