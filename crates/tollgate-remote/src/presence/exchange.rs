//! Processes report to each other what the customers of their limiters spend.
//! What is measured is in `store/spending/mod.rs`, and the call is made by each store.

use super::{counter::Complaints, held::held};
use tollgate_core::{
    Error,
    raw::{Lock, WeakSpending},
    store::{ReplicaGroup, Spending},
};

/// Keeps what is reported, as long as a limiter holds it.
#[derive(Default)]
pub(crate) struct Exchange {
    added: Lock<Vec<(ReplicaGroup, WeakSpending)>>,
    complaints: Lock<Complaints>,
}

impl Exchange {
    /// Reports this from now on.
    pub(crate) fn add(&self, group: ReplicaGroup, spending: &Spending) {
        self.added.lock().push((group, spending.downgrade()));
    }

    fn current(&self) -> Vec<(ReplicaGroup, Spending)> {
        held(&mut self.added.lock(), |(group, spending)| {
            Some((*group, spending.upgrade()?))
        })
    }

    pub(crate) fn is_used(&self) -> bool {
        !self.current().is_empty()
    }

    /// Returns the report of each group. Limiters of one group have one report together.
    pub(crate) fn reports(&self) -> Vec<(ReplicaGroup, String)> {
        let mut reports: Vec<(ReplicaGroup, String)> = Vec::new();
        for (group, spending) in self.current() {
            match reports.iter_mut().find(|(other, _)| *other == group) {
                Some((_, report)) => report.push_str(&spending.report()),
                None => reports.push((group, spending.report())),
            }
        }
        reports
    }

    /// Sends these reports by a call, and reads what the others report for each. What was heard
    /// before a failed call fades.
    pub(crate) async fn tell(
        &self,
        reports: &[(ReplicaGroup, String)],
        call: impl Future<Output = Result<Vec<String>, Error>>,
    ) {
        match call.await {
            Ok(heard) => {
                self.complaints.lock().forget();
                let current = self.current();
                for ((group, _), heard) in reports.iter().zip(heard) {
                    let of_group = current.iter().filter(|(other, _)| other == group);
                    of_group.for_each(|(_, spending)| spending.hear(&heard));
                }
            }
            Err(error) if self.complaints.lock().is_new(&error) => tracing::warn!(
                %error,
                "the processes cannot tell each other who spends much: fair shares are those of each process"
            ),
            Err(_) => {}
        }
    }
}
