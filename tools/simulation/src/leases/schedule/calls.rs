//! Calls and their answers, which may be late, lost, or in another order.

use tollgate::testing::Grant;
use tollgate_test_support::calls::Call;

use super::{Message, World};
use crate::leases::mistake::Mistake;

impl World {
    pub(super) fn call(&mut self, replica: usize, key: usize, cost: u64) {
        let local = self.local(replica);
        let give_back = self.random.chance(0.15);
        let reports = self.replicas[replica].units[key].take_reports(local, give_back);
        let want = self.random.pick(&[0, 1, 8, 64, 1_000]);
        let call = Message {
            replica,
            key,
            sent: local,
            content: Call {
                cost,
                want,
                birth: self.birth(),
                reports,
            },
        };
        if self.mistake == Some(Mistake::ReportedTwice) && self.random.chance(0.3) {
            let content = Call {
                cost: 0,
                want: 0,
                birth: self.birth(),
                reports: call.content.reports.clone(),
            };
            self.calls.push(Message {
                replica,
                key,
                sent: local,
                content,
            });
        }
        match self.random.below(10) {
            // Lost on the way.
            0 => {}
            1 | 2 => self.calls.push(call),
            _ => self.serve(call),
        }
    }

    pub(super) fn deliver_call(&mut self) {
        if !self.calls.is_empty() {
            let at = self.random.below(self.calls.len() as u64) as usize;
            let call = self.calls.swap_remove(at);
            self.serve(call);
        }
    }

    /// Decides a call at the server, and sends the answer.
    pub(super) fn serve(&mut self, call: Message<Call>) {
        let now = self.server_now();
        let Message {
            replica,
            key,
            sent,
            content,
        } = call;
        let answer = self
            .server
            .decide(&self.policies, self.lease, key, now, &content);
        if answer.admitted && content.cost > 0 {
            self.admit(key, content.cost, false, false);
            self.direct.push((key, content.cost, now));
        }
        let Some(grant) = answer.grant else { return };
        if !self.stamps.contains(&grant.stamps) {
            self.stamps.push(grant.stamps.clone());
        }
        let grant = Message {
            replica,
            key,
            sent,
            content: grant,
        };
        match self.random.below(10) {
            0 => {}
            1 | 2 => self.grants.push(grant),
            _ => self.receive(grant),
        }
    }

    pub(super) fn deliver_grant(&mut self) {
        if !self.grants.is_empty() {
            let at = self.random.below(self.grants.len() as u64) as usize;
            let grant = self.grants.swap_remove(at);
            self.receive(grant);
        }
    }

    pub(super) fn receive(&mut self, message: Message<Grant>) {
        let Message {
            replica,
            key,
            mut sent,
            content: mut grant,
        } = message;
        match self.mistake {
            Some(Mistake::LifeFromTheAnswer) => sent = self.local(replica),
            Some(Mistake::LifeToTheEnd) => grant.life_us = grant.life_us * 1_000 / 999 + 1,
            _ => {}
        }
        self.replicas[replica].units[key].add(sent, grant);
    }
}
