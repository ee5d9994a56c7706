//! The part of a decision that concerns one branch of its key.

use super::Decision;
use crate::{Cost, algorithm::PolicyLevel, cost::Charge, policy_levels::PolicyLevels};

impl Decision {
    /// Returns the part of the decision that concerns one [branch](crate::Key::beside) of its key, from 1. `None` when no
    /// policy meters the branch.
    ///
    /// The part is a decision over the policies of the branch, for the key of the branch alone. So
    /// [`refund_decision`](crate::Limiter::refund_decision) takes it with that key. Of a denied check, the part of a branch
    /// that has the units is allowed and costs nothing, because nothing was charged.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let address = Policy::fixed_window("address", Quota::per_hour(9));
    /// let api_key = Policy::fixed_window("api-key", Quota::per_hour(1)).at_branch(2);
    /// let limiter = Limiter::new(MemoryStore::new(), [address, api_key]);
    /// let key = Key::new("192.0.2.7").beside("acme");
    /// assert!(limiter.check(&key).await?.is_allowed());
    ///
    /// let denied = limiter.check(&key).await?;
    /// let (address, api_key) = (denied.branch(1).unwrap(), denied.branch(2).unwrap());
    /// assert!(address.is_allowed() && api_key.is_denied());
    /// assert_eq!((address.cost(), api_key.cost()), (Cost::ZERO, Cost::ONE));
    /// assert_eq!(address.state("address").unwrap().remaining(), 8);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn branch(&self, branch: u8) -> Option<Self> {
        let is_of = |at: usize| self.policies.shared()[at].branch() == branch;
        let places: Vec<usize> = (0..self.policies.len()).filter(|&at| is_of(at)).collect();
        let policies = self.policies.branch(branch)?;
        let all: Vec<PolicyLevel> = self.levels.iter(&self.policies).map(|(_, level)| level).collect();
        // A decision that no policy took part in has no levels.
        let own = policies.iter().zip(places.iter().filter_map(|&at| all.get(at).copied()));
        let levels = PolicyLevels::collect(own);
        let is_charged = self.is_allowed() || !levels.fit();
        let charge = match is_charged {
            true => {
                let charge = Charge::each(places.iter().map(|&at| self.charge().of(at)));
                let ceilings = places.iter().filter_map(|&at| self.charge().ceiling(at));
                if self.charge().is_capped() { charge.under(ceilings) } else { charge }
            }
            false => Cost::ZERO.into(),
        };
        let part = Self::from_levels(&policies, levels, charge.borrow(), self.at_us);
        Some(Self { degraded: self.degraded, in_process: self.in_process, ..part })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Check, Costs, ErrorKind, Key, MemoryStore, Policy, PolicySet, Quota};

    fn policies() -> PolicySet {
        let quota = Quota::per_hour(10);
        PolicySet::from([
            Policy::sliding_log("log", quota).at_branch(2),
            Policy::token_bucket("bucket", quota),
            Policy::fixed_window("outer", quota).at_branch(2).at_level(1),
        ])
    }

    #[test]
    fn a_part_is_the_decision_of_its_branch_alone() {
        let (store, set) = (MemoryStore::new(), policies());
        let key = Key::new("a").beside(Key::new("b").child("c"));
        let costs = Costs::new(Cost::ONE).with("log", 2_u64).charge(&set).expect("costs");
        let decision = store.decide(Check::of(&set, &key, costs.borrow()));
        let figures = |decision: &Decision| {
            let states = decision.states();
            states.map(|state| (state.policy().name().to_owned(), state.remaining(), state.cost())).collect::<Vec<_>>()
        };
        let second = decision.branch(2).expect("policies of the branch");
        assert_eq!(figures(&second), [("log".into(), 8, Cost::new(2)), ("outer".into(), 9, Cost::ONE)]);
        assert_eq!(
            second.policies().iter().map(|policy| (policy.branch(), policy.level())).collect::<Vec<_>>(),
            [(1, None), (1, Some(1))]
        );
        assert_eq!(figures(&decision.branch(1).expect("a policy of the branch")), [("bucket".into(), 9, Cost::ONE)]);
        assert!(decision.branch(3).is_none());
        // The part and the branch's key alone are all that a refund needs.
        store.refund_at(Check::of(second.policies(), &key.branches()[1], second.charge()), Some(second.at_us()), None);
        let left = store.decide(Check::new(&set, &key, Cost::ZERO));
        assert_eq!(left.states().map(|state| state.remaining()).collect::<Vec<_>>(), [10, 9, 10]);
    }

    #[test]
    fn a_part_without_the_store_says_so() {
        let set = policies();
        let open = Decision::open(&set, Cost::ONE.into(), ErrorKind::Timeout);
        let part = open.branch(2).expect("policies of the branch");
        assert!(part.is_allowed() && part.degraded() == Some(ErrorKind::Timeout));
        assert_eq!(part.states().len(), 0);
    }
}
