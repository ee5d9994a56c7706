//! Makes names for metrics and policies.
//! Which texts of a rule go into a name is decided in `compile/`, and of a request, in `matching/`.

use tollgate::{Key, KeySecret};

/// Returns the name of one level: the key, and the value if there is one.
pub(crate) fn metric_part(key: &str, value: &str) -> String {
    if value.is_empty() {
        key.to_owned()
    } else {
        format!("{key}_{value}")
    }
}

/// Replaces the characters that separate names in metrics: `:`, `|` and the dots of IPv4 addresses.
pub(crate) fn stat_name(text: &str) -> String {
    let text = text.replace([':', '|'], "_");
    let bytes = text.as_bytes();
    let mut name = String::with_capacity(text.len());
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        match ipv4_len(&bytes[at..]) {
            Some(len) => {
                name.push_str(&text[copied..at]);
                name.push_str(&text[at..at + len].replace('.', "_"));
                at += len;
                copied = at;
            }
            None => at += 1,
        }
    }
    name.push_str(&text[copied..]);
    name
}

/// Returns the length of four groups of one to three digits with dots between them, at the start of
/// the text.
fn ipv4_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    for group in 0..4 {
        if group > 0 {
            at += (bytes.get(at) == Some(&b'.')).then_some(1)?;
        }
        let digits = bytes[at..]
            .iter()
            .take(3)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        at += (digits > 0).then_some(digits)?;
    }
    Some(at)
}

/// Makes the name of a policy from a text: 1 to 64 characters of `A-Z a-z 0-9 - _ . /`.
///
/// A text with other characters, or a longer one, gets a digest at its end, so that different texts
/// stay different.
pub(crate) fn policy_name(text: &str) -> String {
    let is_allowed = |sign: char| sign.is_ascii_alphanumeric() || "-_./".contains(sign);
    if !text.is_empty() && text.len() <= 64 && text.chars().all(is_allowed) {
        return text.to_owned();
    }
    let plain: String = text
        .chars()
        .map(|sign| if is_allowed(sign) { sign } else { '-' })
        .take(51)
        .collect();
    // The digest is the same in every process and every version: the counters in the store belong
    // to the name.
    let digest = Key::secret(text, &KeySecret::new(b"name of a policy"));
    format!("{plain}.{}", &digest.encoded()[1..13])
}
