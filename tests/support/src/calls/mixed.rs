use std::ptr;

use redis::Value;
use tollgate::{
    Costs, Decision, Error, Key, PolicySet,
    store::Ceiling,
    testing::{
        Charge, Purpose, Shape, shape,
        wire::{BatchReply, MixedArgs},
    },
};

use super::script::{call, charge, is_tagged, keys, time};

/// Makes the call of a [`RedisStore`](tollgate::RedisStore) that decides for many keys, each with
/// policies and costs of its own. All policy sets have the same algorithms.
#[derive(Clone, Debug)]
pub struct MixedBatch {
    subjects: Vec<MixedSubject>,
    /// A ceiling for each policy of each subject.
    ceilings: Option<Vec<Vec<Ceiling>>>,
}

/// A key of a [`MixedBatch`] and its checks.
#[derive(Clone, Debug)]
pub struct MixedSubject {
    /// The policies that limit the key.
    pub policies: PolicySet,
    /// The key.
    pub key: Key,
    /// The tag of the checks, for a log among the policies.
    pub tag: String,
    /// The checks in order of arrival: the costs, and the number of checks of these costs.
    pub runs: Vec<(Costs, usize)>,
}

impl MixedBatch {
    /// Creates the call for these subjects.
    ///
    /// # Panics
    ///
    /// Panics when there is no subject, when the sets differ in their algorithms, or when a subject
    /// has no run.
    #[must_use]
    pub fn new(subjects: Vec<MixedSubject>) -> Self {
        let is_alike =
            |at: &MixedSubject| ptr::eq(shape(&at.policies), shape(&subjects[0].policies));
        assert!(
            !subjects.is_empty() && subjects.iter().all(is_alike),
            "subjects must have the same algorithms"
        );
        assert!(
            subjects.iter().all(|subject| !subject.runs.is_empty()),
            "a subject must have a run"
        );
        Self {
            subjects,
            ceilings: None,
        }
    }

    /// Returns the call for checks under a ceiling for each policy of each subject, if there are
    /// any.
    #[must_use]
    pub fn under(self, ceilings: Option<Vec<Vec<Ceiling>>>) -> Self {
        Self { ceilings, ..self }
    }

    /// Returns the charge of a run of the subject at this place.
    fn charge(&self, at: usize, costs: &Costs) -> Charge {
        let ceilings = self.ceilings.as_ref().map(|each| each[at].as_slice());
        charge(costs.clone(), &self.subjects[at].policies, ceilings)
    }

    fn shape(&self) -> &Shape {
        shape(&self.subjects[0].policies)
    }

    /// Returns the text that decides.
    #[must_use]
    pub fn text(&self) -> &str {
        &self
            .shape()
            .script(Purpose::Mixed, self.ceilings.is_some())
            .text
    }

    /// Returns the SHA-1 of the text.
    #[must_use]
    pub fn sha(&self) -> &str {
        &self
            .shape()
            .script(Purpose::Mixed, self.ceilings.is_some())
            .sha
    }

    /// Returns the words of `EVALSHA` at `now_us`, or at the server's time.
    #[must_use]
    pub fn call(&self, now_us: Option<u64>) -> Vec<Vec<u8>> {
        let mut args = MixedArgs::new(time(now_us), self.subjects.len());
        for (at, subject) in self.subjects.iter().enumerate() {
            let runs = subject.runs.iter();
            let charges: Vec<_> = runs
                .map(|(costs, count)| (self.charge(at, costs), *count))
                .collect();
            let runs = charges.iter();
            args.subject(
                &subject.policies,
                runs.map(|(charge, count)| (charge.borrow(), *count)),
            );
        }
        let names: Vec<String> = self
            .subjects
            .iter()
            .flat_map(|subject| keys(&subject.policies, &subject.key))
            .collect();
        let mut words = call(self.sha(), &names, &args.into_bytes());
        let tagged = self
            .subjects
            .iter()
            .filter(|subject| is_tagged(&subject.policies));
        words.extend(tagged.map(|subject| subject.tag.as_bytes().to_vec()));
        words
    }

    /// Reads the decisions in the reply: for each subject those of each run.
    ///
    /// # Errors
    ///
    /// The reply is not one that the script makes.
    pub fn decisions(&self, reply: &[u8]) -> Result<Vec<Vec<Vec<Decision>>>, Error> {
        self.read(&Value::BulkString(reply.to_vec()))
    }

    /// Reads the decisions in any reply.
    ///
    /// # Errors
    ///
    /// The reply is not one that the script makes.
    pub fn read(&self, reply: &Value) -> Result<Vec<Vec<Vec<Decision>>>, Error> {
        let runs = self.subjects.iter().flat_map(|subject| {
            let runs = subject.runs.iter();
            runs.map(|&(_, count)| (&subject.policies, count))
        });
        let mut reply = BatchReply::new(runs, self.ceilings.is_some(), reply)?;
        let decisions = |(at, subject): (usize, &MixedSubject)| {
            let decisions = |(costs, count): &(Costs, usize)| {
                let outcome = reply.next(&subject.policies, *count)?;
                let charge = self.charge(at, costs);
                Ok((0..*count)
                    .map(|check| outcome.decision(check, &subject.policies, charge.borrow()))
                    .collect())
            };
            subject.runs.iter().map(decisions).collect()
        };
        self.subjects.iter().enumerate().map(decisions).collect()
    }
}
