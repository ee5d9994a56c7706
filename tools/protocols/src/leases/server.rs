//! The server of calls: by the functions of the product, and with the lines that a mistake
//! changes.

use std::slice;

use tollgate::testing::Stamp;
use tollgate_test_support::{
    calls::Call,
    leases::{Account, Answer, step},
};

use super::{
    setting::{Mistake, Setting},
    world::World,
};

impl World {
    /// Returns the state of the policy, brought to the present, and whether that has to be stored.
    pub(super) fn current(&self, setting: &Setting) -> (Account, bool) {
        let (policy, lease, now_us) = (setting.policy(), setting.lease(), self.server_us());
        let fresh = || Account::new(policy, lease, now_us);
        let stored = self.account.clone();
        let expires = !setting.has(Mistake::NothingLapses);
        let stored = stored.filter(|account| !expires || now_us < account.fresh_at(policy));
        let mut account = stored.unwrap_or_else(fresh);
        let generation_us = lease.length().as_micros() as u64;
        let before = account.stored();
        if setting.has(Mistake::LapseIsFree) {
            // What lapses first is returned before.
            let previous = Stamp {
                generation: account.stamp().generation.saturating_sub(1),
                ..account.stamp()
            };
            if now_us >= (previous.generation + 2) * generation_us {
                account.report(policy, now_us, previous, 0, u64::MAX);
            }
        }
        let is_mended = account.advance(policy, policy, lease, now_us);
        if setting.has(Mistake::NothingLapses)
            && let Some([birth, _, _, new, old]) = before
        {
            let lapsed = (new + old).saturating_sub(account.outstanding());
            account.grant(lapsed, birth);
        }
        (account, is_mended)
    }

    /// Serves a call, and stores what the server stores.
    pub(super) fn serve(&mut self, setting: &Setting, call: &Call) -> Answer {
        let (mut account, is_mended) = self.current(setting);
        let (policy, now_us) = (setting.policy(), self.server_us());
        let mut call = call.clone();
        call.birth = self.births + 1;
        for report in &mut call.reports {
            let stamp = &mut report.stamps[0];
            if setting.has(Mistake::ReportIsFree) {
                report.returned += std::mem::take(&mut report.spent);
            }
            if setting.has(Mistake::AnyBirth) {
                stamp.birth = account.stamp().birth;
            }
            if setting.has(Mistake::AnyGeneration) {
                let oldest = account.stamp().generation.saturating_sub(1);
                stamp.generation = stamp.generation.max(oldest);
            }
        }
        let mut answer = step(
            slice::from_mut(&mut account),
            &setting.policies,
            now_us,
            &call,
        );
        if let Some(grant) = &mut answer.grant {
            self.births = self.births.max(account.stamp().birth);
            if setting.has(Mistake::LongerLife) {
                grant.life_us += setting.lease().length().as_micros() as u64;
            }
            if setting.has(Mistake::GrantIsFree) {
                account.report(policy, now_us, account.stamp(), 0, grant.units);
            }
        }
        if answer.written || is_mended {
            self.account = Some(account);
        }
        answer
    }
}
