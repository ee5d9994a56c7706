//! The options that bound the size, the depth and the number of files of rules, against hostile or
//! broken ones.
//! They are kept in `budget.rs` while a tree grows, and in `load.rs` before that.

use crate::error::{RuleError, RuleErrorKind};

/// Bounds the time and the memory that a file of rules may take.
///
/// A file beyond a limit is refused. The defaults allow some 100 000 descriptors.
///
/// ```
/// use tollgate_rules::{Format, Limits, RuleSet};
///
/// let limits = Limits { bytes: 1_000, ..Limits::default() };
/// let errors = RuleSet::builder().limits(limits).parse(&"#".repeat(2_000), Format::Yaml).unwrap_err();
/// assert_eq!(errors.to_string(), "a file must have at most 1000 bytes, got 2000");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a file. The default is 16 MiB.
    pub bytes: usize,
    /// The most values of a file: scalars, lists and mappings. Each use of an alias counts. The
    /// default is 1 000 000.
    pub nodes: usize,
    /// The most lists and mappings around a value. Each level of descriptors takes two. The default
    /// is 64, the most is 100.
    pub depth: usize,
    /// The most files of a directory. The default is 1 000.
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 16 << 20,
            nodes: 1_000_000,
            depth: 64,
            files: 1_000,
        }
    }
}

impl Limits {
    /// Lowers the depth to what the recursive readers can take.
    pub(crate) fn capped(mut self) -> Self {
        self.depth = self.depth.min(100);
        self
    }

    pub(crate) fn too_many_bytes(&self, bytes: u64) -> RuleError {
        RuleError::new(
            RuleErrorKind::Limit,
            format!("a file must have at most {} bytes, got {bytes}", self.bytes),
        )
    }
}
