use std::{collections::BTreeMap, fmt, fs, path::Path};

use super::sample::file;
use crate::failure::Failure;

/// The share of the viable mutants that the tests have to notice, in percent.
const TARGET: f64 = 92.0;

/// The page that lists the mutants that change nothing.
const PAGE: &str = "docs/contributors/mutants.md";

/// The file of the tool that lists the mutants that the tests noticed.
pub(super) const NOTICED: &str = "caught.txt";

/// Holds the outcome of one run of the tool.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    noticed: Vec<String>,
    missed: Vec<String>,
    /// Mutants that do not compile.
    unviable: Vec<String>,
}

/// Holds the outcomes of all mutants of a package that were tested.
#[derive(Debug)]
pub(super) struct Results {
    /// The number of mutants that the package has.
    all: usize,
    sum: Outcome,
}

/// Describes the results of one package.
#[derive(Debug)]
pub(super) struct Report {
    package: String,
    all: usize,
    /// For each file, the number of viable mutants tested, and of those noticed.
    files: BTreeMap<String, (usize, usize)>,
    equal: usize,
    /// Mutants that do not compile.
    unviable: usize,
    survivors: Vec<String>,
}

impl Outcome {
    /// Reads the lists that the tool writes.
    pub(super) fn read(directory: &Path) -> Result<Self, Failure> {
        let lines = |name: &str| -> Result<Vec<String>, Failure> {
            let path = directory.join(name);
            let text = fs::read_to_string(&path)
                .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        let mut noticed = lines(NOTICED)?;
        noticed.extend(lines("timeout.txt")?);
        Ok(Self { noticed, missed: lines("missed.txt")?, unviable: lines("unviable.txt")? })
    }
}

impl Results {
    pub(super) fn new(all: usize) -> Self {
        Self { all, sum: Outcome::default() }
    }

    /// Adds the mutants that were noticed, or do not compile. Returns those that were missed.
    pub(super) fn add(&mut self, outcome: Outcome) -> Vec<String> {
        self.sum.noticed.extend(outcome.noticed);
        self.sum.unviable.extend(outcome.unviable);
        outcome.missed
    }

    /// Adds mutants that all tests missed.
    pub(super) fn miss(&mut self, mutants: Vec<String>) {
        self.sum.missed.extend(mutants);
    }

    /// Returns the report. A missed mutant that the page lists as equal is left out of the count.
    pub(super) fn report(self, package: &str, known: &[String]) -> Report {
        let Self { all, sum } = self;
        let (equal, survivors): (Vec<String>, Vec<String>) =
            sum.missed.into_iter().partition(|mutant| known.contains(&name(mutant)));
        let mut files: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for mutant in &sum.noticed {
            let count = files.entry(file(mutant).to_owned()).or_default();
            *count = (count.0 + 1, count.1 + 1);
        }
        for mutant in &survivors {
            files.entry(file(mutant).to_owned()).or_default().0 += 1;
        }
        let unviable = sum.unviable.len();
        Report { package: package.to_owned(), all, files, equal: equal.len(), unviable, survivors }
    }
}

impl Report {
    fn tested(&self) -> usize {
        self.files.values().map(|(tested, _)| tested).sum()
    }

    fn share(&self) -> f64 {
        let tested = self.tested();
        let noticed = tested - self.survivors.len();
        match (tested, self.unviable) {
            (0, 0) => 100.0,
            // Something else than the mutants keeps the tests from compiling.
            (0, _) => 0.0,
            _ => 100.0 * noticed as f64 / tested as f64,
        }
    }

    pub(super) fn is_enough(&self) -> bool {
        self.share() >= TARGET
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tested, share) = (self.tested(), self.share());
        writeln!(
            f,
            "{}: {tested} viable mutants of {} tested, {share:.1} % noticed (target {TARGET} %)",
            self.package, self.all
        )?;
        writeln!(f, "{} more are listed in {PAGE} as equal", self.equal)?;
        for (file, (tested, noticed)) in &self.files {
            writeln!(f, "  {noticed:4} of {tested:4}  {file}")?;
        }
        for survivor in &self.survivors {
            writeln!(f, "  not noticed: {survivor}")?;
        }
        Ok(())
    }
}

/// Returns the name of a mutant without its place, which moves with every edit: `file: change`.
fn name(mutant: &str) -> String {
    let mut parts = mutant.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(change)) => format!("{file}:{change}"),
        _ => mutant.to_owned(),
    }
}

/// Reads the mutants that change nothing from their page: the text between the first two backticks of each table row.
pub(super) fn known_equal(root: &Path) -> Result<Vec<String>, Failure> {
    let text =
        fs::read_to_string(root.join(PAGE)).map_err(|error| Failure::new(format!("cannot read {PAGE}: {error}")))?;
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    Ok(text.lines().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
        let mut results = Results::new(10);
        let missed = results.add(Outcome {
            noticed: lines(&["a.rs:1:2: replace < with > in f", "b.rs:1:1: replace g with ()"]),
            missed: lines(&["a.rs:7:1: replace h with ()", "a.rs:9:9: replace + with - in k"]),
            unviable: lines(&["b.rs:3:1: replace l with Default::default()"]),
        });
        results.miss(missed);
        results
    }

    #[test]
    fn the_share_is_that_of_the_viable_mutants_that_are_not_equal() {
        let report = results().report("a", &[]);
        assert!((report.share() - 50.0).abs() < 0.01 && !report.is_enough());
        let report = results().report("a", &["a.rs: replace h with ()".to_owned()]);
        assert_eq!((report.tested(), report.equal, report.survivors.len()), (3, 1, 1));
        let text = report.to_string();
        assert!(text.contains("not noticed: a.rs:9:9: replace + with - in k"), "{text}");
    }

    #[test]
    fn a_run_in_which_no_mutant_compiled_is_not_enough() {
        let mut none = Results::new(10);
        assert!(none.report("a", &[]).is_enough(), "no mutant was asked for");
        none = Results::new(10);
        none.add(Outcome { unviable: vec!["a.rs:1:2: replace < with > in f".to_owned()], ..Outcome::default() });
        assert!(!none.report("a", &[]).is_enough());
    }

    #[test]
    fn the_page_of_equal_mutants_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root of the workspace");
        for known in known_equal(root).expect("the page is there") {
            assert!(root.join(file(&known)).is_file(), "{PAGE} names a file that is not there: {known}");
        }
    }
}
