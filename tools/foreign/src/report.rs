//! The report: a line for each row as its group ends, and the scoreboard as a page of Markdown.

use std::fmt::Write;

use crate::{
    case::{Case, Line},
    groups::Group,
};

/// The cases of a row of the scoreboard.
#[derive(Debug)]
struct Row {
    name: String,
    client: String,
    cases: Vec<Case>,
    notes: Vec<String>,
}

impl Row {
    fn failed(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| !case.is_passed)
    }

    /// A row without a case shows nothing, so it does not count as passed.
    fn is_passed(&self) -> bool {
        !self.cases.is_empty() && self.failed().next().is_none()
    }

    fn score(&self) -> String {
        format!("{} of {}", self.cases.len() - self.failed().count(), self.cases.len())
    }

    /// Says why the row fails, or what was found.
    fn reason(&self) -> String {
        let failed = self.failed().map(|it| format!("{}: expected {}, found {}", it.name, it.expected, it.found));
        let only = match self.cases.as_slice() {
            [only] if only.is_passed && self.notes.is_empty() => Some(only.found.clone()),
            _ => None,
        };
        failed.chain(self.notes.iter().cloned()).chain(only).collect::<Vec<_>>().join("; ")
    }
}

/// The report of a run.
#[derive(Debug)]
pub(crate) struct Report {
    is_quick: bool,
    groups: Vec<(&'static Group, Option<Vec<Row>>)>,
}

impl Report {
    pub(crate) const fn new(is_quick: bool) -> Self {
        Self { is_quick, groups: Vec::new() }
    }

    /// Adds a group with the lines of its scripts, or nothing where it could not be carried out. Prints its rows.
    pub(crate) fn add(&mut self, group: &'static Group, lines: Option<Vec<Line>>) {
        let rows = lines.map(rows);
        match &rows {
            None => println!("{}: NOT CARRIED OUT, see above", group.name),
            Some(rows) if rows.is_empty() => println!("{}: NOT CARRIED OUT: its scripts printed no case", group.name),
            Some(rows) => {
                for row in rows {
                    let verdict = if row.is_passed() { "passed" } else { "FAILED" };
                    println!("{}: {}: {} {verdict}; {}", group.name, row.name, row.score(), row.reason());
                }
            }
        }
        self.groups.push((group, rows.filter(|rows| !rows.is_empty())));
    }

    /// Returns whether all groups were carried out and all cases passed.
    pub(crate) fn is_good(&self) -> bool {
        !self.groups.is_empty()
            && self.groups.iter().all(|(_, rows)| rows.as_ref().is_some_and(|rows| rows.iter().all(Row::is_passed)))
    }

    /// Counts groups, rows and cases.
    pub(crate) fn tally(&self) -> String {
        let broken = self.groups.iter().filter(|(_, rows)| rows.is_none()).count();
        let rows: Vec<_> = self.groups.iter().flat_map(|(_, rows)| rows).flatten().collect();
        let failed = rows.iter().filter(|row| !row.is_passed()).count();
        let cases: usize = rows.iter().map(|row| row.cases.len()).sum();
        let failed_cases: usize = rows.iter().map(|row| row.failed().count()).sum();
        format!(
            "{} groups, {broken} not carried out; {} rows, {failed} failed; {cases} cases, {failed_cases} failed",
            self.groups.len(),
            rows.len()
        )
    }

    /// Returns the scoreboard.
    pub(crate) fn markdown(&self, clients: &[String]) -> String {
        let pace = if self.is_quick { " This was a quick run." } else { "" };
        let mut page = format!(
            "# Foreign clients\n\n\
             Written by `cargo xtask foreign`.{pace} {}.\n\n\
             Clients and proxies that were written elsewhere use Tollgate as a stranger would. Each row is a set of cases; \
             a case has an expected answer, and a case with another answer fails the run. The clients come from PyPI, with \
             pinned versions: {}. Machine: {}. Everything runs over loopback.\n",
            self.tally(),
            clients.join(", "),
            tollgate_tests::machine::describe().join(", "),
        );
        page.push_str("\n| group | rows passed | cases passed | |\n|---|---|---|---|\n");
        for (group, rows) in &self.groups {
            let rows = rows.as_deref();
            let (title, sums, verdict) = (group.title, rows.map_or("– | –".to_owned(), sums), verdict(rows));
            let _ = writeln!(page, "| {title} | {sums} | {verdict} |");
        }
        for (group, rows) in &self.groups {
            let _ = write!(page, "\n## {}\n\n{}\n\n", group.title, group.about);
            let Some(rows) = rows else {
                page.push_str("**Not carried out.**\n");
                continue;
            };
            let _ = writeln!(page, "<details><summary>{} rows</summary>\n", rows.len());
            page.push_str("| row | client | cases passed | | found |\n|---|---|---|---|---|\n");
            for row in rows {
                let verdict = if row.is_passed() { "passed" } else { "**failed**" };
                let (score, reason) = (row.score(), row.reason().replace('|', "\\|"));
                let _ = writeln!(page, "| {} | {} | {score} | {verdict} | {reason} |", row.name, row.client);
            }
            page.push_str("\n</details>\n");
        }
        page
    }
}

/// Formats the rows and the cases of a group that passed.
fn sums(rows: &[Row]) -> String {
    let passed = rows.iter().filter(|row| row.is_passed()).count();
    let (cases, failed) =
        rows.iter().fold((0, 0), |(cases, failed), row| (cases + row.cases.len(), failed + row.failed().count()));
    format!("{passed} of {} | {} of {cases}", rows.len(), cases - failed)
}

fn verdict(rows: Option<&[Row]>) -> &'static str {
    match rows {
        None => "**not carried out**",
        Some(rows) if rows.iter().all(Row::is_passed) => "passed",
        Some(_) => "**failed**",
    }
}

/// Collects the lines by row, in the order of the first case of each.
fn rows(lines: Vec<Line>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in lines {
        let (name, client) = match &line {
            Line::Case(case) => (&case.row, case.client.as_str()),
            Line::Note { row, .. } => (row, ""),
        };
        let at = rows.iter().position(|row| row.name == *name).unwrap_or_else(|| {
            rows.push(Row { name: name.clone(), client: client.to_owned(), cases: Vec::new(), notes: Vec::new() });
            rows.len() - 1
        });
        match line {
            Line::Case(case) => rows[at].cases.push(case),
            Line::Note { text, .. } => rows[at].notes.push(text),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups;

    fn case(row: &str, expected: &str, found: &str) -> Line {
        let passed = expected == found;
        let line = serde_json::json!({
            "row": row, "client": "curl 7", "case": "GET", "expected": expected, "found": found, "passed": passed,
        });
        Line::parse(&line.to_string()).expect("the form of a case")
    }

    fn report(lines: Option<Vec<Line>>) -> Report {
        let mut report = Report::new(false);
        report.add(&groups::ALL[0], lines);
        report
    }

    #[test]
    fn a_case_with_another_answer_fails_its_row_and_the_run() {
        let report = report(Some(vec![case("one", "200", "200"), case("two", "429", "200"), case("one", "1", "1")]));
        assert!(!report.is_good());
        assert_eq!(report.tally(), "1 groups, 0 not carried out; 2 rows, 1 failed; 3 cases, 1 failed");
        let page = report.markdown(&["curl 7".to_owned()]);
        assert!(page.contains("| one | curl 7 | 2 of 2 | passed |"), "{page}");
        assert!(page.contains("| two | curl 7 | 0 of 1 | **failed** | GET: expected 429, found 200 |"), "{page}");
        let sums = format!("| {} | 1 of 2 | 2 of 3 | **failed** |", groups::ALL[0].title);
        assert!(page.contains(&sums), "{page}");
    }

    #[test]
    fn a_group_without_a_case_fails_the_run() {
        assert!(report(Some(vec![case("one", "200", "200")])).is_good());
        assert!(!report(Some(Vec::new())).is_good());
        assert!(!report(None).is_good());
        let note = Line::Note { row: "one".to_owned(), text: "nothing was tried".to_owned() };
        assert!(!report(Some(vec![note])).is_good());
        assert!(!Report::new(false).is_good());
    }

    #[test]
    fn a_line_of_another_form_is_no_case() {
        for line in ["", "Traceback", "{}", r#"{"row": "one", "client": "curl", "case": "GET", "passed": "true"}"#] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
    }
}
