//! Reads files and directories.
//! Texts become trees in `document/`, and trees become rules in `compile/`. Changes of files are
//! noticed in `reload/`.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{Format, Limits, RuleError, RuleErrorKind, error::Position};

/// Lists the files of a directory that have a format, by name.
pub(crate) fn directory(path: &Path, limits: &Limits) -> Result<Vec<PathBuf>, RuleError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| unreadable(error, "the directory"))? {
        let path = entry
            .map_err(|error| unreadable(error, "the directory"))?
            .path();
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_hidden || Format::of_path(&path).is_none() || path.is_dir() {
            continue;
        }
        if files.len() == limits.files {
            let message = format!(
                "a directory must have at most {} files of rules",
                limits.files
            );
            return Err(RuleError::new(RuleErrorKind::Limit, message));
        }
        files.push(path);
    }
    if files.is_empty() {
        let message = "the directory has no file of rules, expected a name that ends in .yaml, .yml, .json or .toml";
        return Err(RuleError::new(RuleErrorKind::Io, message));
    }
    files.sort();
    Ok(files)
}

/// Reads a file of rules, whose name says its format.
pub(crate) fn rules(path: &Path, limits: &Limits) -> Result<(String, Format), RuleError> {
    let Some(format) = Format::of_path(path) else {
        let message = "unknown format, expected a name that ends in .yaml, .yml, .json or .toml";
        return Err(RuleError::new(RuleErrorKind::Io, message));
    };
    Ok((text(path, limits)?, format))
}

/// Reads a file as a text.
pub(crate) fn text(path: &Path, limits: &Limits) -> Result<String, RuleError> {
    let bytes = read_whole(path, limits, || {})?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        RuleError::new(RuleErrorKind::Syntax, "the file is not valid UTF-8")
            .at(Position::of_byte(&text, valid))
    })
}

/// The size and the time of a file. A writer that replaces the content in place changes them.
type Stamp = (u64, Option<SystemTime>);

/// Reads a file, again when it changed meanwhile. `after_read` runs between a read and the test.
fn read_whole(
    path: &Path,
    limits: &Limits,
    mut after_read: impl FnMut(),
) -> Result<Vec<u8>, RuleError> {
    for _ in 0..3 {
        // To open a pipe waits for its writer.
        let kind = fs::metadata(path)
            .map_err(|error| unreadable(error, "the file"))?
            .file_type();
        if !kind.is_file() {
            let found = if kind.is_dir() {
                "a directory"
            } else {
                "a pipe, a socket or a device"
            };
            return Err(RuleError::new(
                RuleErrorKind::Io,
                format!("expected a file, got {found}"),
            ));
        }
        let mut file = File::open(path).map_err(|error| unreadable(error, "the file"))?;
        let before = stamp(&file, limits)?;
        // Room for the whole file, so that one call of the system reads it.
        let mut bytes = Vec::with_capacity(before.0 as usize + 1);
        let most = limits.bytes as u64 + 1;
        (&mut file)
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(error, "the file"))?;
        after_read();
        if bytes.len() > limits.bytes {
            return Err(limits.too_many_bytes(bytes.len() as u64));
        }
        if stamp(&file, limits)? == before && before.0 == bytes.len() as u64 {
            return Ok(bytes);
        }
    }
    let message = "the file changed each time it was read, write another file and rename it";
    Err(RuleError::new(RuleErrorKind::Limit, message))
}

fn stamp(file: &File, limits: &Limits) -> Result<Stamp, RuleError> {
    let metadata = file
        .metadata()
        .map_err(|error| unreadable(error, "the file"))?;
    if metadata.len() > limits.bytes as u64 {
        return Err(limits.too_many_bytes(metadata.len()));
    }
    Ok((metadata.len(), metadata.modified().ok()))
}

fn unreadable(error: io::Error, what: &str) -> RuleError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "the permission is missing".to_owned(),
        _ => error.to_string(),
    };
    RuleError::io(format!("cannot read {what}: {reason}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules.yaml");
        fs::write(&path, "domain: half").unwrap();
        let mut reads = 0;
        let bytes = read_whole(&path, &Limits::default(), || {
            reads += 1;
            if reads == 1 {
                fs::write(&path, "domain: half and the rest").unwrap();
            }
        });
        assert_eq!(
            (bytes.unwrap().as_slice(), reads),
            (b"domain: half and the rest".as_slice(), 2)
        );

        let mut reads = 0;
        let error = read_whole(&path, &Limits::default(), || {
            reads += 1;
            fs::write(&path, "#".repeat(reads)).unwrap();
        });
        assert_eq!(error.unwrap_err().kind(), RuleErrorKind::Limit);
        assert_eq!(reads, 3);
    }
}
