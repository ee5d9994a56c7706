use std::{borrow::Cow, fmt};

use smallvec::SmallVec;

use super::{Cost, charge::Charge};
use crate::{Error, PolicySet};

/// Names the units that one request spends from each policy of a set.
///
/// Use it where policies count different things: requests and tokens, uploads and bytes. The request is charged in one
/// atomic step, on all policies or on none.
///
/// A cost of zero leaves a policy unchanged, and the policy does not deny the request.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Cost, Costs, Limiter, MemoryStore, Policy, Quota};
///
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     [
///         Policy::token_bucket("requests", Quota::per_minute(60)),
///         Policy::token_bucket("tokens", Quota::per_minute(10_000)),
///     ],
/// );
/// let decision = limiter.check_costs("acme", [("requests", 1), ("tokens", 850)]).await?;
/// assert_eq!(decision.state("requests").unwrap().remaining(), 59);
/// assert_eq!(decision.state("tokens").unwrap().remaining(), 9_150);
///
/// // The same with a cost for all policies that are not named.
/// let costs = Costs::new(Cost::ONE).with("tokens", Cost::new(9_200));
/// let decision = limiter.check_costs("acme", costs).await?;
/// assert!(decision.is_denied());
/// assert_eq!(decision.state("requests").unwrap().remaining(), 59);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Costs {
    /// The cost for policies without a name here. `None` when every policy must be named.
    others: Option<Cost>,
    named: SmallVec<[(Cow<'static, str>, Cost); 4]>,
}

impl Costs {
    /// Creates costs of `cost` for all policies.
    #[must_use]
    pub fn new(cost: Cost) -> Self {
        Self { others: Some(cost), named: SmallVec::new() }
    }

    /// Sets the cost for the policy with this name.
    #[must_use]
    pub fn with(mut self, policy: impl Into<Cow<'static, str>>, cost: impl Into<Cost>) -> Self {
        let (policy, cost) = (policy.into(), cost.into());
        match self.named.iter_mut().find(|(name, _)| *name == policy) {
            Some((_, held)) => *held = cost,
            None => self.named.push((policy, cost)),
        }
        self
    }

    /// Returns the cost for the policy with this name. `None` when neither the policy nor all others have a cost.
    ///
    /// ```
    /// use tollgate::{Cost, Costs};
    ///
    /// let costs = Costs::new(Cost::ONE).with("tokens", 850_u64);
    /// assert_eq!((costs.cost_of("tokens"), costs.cost_of("requests")), (Some(Cost::new(850)), Some(Cost::ONE)));
    /// assert_eq!(Costs::from([("tokens", 850)]).cost_of("requests"), None);
    /// ```
    #[must_use]
    pub fn cost_of(&self, policy: &str) -> Option<Cost> {
        let named = self.named.iter().find(|(held, _)| held == policy).map(|&(_, cost)| cost);
        named.or(self.others)
    }

    /// Returns the cost for each policy of a set.
    pub(crate) fn charge(&self, policies: &PolicySet) -> Result<Charge, Error> {
        if let (Some(cost), true) = (self.others, self.named.is_empty()) {
            return Ok(cost.into());
        }
        let unknown = |name: &str| policies.iter().all(|policy| policy.name() != name);
        if let Some((name, _)) = self.named.iter().find(|(name, _)| unknown(name)) {
            return Err(Error::config(format!(
                "costs name policy {name:?}, which is not in the set {}",
                names(policies)
            )));
        }
        let cost =
            |name: &str| self.cost_of(name).ok_or_else(|| Error::config(format!("costs do not name policy {name:?}")));
        let costs: SmallVec<[Cost; 8]> = policies.iter().map(|policy| cost(policy.name())).collect::<Result<_, _>>()?;
        Ok(Charge::each(costs))
    }
}

/// Returns the names of all policies of a set.
fn names(policies: &PolicySet) -> String {
    policies.iter().map(|policy| policy.name()).collect::<Vec<_>>().join(", ")
}

impl From<Cost> for Costs {
    /// Sets one cost for all policies.
    fn from(cost: Cost) -> Self {
        Self::new(cost)
    }
}

impl<const N: usize> From<[(&'static str, u64); N]> for Costs {
    /// Sets the cost for each policy. A check fails when a policy of the set is not named.
    fn from(costs: [(&'static str, u64); N]) -> Self {
        let none = Self { others: None, named: SmallVec::new() };
        costs.into_iter().fold(none, |costs, (policy, cost)| costs.with(policy, cost))
    }
}

impl fmt::Debug for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entries(self.named.iter().map(|(name, cost)| (name, cost.units())));
        if let Some(others) = self.others {
            map.entry(&"..", &others.units());
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Quota};

    #[test]
    fn costs_name_policies_of_the_set() {
        let quota = Quota::per_minute(10);
        let set = PolicySet::from([Policy::token_bucket("requests", quota), Policy::token_bucket("tokens", quota)]);
        let charge = |costs: Costs| costs.charge(&set).map_err(|error| error.to_string());
        let (one, nine) = (Cost::ONE, Cost::new(9));
        assert_eq!(charge([("tokens", 9), ("requests", 1)].into()), Ok(Charge::each([one, nine])));
        assert_eq!(charge(Costs::new(one).with("tokens", nine)), Ok(Charge::each([one, nine])));
        assert_eq!(charge(Costs::new(one).with("tokens", one).with("tokens", nine)), Ok(Charge::each([one, nine])));
        assert_eq!(charge(nine.into()), Ok(nine.into()));
        let error = charge(Costs::new(one).with("tokns", nine)).unwrap_err();
        assert_eq!(error, r#"costs name policy "tokns", which is not in the set requests, tokens"#);
        let error = charge([("tokens", 9)].into()).unwrap_err();
        assert_eq!(error, r#"costs do not name policy "requests""#);
        assert_eq!(format!("{:?}", Costs::new(one).with("tokens", nine)), r#"{"tokens": 9, "..": 1}"#);
    }
}
