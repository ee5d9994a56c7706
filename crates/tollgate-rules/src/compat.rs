//! The choice between Tollgate's meaning of a file and that of Envoy's service, and the table of
//! all differences.
//! The differences themselves are coded where they matter: look for `is_envoy`.

use std::fmt;

/// Selects the meaning of rules where Tollgate and Envoy's rate limit service differ.
///
/// A file chooses the mode with the field `compat: native` or `compat: envoy` at its root. A file
/// without the field has the mode of [`RuleSetBuilder::compat`](crate::RuleSetBuilder::compat),
/// which is native by default. All files of one set must have the same mode.
///
/// A file of Envoy's service means the same in both modes, apart from these points:
///
/// | point | native | `envoy` |
/// |---|---|---|
/// | denied requests | are free | are charged, on every descriptor |
/// | `hits_addend: 0`, which tests and spends nothing | is denied when no unit is left | passes until the limit was exceeded |
/// | a descriptor with `is_negative_hits` | gives units back as the algorithm does, before others are charged | lowers the counter, which may stay above the limit, in the order of the request |
/// | key and value | are compared as a pair | are compared as `key_value`, so (`a`, `b_c`) is (`a_b`, `c`) |
/// | `*` in a key | is refused | makes a pattern that can match any key |
/// | a request value equal to a pattern's text | matches patterns in file order | matches that pattern first |
/// | an empty request value | matches the default of the key | looks up `key_` first |
/// | units near the limit, in metrics | are above four fifths | are above four fifths in 24 bits of precision |
/// | counters | differ for all domains, keys, values and policies | have the name `domain_key_value_…` |
/// | `requests_per_unit` missing | is refused | is 0: every request is denied |
/// | `unlimited` with an unknown `unit` | is refused | is accepted |
/// | a number with a leading zero, such as `010` | is refused | is octal, as in YAML 1.1 |
/// | `yes`, `no`, `on`, `off` (YAML 1.1) | are texts | are booleans where a boolean is expected |
/// | `metadata` with `detailed_metric` or `value_to_metric` | is returned | is lost |
/// | [additions of Tollgate](crate#files), such as `quota` and `enforce` | are allowed | are refused |
///
/// Some files that Envoy's service accepts are refused in both modes:
///
/// - a field that appears twice in one mapping (Envoy's service takes the last one),
/// - a known field in the wrong mapping, and a second document (Envoy's service ignores both),
/// - numbers such as `1_000` and `0b11` of YAML 1.1.
///
/// Envoy's service does not know the field `compat` itself. For a file that both services read, set
/// the mode in code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compat {
    /// The language with Tollgate's additions and without quirks.
    #[default]
    Native,
    /// The language as Envoy's rate limit service (`envoyproxy/ratelimit`) reads it.
    Envoy,
}

impl Compat {
    /// Returns the word for the field `compat`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Envoy => "envoy",
        }
    }

    pub(crate) fn is_envoy(self) -> bool {
        self == Self::Envoy
    }
}

impl fmt::Display for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
