//! A decision in words, the same for whoever made it.

use tollgate::Decision;

/// Whether it passes, and of each policy what remains and the three waits in microseconds.
pub(crate) fn told(decision: &Decision) -> String {
    let mut words = vec![u64::from(decision.is_allowed()).to_string()];
    for state in decision.states() {
        let waits = [state.retry_after(), Some(state.reset_after()), Some(state.more_after()), Some(state.delay())];
        words.push(state.remaining().to_string());
        words.extend(waits.map(|wait| wait.map_or("-".to_owned(), |wait| wait.as_micros().to_string())));
    }
    words.join(" ")
}
