//! A decision as one line of text.

use tollgate::Decision;

/// Describes a decision: 1 or 0 for allowed or denied, then of each policy the remaining units and
/// the four times in microseconds.
#[must_use]
pub fn described(decision: &Decision) -> String {
    let mut words = vec![u64::from(decision.is_allowed()).to_string()];
    for state in decision.states() {
        let waits = [
            state.retry_after(),
            Some(state.reset_after()),
            Some(state.next_unit_after()),
            Some(state.delay()),
        ];
        words.push(state.remaining().to_string());
        words.extend(
            waits.map(|wait| wait.map_or("-".to_owned(), |wait| wait.as_micros().to_string())),
        );
    }
    words.join(" ")
}
