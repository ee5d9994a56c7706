use std::cell::Cell;

use tollgate::Algorithm;

/// An algorithm, and mistakes in its scripts in the form of [`mistakes`].
pub type Mutants = (Algorithm, &'static str);

/// Builds each mistake into the scripts, and expects that a comparison finds it.
///
/// # Panics
///
/// Names the mistakes that were not found, and a mistake whose text is in no script.
pub fn find_mutants(
    mutants: &[Mutants],
    mut is_found: impl FnMut(Algorithm, &dyn Fn(&str) -> String) -> bool,
) {
    let mut survivors = Vec::new();
    let mutants = mutants
        .iter()
        .flat_map(|(algorithm, text)| mistakes(text).map(|mistake| (*algorithm, mistake)));
    for (algorithm, (mistake, right, wrong)) in mutants {
        let alteration = Alteration::new(&right, &wrong);
        let is_found = is_found(algorithm, &|text| alteration.apply(text));
        assert!(
            alteration.was_applied(),
            "the script has no such text: {mistake}"
        );
        if !is_found {
            survivors.push(mistake);
        }
    }
    assert!(survivors.is_empty(), "not found: {survivors:#?}");
}

/// Reads mistakes: a line with the name of each, the lines of the right text behind `-`, and those
/// of the wrong text behind `+`.
pub fn mistakes(text: &str) -> impl Iterator<Item = (&str, String, String)> {
    let mut found: Vec<(&str, Vec<&str>, Vec<&str>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let rest = line.get(1..).unwrap_or_default();
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match (line.as_bytes()[0], found.last_mut()) {
            (b'-', Some((_, right, _))) => right.push(rest),
            (b'+', Some((_, _, wrong))) => wrong.push(rest),
            _ => found.push((line, Vec::new(), Vec::new())),
        }
    }
    let joined =
        |(name, right, wrong): (_, Vec<_>, Vec<_>)| (name, right.join("\n"), wrong.join("\n"));
    found.into_iter().map(joined)
}

/// Replaces a text in scripts by a wrong one, to show that a test finds the mistake.
#[derive(Debug)]
pub struct Alteration<'a> {
    right: &'a str,
    wrong: &'a str,
    was_applied: Cell<bool>,
}

impl<'a> Alteration<'a> {
    /// Creates an alteration that writes `wrong` in place of `right`.
    #[must_use]
    pub fn new(right: &'a str, wrong: &'a str) -> Self {
        Self {
            right,
            wrong,
            was_applied: Cell::new(false),
        }
    }

    /// Returns the altered script. The names of the first policy end in `_1`, and in nothing in a
    /// script of one policy.
    pub fn apply(&self, script: &str) -> String {
        let is_set = script.contains("cost_1");
        let of_script = |text: &str| {
            if is_set {
                text.to_owned()
            } else {
                text.replace("_1", "")
            }
        };
        let altered = script.replace(&of_script(self.right), &of_script(self.wrong));
        self.was_applied
            .set(self.was_applied.get() || altered != script);
        altered
    }

    /// Returns whether some script had the text.
    pub fn was_applied(&self) -> bool {
        self.was_applied.get()
    }
}
