//! Digests of the texts of a set, so that operators see which replica enforces which rules.
//! Without these, `loading.rs` finds what has changed on the disk since a load.

use std::{fmt::Write as _, path::Path};

use sha2::{Digest as _, Sha256};
use tollgate::store::RulesDigest;

/// Makes the digest of a set from its texts.
///
/// The digest of one text is that of `sha256sum`. That of several is made of their names, without
/// directories, and their digests, as `sha256sum * | sha256sum` does it.
#[derive(Default)]
pub(super) struct Digests(Vec<(String, String)>);

impl Digests {
    /// Adds a text, and the file from which it comes.
    pub(super) fn add(&mut self, file: Option<&Path>, text: &str) {
        let name = file
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy().into_owned());
        self.0
            .push((name.unwrap_or_default(), hex(text.as_bytes())));
    }

    /// Returns the digest of all texts.
    pub(super) fn finish(&self) -> RulesDigest {
        let digits = match &self.0[..] {
            [(_, digits)] => digits.clone(),
            texts => {
                let mut lines = String::new();
                for (name, digits) in texts {
                    // Writing to a text cannot fail.
                    let _ = writeln!(lines, "{digits}  {name}");
                }
                hex(lines.as_bytes())
            }
        };
        // 64 digits are a digest.
        digits.parse().unwrap_or(RulesDigest::new([0; 8]))
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
