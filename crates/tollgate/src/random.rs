use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns 64 random bits.
///
/// The keys of a [`RandomState`] stem from the operating system, and no two of a process are alike.
/// So nobody can guess the bits, and other processes have others.
pub(crate) fn bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns the name of a thing that no other process names: 128 random bits in hexadecimal digits.
pub(crate) fn name() -> String {
    format!("{:016x}{:016x}", bits(), bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_length_and_differ() {
        let names: std::collections::HashSet<String> = (0..1_000).map(|_| name()).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.len() == 32));
    }
}
