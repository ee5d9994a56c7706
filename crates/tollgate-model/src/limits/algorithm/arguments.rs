//! Reads the arguments in the text of an algorithm, and shows a text that is wrong.
//! Which arguments there are is known in the file of each algorithm. The whole text is read in
//! `text.rs`.

/// Returns what stands in the parentheses behind a name.
pub(super) fn arguments(rest: &str) -> Option<&str> {
    rest.strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
}

/// Returns the start of a wrong text, for a message.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}
