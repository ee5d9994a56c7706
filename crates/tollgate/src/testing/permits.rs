use redis::Value;

use crate::{
    Error, Key, Limiter,
    clock::Clock,
    model::Concurrency,
    permits::ConcurrencyLimiter,
    redis::{Script, pack_permits, permit_grant, write_permit_key},
    store::{PermitGrant, PermitRequest},
};

/// Returns a call that states nothing.
#[must_use]
pub fn permit_request<'a>(policy: &'a Concurrency, key: &'a Key) -> PermitRequest<'a> {
    PermitRequest {
        policy,
        key,
        limit: policy.limit(),
        replica: 0,
        number: 0,
        kept: 0,
        used: 0,
        needed: 0,
        extra: 0,
        waits: false,
        life: policy.life(),
        deadline: None,
    }
}

/// Returns the text of the script that grants permits.
#[must_use]
pub fn permit_text() -> &'static str {
    &Script::permits().text
}

/// Returns the key of some permits on the server, with the usual prefix.
#[must_use]
pub fn permit_key(name: &str, key: &Key) -> String {
    let mut text = b"tollgate:{".to_vec();
    write_permit_key(name, key, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the words of `EVALSHA` for a call.
#[must_use]
pub fn permit_call(sha: &str, request: &PermitRequest<'_>, now_us: u64) -> Vec<Vec<u8>> {
    let key = permit_key(request.policy.name(), request.key);
    let packed = pack_permits(now_us as f64, request);
    [
        &b"EVALSHA"[..],
        sha.as_bytes(),
        b"1",
        key.as_bytes(),
        &packed,
        &request.replica.to_le_bytes(),
    ]
    .map(<[u8]>::to_vec)
    .into()
}

/// Reads the reply to a call.
///
/// # Errors
///
/// The reply is not one that the script makes.
pub fn read_permits(words: &[i64]) -> Result<PermitGrant, Error> {
    permit_grant(&Value::Array(
        words.iter().map(|&word| Value::Int(word)).collect(),
    ))
}

/// Returns a limit on the store of this limiter whose replica reads this clock.
#[must_use]
pub fn concurrency_at(limiter: &Limiter, policy: Concurrency, clock: Clock) -> ConcurrencyLimiter {
    ConcurrencyLimiter::on(limiter.inner().clone(), policy, clock)
}
