//! Reads a page of metrics in the text format of Prometheus.
//!
//! The parsers on crates.io split labels at each comma, and the names of rules may have commas.
//!
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

// Pages are fetched in `endpoint.rs`, and series are added up in `figures.rs`.

use std::collections::BTreeMap;

use tollgate_operator::text::shown;

/// Names one series of a page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
}

/// Returns the series whose names have this beginning, with their values. Lines that are none are
/// left out.
pub(super) fn read(page: &str, beginning: &str) -> BTreeMap<Series, f64> {
    page.lines()
        .filter(|line| line.trim_start().starts_with(beginning))
        .filter_map(sample)
        .collect()
}

fn sample(line: &str) -> Option<(Series, f64)> {
    let line = line.trim();
    let (name, rest) = line.split_at(line.find(|sign: char| sign == '{' || sign.is_whitespace())?);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    // A time may follow.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((
        Series {
            name: shown(name),
            labels,
        },
        value,
    ))
}

/// Reads labels up to the brace behind them, and returns what follows.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches(|sign: char| sign == ',' || sign.is_whitespace());
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start())?;
        labels.insert(shown(name.trim()), shown(&value));
        rest = after;
    }
}

/// Reads a text in quotation marks, and returns what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut signs = text.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match signs.next()?.1 {
                'n' => value.push('\n'),
                sign => value.push(sign),
            },
            sign => value.push(sign),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, labels: &[(&str, &str)]) -> Series {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Series {
            name: name.to_owned(),
            labels,
        }
    }

    #[test]
    fn labels_may_hold_commas_braces_and_escaped_signs() {
        let page = "# HELP a_total Things.\n# TYPE a_total counter\na_total 3\n\
                    a_total{rule=\"x,y=\\\"}{\",b=\"\\\\n\\n\",} 1.5e3 1700000000000\n  a_total { le = \"+Inf\" } +Inf\n\
                    a_bad NaN\nother 7\n";
        let read = read(page, "a_");
        assert_eq!(read[&series("a_total", &[])], 3.0);
        assert_eq!(
            read[&series("a_total", &[("rule", "x,y=\"}{"), ("b", "\\n\\u{a}")])],
            1500.0
        );
        assert!(read[&series("a_bad", &[])].is_nan());
        assert_eq!(
            read.keys().filter(|series| series.name == "other").count(),
            0
        );
    }

    #[test]
    fn lines_that_are_no_samples_are_left_out() {
        for line in [
            "a_",
            "a_total",
            "a_total{",
            "a_total{x",
            "a_total{x=\"",
            "a_total{x=\"\\",
            "a_total{} x",
            "<html>",
        ] {
            assert!(read(line, "a_").is_empty(), "{line}");
        }
    }
}
