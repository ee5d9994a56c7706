//! Selects how keys are shown.
//! See `watch/sections.rs` for where a name stands on the screen. Nothing is stored under a digest:
//! it is for people who may not see keys.

use std::{fs, hash::BuildHasher, path::PathBuf};

use clap::Args;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::entry::StateEntry;
use crate::failure::Failure;

/// The options for names of keys.
#[derive(Args, Debug)]
pub(crate) struct NameOptions {
    /// Shows digests of keys, because keys may be addresses or names of people
    #[arg(long)]
    digest: bool,

    /// Makes the digests with the secret in this file, so that they equal those of `DeniedKeys`;
    /// implies --digest
    #[arg(long, value_name = "FILE")]
    digest_secret: Option<PathBuf>,
}

/// Names keys.
#[derive(Debug)]
pub(crate) enum Names {
    Plain,
    Digests(Hmac<Sha256>),
}

impl NameOptions {
    /// Reads the secret, or makes one for this run.
    pub(crate) fn load(&self) -> Result<Names, Failure> {
        let secret = match &self.digest_secret {
            Some(path) => {
                let read = fs::read(path);
                let secret = read.map_err(|error| {
                    Failure::new(format_args!("--digest-secret {}: {error}", path.display()))
                })?;
                // An editor ends the last line of a file.
                secret.strip_suffix(b"\n").unwrap_or(&secret).to_vec()
            }
            None if self.digest => random_secret(),
            None => return Ok(Names::Plain),
        };
        match Hmac::new_from_slice(&secret) {
            Ok(mac) => Ok(Names::Digests(mac)),
            Err(error) => Err(Failure::new(format_args!("--digest-secret: {error}"))),
        }
    }
}

impl Names {
    /// Creates digests with this secret, or with one of this process.
    pub(crate) fn digests(secret: Option<&[u8]>) -> Result<Self, Failure> {
        let secret = secret.map_or_else(random_secret, <[u8]>::to_vec);
        match Hmac::new_from_slice(&secret) {
            Ok(mac) => Ok(Self::Digests(mac)),
            Err(error) => Err(Failure::new(format_args!("the secret of digests: {error}"))),
        }
    }

    /// Sets the name of the key of a state.
    pub(crate) fn apply(&self, entry: &mut StateEntry) {
        if let Some(name) = self.digest(&entry.subject) {
            entry.rename(name);
        }
    }

    /// Returns the digest of a key, as `DeniedKeys::digest` makes it.
    pub(crate) fn digest(&self, subject: &str) -> Option<String> {
        let Self::Digests(mac) = self else {
            return None;
        };
        let mut mac = mac.clone();
        mac.update(b"digest of a key\0");
        mac.update(subject.as_bytes());
        Some(
            mac.finalize().into_bytes()[..16]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }
}

/// Returns 256 bits from the random keys of the standard library's hash maps.
fn random_secret() -> Vec<u8> {
    (0..4_u64)
        .flat_map(|at| std::hash::RandomState::new().hash_one(at).to_le_bytes())
        .collect()
}
