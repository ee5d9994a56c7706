//! The domain and the entries of rules, as an operator names them.
//! The language of the files is read by tollgate-rules. Limits for states in a store are found in
//! `states/limits.rs`.

use tollgate_rules::RuleSet;

use crate::{error::OperatorError, text::shown};

/// Returns the domain with this name, or the only one.
///
/// ```
/// use tollgate_operator::rules;
/// use tollgate_rules::{Format, RuleSet};
///
/// let set = RuleSet::parse("domain: shop", Format::Yaml).unwrap();
/// assert_eq!(rules::domain(&set, None).unwrap(), "shop");
/// let error = rules::domain(&set, Some("other")).unwrap_err();
/// assert_eq!(error.to_string(), "there is no domain \"other\", expected one of shop");
/// ```
///
/// # Errors
///
/// When there is no such domain, and when there are several and none is named.
pub fn domain<'a>(set: &'a RuleSet, name: Option<&'a str>) -> Result<&'a str, OperatorError> {
    let mut domains: Vec<_> = set.domains().collect();
    domains.sort_unstable();
    match (name, &domains[..]) {
        (Some(name), _) if set.has_domain(name) => Ok(name),
        (Some(name), _) => Err(OperatorError::not_found(format_args!(
            "there is no domain {name:?}, expected one of {}",
            shown(&domains.join(", "))
        ))),
        (None, [domain]) => Ok(domain),
        (None, _) => {
            let names = shown(&domains.join(", "));
            Err(OperatorError::refused(format_args!(
                "the files have several domains, choose one: {names}"
            )))
        }
    }
}

/// Reads an entry of a descriptor: its key and its value.
///
/// ```
/// use tollgate_operator::rules::pair;
///
/// assert_eq!(pair("tenant=gold").unwrap(), ("tenant", "gold"));
/// assert!(pair("gold").unwrap_err().is_refused());
/// ```
///
/// # Errors
///
/// When the text has no key and no sign `=`.
pub fn pair(entry: &str) -> Result<(&str, &str), OperatorError> {
    let wrong = || {
        OperatorError::refused(format_args!(
            "entry {entry:?} must have the form KEY=VALUE, because rules are known"
        ))
    };
    entry
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(wrong)
}
