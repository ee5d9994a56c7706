//! Reads `lease`: the terms on which replicas take units of a limit in advance.
//! What the terms mean is decided in the core, in `lease/`.

use tollgate::{Algorithm, Lease, Policy, Quota};

use super::{compiler::Compiler, errors::Trail};
use crate::{
    document::{Node, Scalar, Value},
    error::Position,
};

/// The terms of a `lease`, with their places.
pub(super) struct LeaseField {
    terms: Lease,
    at: Position,
    generation_at: Option<Position>,
}

/// The greatest `share`.
const MOST_SHARE: u64 = u8::MAX as u64;

const FIELDS: [&str; 2] = ["generation", "share"];

/// A quota whose every share can be leased.
const ROOMY: Quota = Quota::per_second(1_000_000);

impl Compiler {
    /// Reads a `lease`: `true` for the default terms, or a mapping. Returns `None` for `false`.
    pub(super) fn lease(&mut self, node: &Node, trail: &Trail<'_>) -> Option<LeaseField> {
        let mut read = LeaseField {
            terms: Lease::new(),
            at: node.at,
            generation_at: None,
        };
        let fields = match &node.value {
            Value::Map(fields) => fields,
            Value::Scalar(Scalar::Bool(is_leased, _)) => return is_leased.then_some(read),
            Value::Scalar(Scalar::Null) => return None,
            _ => {
                return self.wrong_type(
                    node,
                    trail,
                    "true, false or a mapping of generation and share",
                );
            }
        };
        for field in fields {
            let (node, trail) = (&field.node, trail.field(&field.name));
            match field.name.as_str() {
                "generation" => {
                    let (length, at) = self.window(node, &trail)?;
                    (read.terms, read.generation_at) = (read.terms.generation(length), Some(at));
                }
                "share" => {
                    let share = self.number(node, &trail, 1, MOST_SHARE)?;
                    read.terms = read.terms.share(u8::try_from(share).unwrap_or(u8::MAX));
                }
                _ => self.unknown(field, &trail, &FIELDS, &[]),
            }
        }
        Some(read)
    }

    /// Leases a policy, and reports terms that it cannot have. `trail` leads to the limit.
    pub(super) fn leased(
        &mut self,
        policy: Policy,
        lease: Option<&LeaseField>,
        trail: &Trail<'_>,
    ) -> Option<Policy> {
        let Some(&LeaseField {
            terms,
            at,
            generation_at,
        }) = lease
        else {
            return Some(policy);
        };
        // Terms that no policy can have are a mistake of `generation` itself.
        let any = Policy::try_new(policy.name(), Algorithm::TokenBucket, ROOMY)
            .and_then(|any| any.try_leased(terms));
        let trail = trail.field("lease");
        match (policy.try_leased(terms), any, generation_at) {
            (Ok(policy), ..) => return Some(policy),
            (Err(_), Err(error), Some(at)) => {
                let message = error.to_string();
                self.errors.refuse(trail.field("generation"), at, message);
            }
            (Err(error), ..) => self.errors.refuse(&trail, at, error.to_string()),
        }
        None
    }
}
