//! Selects how keys are shown.
//! See `watch/sections.rs` for where a name stands on the screen. Nothing is stored under a digest:
//! it is for people who may not see keys.

use std::{fs, path::PathBuf};

use clap::Args;
use tollgate::{KeySecret, limiter::DeniedKeys};

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
    Digests(KeySecret),
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
            None if self.digest => return Ok(Names::digests(None)),
            None => return Ok(Names::Plain),
        };
        Ok(Names::digests(Some(&secret)))
    }
}

impl Names {
    /// Creates digests with this secret, or with that of this process.
    pub(crate) fn digests(secret: Option<&[u8]>) -> Self {
        Self::Digests(secret.map_or_else(DeniedKeys::process_secret, KeySecret::new))
    }

    /// Sets the name of the key of a state.
    pub(crate) fn apply(&self, entry: &mut StateEntry) {
        if let Some(name) = self.digest(&entry.subject) {
            entry.rename(name);
        }
    }

    /// Returns the digest of an encoded key, as `DeniedKeys` names it.
    pub(crate) fn digest(&self, subject: &str) -> Option<String> {
        match self {
            Self::Digests(secret) => Some(DeniedKeys::digest_of(subject, secret)),
            Self::Plain => None,
        }
    }
}
