//! The names under which states, reservations and permits are kept outside of this process.
//!
//! In Redis they follow the prefix of the store. A name begins with the outermost level of its key,
//! and a closing brace behind it: the opening brace must be written. So all names of a key lie in
//! one slot of a cluster.
//! How the text of a key is made is in `key/`.

use tollgate_model::raw::{KeyParts, PolicyParts, PolicySetParts};

use crate::{Key, Policy, PolicySet, store::ReservationId};

/// The version of the stored form of permits.
const PERMITS: &[u8] = b":p1";

/// Appends the name of a state: the metered levels, the name of the policy and the storage version.
///
/// A branch has the same state as the branch's key alone.
#[inline]
pub fn write_key(policy: &Policy, key: &Key, text: &mut Vec<u8>) {
    write_metered(policy, key, text);
    write_policy(policy, text);
}

/// Appends the beginning of the name of a state: the levels that the policy meters.
#[inline]
pub fn write_metered(policy: &Policy, key: &Key, text: &mut Vec<u8>) {
    let key = policy.branch_of(key);
    write_subject(policy.metered(key).as_bytes(), key.outermost().len(), text);
}

/// Appends the rest of it, which is the same for all keys.
pub fn write_policy(policy: &Policy, text: &mut Vec<u8>) {
    text.extend_from_slice(policy.name().as_bytes());
    text.push(b':');
    let [algorithm, lease] = policy.tag();
    text.extend_from_slice(algorithm.as_bytes());
    text.extend_from_slice(lease.as_bytes());
}

/// Appends the name of the record of a reservation.
///
/// It reads as the state of a policy whose name is the id and the mark of the set. No algorithm has
/// this tag. The record of a key with branches lies in the slot of the first branch that is
/// metered.
pub fn write_record_key(policies: &PolicySet, key: &Key, id: &ReservationId, text: &mut Vec<u8>) {
    let branch = policies.first_branch(key);
    write_subject(branch.as_bytes(), branch.outermost().len(), text);
    if key.has_branches() {
        text.extend_from_slice(key.as_bytes());
        text.push(b':');
    }
    text.extend_from_slice(id.as_str().as_bytes());
    text.extend_from_slice(format!(":{:016x}:r2", policies.fingerprint()).as_bytes());
}

/// Appends the name of some permits.
pub fn write_permit_key(name: &str, key: &Key, text: &mut Vec<u8>) {
    write_subject(key.as_bytes(), key.outermost().len(), text);
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(PERMITS);
}

/// Appends the levels of a key and a colon. The first `outermost` bytes are the hash tag, which
/// ends there.
#[inline]
fn write_subject(levels: &[u8], outermost: usize, text: &mut Vec<u8>) {
    text.extend_from_slice(&levels[..outermost]);
    text.push(b'}');
    if outermost < levels.len() {
        text.extend_from_slice(&levels[outermost..]);
    }
    text.push(b':');
}
