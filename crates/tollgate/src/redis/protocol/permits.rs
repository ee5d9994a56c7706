use redis::Value;

use super::call::write_subject;
use crate::{Error, ErrorKind, Key, PermitGrant, PermitOutcome, PermitRequest, clock::micros};

/// The version of the stored form of permits.
const TAG: &[u8] = b":p1";

/// Packs the numbers of a call for permits, as doubles. A time of −1 stands for the server's own clock.
pub(crate) fn pack_permits(now: f64, request: &PermitRequest<'_>) -> [u8; 72] {
    let numbers = [
        now,
        request.limit.into(),
        request.number as f64,
        request.kept.into(),
        request.used.into(),
        request.needed.into(),
        request.extra.into(),
        u8::from(request.waits).into(),
        micros(request.life) as f64,
    ];
    let mut packed = [0; 72];
    for (bytes, number) in packed.as_chunks_mut().0.iter_mut().zip(numbers) {
        *bytes = number.to_le_bytes();
    }
    packed
}

/// Appends the end of the key of some permits, from the hash tag on. The opening brace must be written.
pub(crate) fn write_permit_key(name: &str, key: &Key, text: &mut Vec<u8>) {
    write_subject(key.as_bytes(), key.outermost().len(), text);
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(TAG);
}

/// Reads the reply to a call for permits.
pub(crate) fn permit_grant(reply: &Value) -> Result<PermitGrant, Error> {
    read(reply).ok_or_else(|| Error::new(ErrorKind::Protocol, "redis sent a reply about permits that is not valid"))
}

fn read(reply: &Value) -> Option<PermitGrant> {
    let Value::Array(words) = reply else { return None };
    let number = |at: usize| match words.get(at) {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let outcome = match number(3)? {
        0 => PermitOutcome::Decided,
        1 => PermitOutcome::Overtaken,
        2 => PermitOutcome::Lost,
        3 => PermitOutcome::TooManyReplicas,
        _ => return None,
    };
    Some(PermitGrant { held: u32::try_from(number(0)?).ok()?, in_flight: number(1)?, wanted: number(2)?, outcome })
}
