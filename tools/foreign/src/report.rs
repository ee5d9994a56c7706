//! The report: the table of a group as it ends, and the counts of all.

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
        format!(
            "{} of {}",
            self.cases.len() - self.failed().count(),
            self.cases.len()
        )
    }

    /// Says why the row fails, or what was found.
    fn reason(&self) -> String {
        let failed = self
            .failed()
            .map(|it| format!("{}: expected {}, found {}", it.name, it.expected, it.found));
        let only = match self.cases.as_slice() {
            [only] if only.is_passed && self.notes.is_empty() => Some(only.found.clone()),
            _ => None,
        };
        failed
            .chain(self.notes.iter().cloned())
            .chain(only)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// Counts what was tried.
#[derive(Debug, Default)]
pub(crate) struct Report {
    groups: usize,
    broken: usize,
    rows: usize,
    failed_rows: usize,
    cases: usize,
    failed_cases: usize,
}

impl Report {
    /// Counts a group with the lines of its scripts, or nothing where it could not be carried out.
    /// Returns its table.
    pub(crate) fn add(&mut self, group: &Group, lines: Option<Vec<Line>>) -> String {
        self.groups += 1;
        let mut table = format!("## {}\n\n{}\n\n", group.title, group.about);
        // A group whose scripts printed no case shows nothing.
        let rows = rows(lines.unwrap_or_default());
        if rows.is_empty() {
            self.broken += 1;
            return table + "**Not carried out.**\n";
        }
        table.push_str("| row | client | cases passed | | found |\n");
        for row in rows {
            self.rows += 1;
            self.failed_rows += usize::from(!row.is_passed());
            self.cases += row.cases.len();
            self.failed_cases += row.failed().count();
            let verdict = if row.is_passed() {
                "passed"
            } else {
                "**failed**"
            };
            let (score, reason) = (row.score(), row.reason().replace('|', "\\|"));
            table += &format!(
                "| {} | {} | {score} | {verdict} | {reason} |\n",
                row.name, row.client
            );
        }
        table
    }

    /// Returns whether all groups were carried out and all cases passed.
    pub(crate) fn is_good(&self) -> bool {
        self.groups > 0 && self.broken == 0 && self.failed_rows == 0
    }

    /// Tells the counts of groups, rows and cases.
    pub(crate) fn tally(&self) -> String {
        let Self {
            groups,
            broken,
            rows,
            failed_rows,
            cases,
            failed_cases,
        } = self;
        format!(
            "{groups} groups, {broken} not carried out; {rows} rows, {failed_rows} failed; {cases} cases, {failed_cases} failed"
        )
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
        let at = rows
            .iter()
            .position(|row| row.name == *name)
            .unwrap_or_else(|| {
                rows.push(Row {
                    name: name.clone(),
                    client: client.to_owned(),
                    cases: Vec::new(),
                    notes: Vec::new(),
                });
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

    fn report(lines: Option<Vec<Line>>) -> (Report, String) {
        let mut report = Report::default();
        let table = report.add(&groups::ALL[0], lines);
        (report, table)
    }

    #[test]
    fn a_case_with_another_answer_fails_its_row_and_the_run() {
        let cases = vec![
            case("one", "200", "200"),
            case("two", "429", "200"),
            case("one", "1", "1"),
        ];
        let (report, table) = report(Some(cases));
        assert!(!report.is_good());
        assert_eq!(
            report.tally(),
            "1 groups, 0 not carried out; 2 rows, 1 failed; 3 cases, 1 failed"
        );
        assert!(
            table.contains("| one | curl 7 | 2 of 2 | passed |"),
            "{table}"
        );
        assert!(
            table.contains("| two | curl 7 | 0 of 1 | **failed** | GET: expected 429, found 200 |"),
            "{table}"
        );
    }

    #[test]
    fn a_group_without_a_case_fails_the_run() {
        assert!(report(Some(vec![case("one", "200", "200")])).0.is_good());
        let note = Line::Note {
            row: "one".to_owned(),
            text: "nothing was tried".to_owned(),
        };
        for lines in [Some(Vec::new()), None, Some(vec![note])] {
            assert!(!report(lines).0.is_good());
        }
        assert!(!Report::default().is_good());
    }

    #[test]
    fn a_line_of_another_form_is_no_case() {
        for line in [
            "",
            "Traceback",
            "{}",
            r#"{"row": "one", "client": "curl", "case": "GET", "passed": "true"}"#,
        ] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
    }
}
