//! The options of the command line.

use crate::groups::{self, Group};

pub(crate) const HELP: &str = "\
Usage: cargo xtask foreign [--quick] [--write] [--optional] [GROUP…]

  --quick     two replicas are loaded for 5 s instead of a minute
  --write     writes the page, docs/contributors/foreign.md, which a full run of all groups does anyway
  --optional  without the clients, prints a loud line and succeeds

Groups:";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) is_quick: bool,
    /// Tells whether the page is written.
    pub(crate) is_written: bool,
    pub(crate) groups: Vec<&'static Group>,
}

impl Options {
    /// Returns nothing for invalid options.
    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let (mut is_quick, mut is_written) = (false, false);
        let mut chosen = Vec::new();
        for word in words {
            match word.as_str() {
                "--quick" => is_quick = true,
                "--write" => is_written = true,
                name => chosen.push(groups::ALL.iter().find(|group| group.name == name)?),
            }
        }
        if chosen.is_empty() {
            is_written |= !is_quick;
            chosen.extend(groups::ALL);
        }
        Some(Self { is_quick, is_written, groups: chosen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Options> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn a_full_run_of_all_groups_writes_its_page() {
        let full = parse("").expect("nothing is asked for");
        assert!(full.is_written && !full.is_quick && full.groups.len() == groups::ALL.len());
        for line in ["--quick", "fields", "--quick fields kinds"] {
            assert!(!parse(line).expect("groups").is_written, "{line}");
        }
        assert!(parse("--quick --write").expect("groups").is_written);
    }

    #[test]
    fn invalid_options_are_refused() {
        for line in ["--fast", "no-such-group"] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
