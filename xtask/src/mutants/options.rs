use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::failure::Failure;

/// The default of `--minutes`.
const MINUTES: Duration = Duration::from_secs(60 * 60);

/// The libraries that are published, the command, and the service for Envoy.
const PACKAGES: [&str; 6] =
    ["tollgate", "tollgate-tower", "tollgate-tonic", "tollgate-rules", "tollgate-cli", "tollgate-envoy"];

/// Holds the arguments of the task.
#[derive(Debug)]
pub(super) struct Options {
    /// The end of the run. `None` tests every mutant.
    pub(super) until: Option<Instant>,
    /// The seed of the sample.
    pub(super) seed: u64,
    /// Globs of the files to mutate. Empty means all files.
    pub(super) files: Vec<String>,
    pub(super) packages: Vec<String>,
}

impl Options {
    pub(super) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut minutes = Some(MINUTES);
        let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (mut files, mut packages) = (Vec::new(), Vec::new());
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value =
                |what: &str| words.next().cloned().ok_or_else(|| Failure::new(format!("{word} takes {what}")));
            match word.as_str() {
                "--whole" => minutes = None,
                "--minutes" => minutes = Some(Duration::from_secs(60 * number(&value("a number")?)?)),
                "--seed" => seed = number(&value("a number")?)?,
                "--file" => files.push(value("a glob")?),
                name if PACKAGES.contains(&name) => packages.push(name.to_owned()),
                other => {
                    return Err(Failure::new(format!(
                        "mutants takes --whole, --minutes N, --seed N, --file GLOB and the crates {}, got {other:?}",
                        PACKAGES.join(", ")
                    )));
                }
            }
        }
        if packages.is_empty() {
            packages = PACKAGES.map(str::to_owned).into();
        }
        Ok(Self { until: minutes.map(|minutes| Instant::now() + minutes), seed, files, packages })
    }
}

fn number(word: &str) -> Result<u64, Failure> {
    word.parse().map_err(|_| Failure::new(format!("a whole number is needed, got {word:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Failure> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn without_arguments_every_crate_is_sampled() {
        let options = parse("").expect("the defaults");
        assert!(options.until.is_some());
        assert_eq!(options.packages, PACKAGES);
    }

    #[test]
    fn crates_files_and_the_seed_are_read() {
        let options = parse("tollgate-tonic --whole --seed 7 --file crates/*/src/key.rs").expect("valid arguments");
        assert_eq!((options.until, options.seed), (None, 7));
        assert_eq!(options.files, ["crates/*/src/key.rs"]);
        assert_eq!(options.packages, ["tollgate-tonic"]);
    }

    #[test]
    fn an_unknown_word_is_named() {
        for (line, part) in [("tollgat", "tollgat"), ("--seed", "--seed"), ("--minutes ten", "ten")] {
            assert!(parse(line).expect_err("refused").to_string().contains(part), "{line}");
        }
    }
}
