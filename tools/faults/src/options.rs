//! What the command line asks for.

use crate::rows::{self, Row};

pub(crate) const HELP: &str = "\
Usage: cargo xtask faults [--quick] [--write] [--soak] [--runs N] [--server redis8|valkey8] [ROW…]

  --quick   shorter stalls, fewer repetitions: ends within three minutes
  --write   writes the page, docs/reliability.md, which a full run of all rows does anyway
  --soak    20 minutes of load instead of the rows (one with --quick); its page is docs/reliability-soak.md
  --runs    raises the rows so often, and counts those that break
  --server  takes Redis 8 or Valkey 8, unpacked beside the system, instead of the server found; the page is
            docs/reliability-NAME.md

Rows:";

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) is_quick: bool,
}

impl Pace {
    /// One number for a full run, another for a quick one.
    pub(crate) fn of<T>(self, full: T, quick: T) -> T {
        if self.is_quick { quick } else { full }
    }
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) pace: Pace,
    pub(crate) runs: u32,
    /// Whether the page is written.
    pub(crate) write: bool,
    /// What the page is about, where that is not the rows on the server found.
    pub(crate) about: Option<String>,
    pub(crate) rows: Vec<&'static Row>,
}

impl Options {
    /// `None` when they make no sense.
    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let (mut is_quick, mut write, mut soak, mut runs, mut server) = (false, false, false, 1, None);
        let mut rows = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => is_quick = true,
                "--write" => write = true,
                "--soak" => soak = true,
                "--runs" => runs = words.next()?.parse().ok().filter(|runs| *runs > 0)?,
                // The task has found it and told by the environment; here it is a name alone.
                "--server" => server = Some(words.next()?.clone()),
                id => rows.push(rows::ALL.iter().find(|row| row.id == id)?),
            }
        }
        let is_whole = rows.is_empty();
        if soak {
            if !is_whole {
                return None;
            }
            rows.push(&rows::SOAK);
        } else if is_whole {
            rows = rows::ALL.iter().collect();
        }
        let about = if soak { Some("soak".to_owned()) } else { server };
        Some(Self { pace: Pace { is_quick }, runs, write: write || is_whole && !is_quick, about, rows })
    }

    /// The page's name in `docs`.
    pub(crate) fn page(&self) -> String {
        self.about.as_ref().map_or_else(|| "reliability.md".to_owned(), |about| format!("reliability-{about}.md"))
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
    fn a_full_run_of_all_rows_writes_its_page() {
        let full = parse("").expect("nothing is asked for");
        assert!(full.write && full.rows.len() == rows::ALL.len());
        assert_eq!((full.page().as_str(), full.runs), ("reliability.md", 1));
        let redis8 = parse("--server redis8").expect("a server");
        assert!(redis8.write);
        assert_eq!(redis8.page(), "reliability-redis8.md");
        for line in ["--quick", "N1", "--quick N1 N2"] {
            assert!(!parse(line).expect("rows").write, "{line}");
        }
        assert!(parse("--quick --write").expect("rows").write);
    }

    #[test]
    fn a_soak_is_a_row_of_its_own() {
        let soak = parse("--soak").expect("a soak");
        assert_eq!((soak.rows.len(), soak.page().as_str(), soak.write), (1, "reliability-soak.md", true));
        assert!(parse("--soak N1").is_none());
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for line in ["--fast", "X1", "--runs", "--runs 0", "--runs many", "--server"] {
            assert!(parse(line).is_none(), "{line}");
        }
        assert_eq!(parse("--runs 20 --quick").expect("runs").runs, 20);
    }
}
