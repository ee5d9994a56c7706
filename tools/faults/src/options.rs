//! The options of the command line.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{
    pace::Pace,
    rows::{self, Row},
};

pub(crate) const HELP: &str = "\
Usage: cargo xtask faults [--quick] [--write] [--soak] [--runs N] [--server NAME] [ROW…]

  --quick   shorter stalls, fewer repetitions: ends within three minutes
  --write   writes the page, docs/contributors/reliability.md, which a full run of all rows does anyway
  --soak    20 minutes of load instead of the rows (one minute with --quick); its page is docs/contributors/reliability-soak.md
  --runs    raises the rows this many times, and counts those that break
  --server  runs on another server: redis6, redis7, redict7, redis8, valkey8 or valkey9; the page is written under the
            target directory, and its summary into docs/contributors/reliability.md

Rows:";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) pace: Pace,
    pub(crate) runs: u32,
    /// Tells whether the page is written.
    pub(crate) write: bool,
    /// The name of the server, or `soak`; nothing for the rows on the system's server.
    pub(crate) about: Option<String>,
    pub(crate) rows: Vec<&'static Row>,
}

impl Options {
    /// Returns nothing for invalid options.
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
                // The task passes the binary in the environment; here it is only a name.
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

    /// Returns the path of the page. The page of another server is no part of the documentation: it is written beside the
    /// program, and only its summary into `docs`.
    pub(crate) fn page(&self, docs: &Path) -> PathBuf {
        match self.about.as_deref() {
            None => docs.join("reliability.md"),
            Some("soak") => docs.join("reliability-soak.md"),
            Some(server) => {
                let program = env::current_exe().unwrap_or_default();
                program.with_file_name(format!("reliability-{server}.md"))
            }
        }
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
        assert_eq!(
            (full.page(Path::new("docs/contributors")), full.runs),
            ("docs/contributors/reliability.md".into(), 1)
        );
        let redis8 = parse("--server redis8").expect("a server");
        assert!(redis8.write);
        let page = redis8.page(Path::new("docs/contributors"));
        assert!(page.ends_with("reliability-redis8.md") && !page.starts_with("docs"), "{}", page.display());
        for line in ["--quick", "N1", "--quick N1 N2"] {
            assert!(!parse(line).expect("rows").write, "{line}");
        }
        assert!(parse("--quick --write").expect("rows").write);
    }

    #[test]
    fn a_soak_is_a_row_of_its_own() {
        let soak = parse("--soak").expect("a soak");
        assert_eq!((soak.rows.len(), soak.write), (1, true));
        assert_eq!(soak.page(Path::new("docs/contributors")), Path::new("docs/contributors/reliability-soak.md"));
        assert!(parse("--soak N1").is_none());
    }

    #[test]
    fn invalid_options_are_refused() {
        for line in ["--fast", "X1", "--runs", "--runs 0", "--runs many", "--server"] {
            assert!(parse(line).is_none(), "{line}");
        }
        assert_eq!(parse("--runs 20 --quick").expect("runs").runs, 20);
    }
}
