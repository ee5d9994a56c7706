//! One call of a replica at the server.

use crate::calls::Call;
use tollgate::{
    Cost, Decision, Policy, PolicySet,
    testing::{self, Grant, Report},
};

use super::account::{Account, Level};

/// Holds what the server replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The check was admitted.
    pub admitted: bool,
    /// The granted units. None are granted with a denial, nor with a peek.
    pub grant: Option<Grant>,
    /// A state was changed, so that it has to be stored.
    pub written: bool,
}

/// Decides a call on current accounts, one for each policy of the set.
///
/// Reports come first, then the check, then the grant: the least that all policies grant.
#[must_use]
pub fn step(accounts: &mut [Account], policies: &PolicySet, now_us: u64, call: &Call) -> Answer {
    let checked = check(accounts, policies, now_us, call);
    let grant = if checked.is_charged {
        grant(accounts, policies, now_us, call)
    } else {
        None
    };
    Answer {
        admitted: checked.is_admitted(),
        grant,
        written: checked.is_reported || checked.is_charged,
    }
}

/// Decides a call as [`step`] does, and returns the whole decision.
pub fn decide(
    accounts: &mut [Account],
    policies: &PolicySet,
    now_us: u64,
    call: &Call,
) -> (Decision, Option<Grant>) {
    let checked = check(accounts, policies, now_us, call);
    let level = |((account, policy), fits): ((&Account, &Policy), &bool)| -> Level {
        account.level(policy, now_us, call.cost, *fits)
    };
    // Before the grant, whose units count as used.
    let levels: Vec<_> = each(accounts, policies)
        .zip(&checked.fits)
        .map(level)
        .collect();
    let decision = testing::decided(policies, &levels, Cost::new(call.cost), now_us);
    let grant = if checked.is_charged {
        grant(accounts, policies, now_us, call)
    } else {
        None
    };
    (decision, grant)
}

/// The outcome of a call before its grant.
struct Checked {
    is_reported: bool,
    /// Is true for each policy that admits the check.
    fits: Vec<bool>,
    is_charged: bool,
}

impl Checked {
    fn is_admitted(&self) -> bool {
        self.fits.iter().all(|fits| *fits)
    }
}

/// Applies the reports of a call, and charges its check if all policies admit it.
fn check(accounts: &mut [Account], policies: &PolicySet, now_us: u64, call: &Call) -> Checked {
    let is_reported = report(accounts, policies, now_us, &call.reports);
    let fits = each(accounts, policies)
        .map(|(account, policy)| account.fits(policy, now_us, call.cost))
        .collect();
    let mut checked = Checked {
        is_reported,
        fits,
        is_charged: false,
    };
    checked.is_charged = checked.is_admitted() && call.cost > 0;
    if checked.is_charged {
        charge(accounts, policies, now_us, call.cost);
    }
    checked
}

fn each<'a>(
    accounts: &'a [Account],
    policies: &'a PolicySet,
) -> impl Iterator<Item = (&'a Account, &'a Policy)> {
    accounts.iter().zip(policies.iter())
}

/// Applies the reports. Returns `true` when one has changed a state.
fn report(accounts: &mut [Account], policies: &PolicySet, now_us: u64, reports: &[Report]) -> bool {
    let mut changed = false;
    for (at, (account, policy)) in accounts.iter_mut().zip(policies.iter()).enumerate() {
        for report in reports {
            if let Some(&stamp) = report.stamps.get(at) {
                changed |= account.report(policy, now_us, stamp, report.spent, report.returned);
            }
        }
    }
    changed
}

fn charge(accounts: &mut [Account], policies: &PolicySet, now_us: u64, cost: u64) {
    for (account, policy) in accounts.iter_mut().zip(policies.iter()) {
        account.charge(policy, now_us, cost, &[]);
    }
}

fn grant(
    accounts: &mut [Account],
    policies: &PolicySet,
    now_us: u64,
    call: &Call,
) -> Option<Grant> {
    let units = |(account, policy): (&Account, &Policy)| {
        account.grantable(
            policy,
            policy.lease().unwrap_or_default(),
            now_us,
            call.want,
        )
    };
    let units = each(accounts, policies).map(units).min().unwrap_or(0);
    (units > 0).then(|| Grant {
        stamps: accounts
            .iter_mut()
            .map(|account| account.grant(units, call.birth))
            .collect(),
        units,
        life_us: accounts
            .iter()
            .map(|account| account.life_us(now_us))
            .min()
            .unwrap_or(0),
    })
}
