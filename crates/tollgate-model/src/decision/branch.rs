//! The part of a decision that concerns one branch of its key.
//! Keys with branches are made in `key/`.

use super::{Decision, PolicyLevels};
use crate::{
    Cost, algorithm::PolicyLevel, charge::Charge, decision::DecisionParts,
    policy_set::PolicySetParts,
};

impl Decision {
    /// Returns the part of the decision that concerns one [branch](crate::Key::with_branch) of its
    /// key, counted from 1. `None` when no policy meters the branch.
    ///
    /// The part is a decision over the policies of the branch, for the branch as a key of its own:
    /// [`RefundBuilder::of`] takes it with that key. If the
    /// check was denied, the part of a branch that had the units is allowed and costs nothing,
    /// because nothing was charged.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let address = Policy::fixed_window("address", Quota::per_hour(9));
    /// let api_key = Policy::fixed_window("api-key", Quota::per_hour(1)).at_branch(2);
    /// let limiter = Limiter::new(MemoryStore::new(), [address, api_key]);
    /// let key = Key::new("192.0.2.7").with_branch("acme");
    /// assert!(limiter.check(&key).await?.is_allowed());
    ///
    /// let denied = limiter.check(&key).await?;
    /// let (address, api_key) = (denied.branch(1).unwrap(), denied.branch(2).unwrap());
    /// assert!(address.is_allowed() && api_key.is_denied());
    /// assert_eq!((address.cost(), api_key.cost()), (Cost::ZERO, Cost::ONE));
    /// assert_eq!(address.state("address").unwrap().remaining(), 8);
    /// # Ok(()) }
    /// ```
    ///
    /// [`RefundBuilder::of`]: https://docs.rs/tollgate/latest/tollgate/limiter/struct.RefundBuilder.html#method.of
    #[must_use]
    pub fn branch(&self, branch: u8) -> Option<Self> {
        let is_of = |at: usize| self.policies.shared()[at].branch() == branch;
        let places: Vec<usize> = (0..self.policies.len()).filter(|&at| is_of(at)).collect();
        let policies = self.policies.branch(branch)?;
        let all: Vec<PolicyLevel> = self
            .levels
            .iter(&self.policies)
            .map(|(_, level)| level)
            .collect();
        // A decision that no policy took part in has no levels.
        let own = policies
            .iter()
            .zip(places.iter().filter_map(|&at| all.get(at).copied()));
        let levels = PolicyLevels::collect(own);
        let is_charged = self.is_allowed() || !levels.fit();
        let charge = match is_charged {
            true => {
                let charge = Charge::each(places.iter().map(|&at| self.charge().of(at)));
                let ceilings = places.iter().filter_map(|&at| self.charge().ceiling(at));
                if self.charge().is_capped() {
                    charge.under(ceilings)
                } else {
                    charge
                }
            }
            false => Cost::ZERO.into(),
        };
        let part = Self::from_levels(&policies, levels, charge.borrow(), self.at_us);
        Some(Self {
            levels: part.levels.with_marks(self.levels.marks),
            ..part
        })
    }
}
