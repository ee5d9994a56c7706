//! The states that are asked for, and the pattern by which a server selects them.
//! All that the server has are gone through in `scan.rs`.

use super::state_key::StateKey;

/// Selects states.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// All states of the prefix.
    All,
    /// The states of these encoded keys.
    Subjects(Vec<String>),
}

impl Wanted {
    /// Returns whether the state of this key is wanted.
    pub(super) fn has(&self, key: &StateKey) -> bool {
        matches!(self, Self::All) || self.names(&key.subject)
    }

    /// Returns whether this subject is named.
    pub(super) fn names(&self, subject: &str) -> bool {
        matches!(self, Self::Subjects(subjects) if subjects.iter().any(|named| named == subject))
    }

    /// Returns the outermost level, which stands in braces, of the only subject that is wanted.
    pub(super) fn outermost(&self) -> Option<&str> {
        match self {
            Self::Subjects(subjects) if subjects.len() == 1 => subjects[0].split('>').next(),
            _ => None,
        }
    }

    /// Returns the pattern of Redis by which the server selects keys.
    pub(super) fn pattern(&self, prefix: &str) -> String {
        let prefix = escaped(prefix);
        match self.outermost() {
            Some(outermost) => format!("{prefix}:{{{}}}*", escaped(outermost)),
            None => format!("{prefix}:{{*"),
        }
    }
}

/// Escapes the characters that have a meaning in a pattern of Redis.
fn escaped(prefix: &str) -> String {
    let mut pattern = String::new();
    for character in prefix.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_selects_the_keys_of_a_single_subject() {
        let subjects =
            |all: &[&str]| Wanted::Subjects(all.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(subjects(&["ac*me>ann"]).pattern("t?"), r"t\?:{ac\*me}*");
        assert_eq!(subjects(&["a", "*a"]).pattern("t"), "t:{*");
        assert_eq!(Wanted::All.pattern("t"), "t:{*");
    }
}
