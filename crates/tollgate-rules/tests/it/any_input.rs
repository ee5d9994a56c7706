//! Any text is read or refused, and never more than that.

use proptest::prelude::*;
use tollgate_rules::{Compat, Descriptor, Format, RuleSet};

use super::envoy::{SHOP, SHOP_JSON, SHOP_TOML};

/// Replaces a part of a text by another text.
fn spliced(text: &str, at: usize, len: usize, new: &str) -> String {
    let signs: Vec<char> = text.chars().collect();
    let start = at % (signs.len() + 1);
    let end = (start + len).min(signs.len());
    signs[..start]
        .iter()
        .copied()
        .chain(new.chars())
        .chain(signs[end..].iter().copied())
        .collect()
}

fn read(text: &str, format: Format) -> Result<(), TestCaseError> {
    for compat in [Compat::Native, Compat::Envoy] {
        match RuleSet::builder().compat(compat).parse(text, format) {
            Ok(set) => {
                let descriptor = Descriptor::from([("tenant", "gold"), ("route", "/export")]);
                let found = set.find("shop", &descriptor);
                let _ = found.map(|found| (found.key(), found.metric_name().into_owned()));
                let _ = set.explain("shop", &descriptor).to_string();
            }
            Err(errors) => {
                prop_assert!(errors.count() > 0);
                for error in errors.iter() {
                    prop_assert!(
                        error.line() != Some(0) && error.column() != Some(0),
                        "{}",
                        error
                    );
                    prop_assert!(
                        !error.to_string().contains(char::is_control),
                        "{:?}",
                        error.to_string()
                    );
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_damaged_file_is_read_or_refused_with_its_place(
        splices in prop::collection::vec((0..2_000_usize, 0..20_usize, "[a-z{}\\[\\]:,\"'&*!|>#\\-\n\t /0-9]{0,6}|\\PC{0,3}"), 1..4),
    ) {
        for (text, format) in [(SHOP, Format::Yaml), (SHOP_JSON, Format::Json), (SHOP_TOML, Format::Toml)] {
            let damaged = splices.iter().fold(text.to_owned(), |text, (at, len, new)| spliced(&text, *at, *len, new));
            read(&damaged, format)?;
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z{}\\[\\]:,\"'&*!|>#?%@`\\-\n\t\r /0-9]{0,80}|(?s).{0,40}") {
        for format in [Format::Yaml, Format::Json, Format::Toml] {
            read(&text, format)?;
        }
    }
}
