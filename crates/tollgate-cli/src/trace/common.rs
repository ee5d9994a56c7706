//! Reads the common and the combined log format of Apache and nginx, also with a virtual host in
//! front.
//! Names of fields are given in `fields.rs`; other formats have files of their own.

use super::fields::Fields;

/// Reads `HOST IDENT USER [TIME] "REQUEST" STATUS BYTES "REFERER" "USER AGENT"`. What follows the
/// request may be missing.
pub(super) fn parse(line: &str) -> Option<Fields> {
    let (words, time) = words(line)?;
    let (host, ip, user) = match &words[..time] {
        [ip, _, user] => (None, ip, user),
        // A virtual host stands before the address.
        [host, ip, _, user] => (Some(host), ip, user),
        _ => return None,
    };
    let mut fields = Fields::default();
    if let Some(host) = host {
        fields.set("host", host.as_str());
    }
    fields.set("ip", ip.as_str());
    fields.set_unless_dash("user", user);
    fields.set("time", words.get(time)?.as_str());
    let request = words.get(time + 1)?;
    fields.set("request", request.as_str());
    for (name, value) in ["status", "bytes", "referer", "user_agent"]
        .iter()
        .zip(&words[time + 2..])
    {
        fields.set_unless_dash(name, value);
    }
    Some(fields)
}

/// Splits a line at spaces outside of quotes and brackets. Returns the words, and which of them
/// stands in brackets.
fn words(line: &str) -> Option<(Vec<String>, usize)> {
    let (mut words, mut time) = (Vec::new(), None);
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let after;
        match first {
            '[' => {
                let (word, behind) = rest[1..].split_once(']')?;
                time = time.or(Some(words.len()));
                words.push(word.to_owned());
                after = behind;
            }
            '"' => {
                let (word, behind) = quoted(&rest[1..])?;
                words.push(word);
                after = behind;
            }
            _ => {
                let end = rest.find(' ').unwrap_or(rest.len());
                words.push(rest[..end].to_owned());
                after = &rest[end..];
            }
        }
        rest = after.trim_start_matches(' ');
    }
    time.map(|time| (words, time))
}

/// Reads up to the closing quote. A backslash keeps the next character as it is.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((word, &text[at + 1..])),
            '\\' => word.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => word.push(character),
        }
    }
    None
}
