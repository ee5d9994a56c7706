//! The end of what limiters want of the task of a store: when they drop it. What they want is in the
//! files beside.

/// Returns those that a limiter holds still, and forgets all others.
pub(super) fn held<W, T>(asked: &mut Vec<W>, upgrade: impl Fn(&W) -> Option<T>) -> Vec<T> {
    let mut held = Vec::new();
    asked.retain(|asked| {
        let one = upgrade(asked);
        let is_held = one.is_some();
        held.extend(one);
        is_held
    });
    held
}
