use redis::Value;

use tollgate::{
    Cost, Decision, Error, Key, PolicySet,
    testing::{
        ChargeRef, Grant, Purpose, Report, shape,
        wire::{BatchReply, MixedArgs},
    },
};

use super::script::{call, is_tagged, keys, time};

/// Holds what a replica sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The units of its check, the same for all policies.
    pub cost: u64,
    /// The units that it would like to be granted.
    pub want: u64,
    /// A random number from 1 to 2⁵³, which identifies the units that this call is the first to
    /// grant.
    pub birth: u64,
    /// The reports of earlier grants.
    pub reports: Vec<Report>,
}

/// Makes the call of a [`RedisStore`](tollgate::RedisStore) that takes reports and grants units: one
/// check of one key.
#[derive(Clone, Debug)]
pub struct LeaseScript {
    policies: PolicySet,
}

impl LeaseScript {
    /// Creates the call for these policies, which must be leased.
    #[must_use]
    pub fn new(policies: PolicySet) -> Self {
        Self { policies }
    }

    /// Returns the text that decides.
    #[must_use]
    pub fn text(&self) -> &str {
        &shape(&self.policies).script(Purpose::Lease, false).text
    }

    /// Returns the SHA-1 of the text.
    #[must_use]
    pub fn sha(&self) -> &str {
        &shape(&self.policies).script(Purpose::Lease, false).sha
    }

    /// Returns two keys on the server for each policy: of its state, and of its outstanding units.
    #[must_use]
    pub fn keys(&self, key: &Key) -> Vec<String> {
        keys(&self.policies, key).collect()
    }

    /// Returns the words of `EVALSHA` at `now_us`, or at the server's time.
    #[must_use]
    pub fn call(&self, key: &Key, content: &Call, now_us: Option<u64>) -> Vec<Vec<u8>> {
        let mut args = MixedArgs::leasing(time(now_us), content.birth, 1);
        let run = (ChargeRef::from(Cost::new(content.cost)), 1);
        args.leased_subject(
            &self.policies,
            &content.reports,
            content.want,
            std::iter::once(run),
        );
        let mut words = call(self.sha(), &self.keys(key), &args.into_bytes());
        words.extend(is_tagged(&self.policies).then(Vec::new));
        words
    }

    /// Reads the decision and the grant in a reply.
    ///
    /// # Errors
    ///
    /// The reply is not one that the script makes.
    pub fn read(&self, reply: &[u8], content: &Call) -> Result<(Decision, Option<Grant>), Error> {
        let reply = Value::BulkString(reply.to_vec());
        let subject = (&self.policies, std::iter::once(1));
        let mut reply = BatchReply::leasing(std::iter::once(subject), &reply)?;
        let outcome = reply.next(&self.policies, 1)?;
        let decision =
            outcome.decision(0, &self.policies, ChargeRef::from(Cost::new(content.cost)));
        Ok((decision, reply.grant(&self.policies)?))
    }
}
