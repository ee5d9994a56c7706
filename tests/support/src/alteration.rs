use std::cell::Cell;

use tollgate::Algorithm;

/// A mistake: what it is, the algorithm, the text of its script, and the wrong text in its place.
pub type Mutant = (&'static str, Algorithm, &'static str, &'static str);

/// Builds each mistake into the scripts, and expects that a comparison finds it.
///
/// # Panics
///
/// Names the mistakes that were not found, and a mistake whose text is in no script.
pub fn find_mutants(
    mutants: &[Mutant],
    mut is_found: impl FnMut(Algorithm, &dyn Fn(&str) -> String) -> bool,
) {
    let mut survivors = Vec::new();
    for &(mistake, algorithm, right, wrong) in mutants {
        let alteration = Alteration::new(right, wrong);
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
