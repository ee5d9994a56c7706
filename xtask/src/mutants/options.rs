use std::{
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::failure::Failure;

/// The default of `--sample`.
const SAMPLE: usize = 20;

/// The libraries that are published, the command, and the service for Envoy.
const PACKAGES: [&str; 6] =
    ["tollgate", "tollgate-tower", "tollgate-tonic", "tollgate-rules", "tollgate-cli", "tollgate-envoy"];

/// Holds the arguments of the task.
#[derive(Debug)]
pub(super) struct Options {
    /// The most mutants to test of each package.
    pub(super) sample: usize,
    /// The seed of the sample.
    pub(super) seed: u64,
    /// Globs of the files to mutate. Empty means all files.
    pub(super) files: Vec<String>,
    pub(super) packages: Vec<String>,
}

impl Options {
    pub(super) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut sample = SAMPLE;
        let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (mut files, mut packages) = (Vec::new(), Vec::new());
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value =
                |what: &str| words.next().cloned().ok_or_else(|| Failure::new(format!("{word} takes {what}")));
            match word.as_str() {
                "--whole" => sample = usize::MAX,
                "--sample" => sample = number(&value("a number")?)?,
                "--seed" => seed = number(&value("a number")?)?,
                "--file" => files.push(value("a glob")?),
                name if PACKAGES.contains(&name) => packages.push(name.to_owned()),
                other => {
                    return Err(Failure::new(format!(
                        "mutants takes --whole, --sample N, --seed N, --file GLOB and the crates {}, got {other:?}",
                        PACKAGES.join(", ")
                    )));
                }
            }
        }
        if packages.is_empty() {
            packages = PACKAGES.map(str::to_owned).into();
        }
        Ok(Self { sample, seed, files, packages })
    }
}

fn number<N: FromStr>(word: &str) -> Result<N, Failure> {
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
        assert_eq!(options.sample, SAMPLE);
        assert_eq!(options.packages, PACKAGES);
    }

    #[test]
    fn crates_files_and_the_seed_are_read() {
        let options = parse("tollgate-tonic --whole --seed 7 --file crates/*/src/key.rs").expect("valid arguments");
        assert_eq!((options.sample, options.seed), (usize::MAX, 7));
        assert_eq!(options.files, ["crates/*/src/key.rs"]);
        assert_eq!(options.packages, ["tollgate-tonic"]);
    }

    #[test]
    fn an_unknown_word_is_named() {
        for (line, part) in [("tollgat", "tollgat"), ("--seed", "--seed"), ("--sample ten", "ten")] {
            assert!(parse(line).expect_err("refused").to_string().contains(part), "{line}");
        }
    }
}
