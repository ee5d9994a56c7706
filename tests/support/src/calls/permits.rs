use redis::Value;
use tollgate::{
    Error, Key,
    store::{PermitGrant, PermitRequest},
    testing::{permit_script, wire},
};

/// Returns the text of the script that grants permits.
#[must_use]
pub fn permit_text() -> &'static str {
    &permit_script().text
}

/// Returns the key of some permits on the server, with the usual prefix.
#[must_use]
pub fn permit_key(name: &str, key: &Key) -> String {
    let mut text = b"tollgate:{".to_vec();
    wire::write_permit_key(name, key, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the words of `EVALSHA` for a call.
#[must_use]
pub fn permit_call(sha: &str, request: &PermitRequest<'_>, now_us: u64) -> Vec<Vec<u8>> {
    let key = permit_key(request.policy.name(), request.key);
    let packed = wire::pack_permits(now_us as f64, request);
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
    wire::permit_grant(&Value::Array(
        words.iter().map(|&word| Value::Int(word)).collect(),
    ))
}
