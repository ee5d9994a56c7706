//! The options for the names of keys.
//! Digests are made by the core.

use std::{fs, path::PathBuf};

use clap::Args;
use tollgate_operator::states::Names;

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
