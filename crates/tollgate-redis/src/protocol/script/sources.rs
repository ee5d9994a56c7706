//! The Lua file of each algorithm, and the names that it has for its numbers. The steps in Rust are
//! in `algorithm`, and how the files become a script is in `assembler.rs`.

use tollgate_core::Algorithm;

/// Includes one source file. Fails to compile when the file does not begin with its header: then a
/// link was packed instead of the file.
macro_rules! source {
    ($name:expr) => {{
        const TEXT: &str = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/scripts/",
            $name,
            ".lua"
        ));
        const { assert!(TEXT.as_bytes()[0] == b'-' && TEXT.as_bytes()[1] == b'-') };
        TEXT
    }};
}
pub(super) use source;

/// Describes the file of an algorithm.
#[derive(Debug)]
pub(super) struct AlgorithmSource {
    /// The [name](Algorithm::name) of the algorithm and of its file.
    name: &'static str,
    pub(super) text: &'static str,
    /// The names of the numbers of a policy.
    pub(super) args: &'static [&'static str],
    /// The names of the numbers of a ceiling.
    pub(super) ceiling: &'static [&'static str],
    /// The name of the number that is the ceiling of every other request.
    pub(super) top: &'static str,
}

impl AlgorithmSource {
    /// A window, from which the others differ.
    const fn window(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            args: &["amount", "period"],
            ceiling: &["ceiling"],
            top: "amount",
        }
    }

    const fn bucket(name: &'static str, text: &'static str) -> Self {
        Self {
            args: &["amount", "period", "burst"],
            top: "burst",
            ..Self::window(name, text)
        }
    }

    /// A bucket whose state is a time, as in virtual scheduling.
    const fn virtual_schedule(name: &'static str, text: &'static str) -> Self {
        Self {
            ceiling: &["ceiling", "ceiling_part"],
            top: "top",
            ..Self::bucket(name, text)
        }
    }

    /// Sets the names of the numbers of a policy.
    const fn with_args(mut self, args: &'static [&'static str]) -> Self {
        self.args = args;
        self
    }

    /// Sets the names of the numbers of a ceiling.
    const fn with_ceiling(mut self, ceiling: &'static [&'static str]) -> Self {
        self.ceiling = ceiling;
        self
    }
}

/// Makes the list of a line for each algorithm.
macro_rules! sources {
    ($($name:literal => $make:ident $(.$with:ident($($names:tt)*))*;)*) => {
        &[$(AlgorithmSource::$make($name, source!($name))$(.$with($($names)*))*,)*]
    };
}

/// Lists the files. A test compares the list with the algorithms.
const SOURCES: &[AlgorithmSource] = sources! {
    "token_bucket" => virtual_schedule;
    "interval_bucket" => bucket.with_ceiling(&["ceiling", "ceiling_wait"]);
    "leaky_bucket" => virtual_schedule;
    "fixed_window" => window;
    "calendar_window" => window.with_args(&["amount", "before", "begin", "close", "after"]);
    "window_from_first_hit" => window;
    "sliding_window" => window;
    "sliding_buckets" => window.with_args(&["amount", "width", "buckets"]);
    "sliding_log" => window;
    "lockout" => window.with_args(&["amount", "period", "lock", "longest"]);
};

impl AlgorithmSource {
    /// Returns the source of an algorithm.
    pub(super) fn of(algorithm: Algorithm) -> &'static Self {
        Self::named(algorithm.name())
    }

    /// Returns the place of the source of an algorithm in the list.
    pub(super) fn place_of(algorithm: Algorithm) -> u64 {
        let is_of = |source: &Self| source.name == algorithm.name();
        let place = SOURCES.iter().position(is_of);
        place.unwrap_or_else(|| unreachable!("every algorithm has a script")) as u64
    }

    /// Returns the source with this name.
    pub(super) fn named(name: &str) -> &'static Self {
        SOURCES
            .iter()
            .find(|source| source.name == name)
            .unwrap_or_else(|| unreachable!("no script has the name {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::raw::algorithms;

    #[test]
    fn every_algorithm_has_its_own_source() {
        for algorithm in algorithms() {
            let source = AlgorithmSource::of(algorithm);
            assert!(source.text.starts_with("-- "), "{}", algorithm.name());
            let one = SOURCES.iter().filter(|other| other.text == source.text);
            assert_eq!(one.count(), 1, "{}", algorithm.name());
        }
    }
}
