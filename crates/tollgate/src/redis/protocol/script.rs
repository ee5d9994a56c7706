//! Assembles the Lua scripts from the files in `scripts/`.
//!
//! A script is a frame (`check.lua`, `batch.lua`, `refund.lua`) filled with the sections of each policy's algorithm. So
//! the script for one policy and the script for a set consist of the same source lines. The scripts of a set are
//! assembled once, at the first use. Parameters are never part of the text, so all sets of the same algorithms run the
//! same script.

use std::sync::{Arc, LazyLock};

use crate::{Algorithm, Policy};

/// Holds a script, and the SHA-1 by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) sha: String,
}

/// Includes one source file. Fails to compile when the file does not begin with its header: then a link was packed
/// instead of the file.
macro_rules! source {
    ($name:literal) => {{
        const TEXT: &str = include_str!(concat!("../../../scripts/", $name, ".lua"));
        const { assert!(TEXT.as_bytes()[0] == b'-' && TEXT.as_bytes()[1] == b'-') };
        TEXT
    }};
}

const CHECK: &str = source!("check");
const BATCH: &str = source!("batch");
const REFUND: &str = source!("refund");
const ENTRIES: &str = source!("entries");
const REPLICAS: &str = source!("replicas");

/// Describes an algorithm to the assembler.
struct Part {
    source: &'static str,
    args: &'static [&'static str],
    words: usize,
    /// Tells whether the reply of a single policy leaves out the last word when its amount divides its period.
    parted: bool,
    /// Tells whether the tag of the request is stored.
    tagged: bool,
}

const WORDS: [&str; 4] = ["first", "second", "third", "fourth"];

fn part(algorithm: Algorithm) -> Part {
    const WINDOW: &[&str] = &["amount", "period"];
    const BUCKET: &[&str] = &["amount", "period", "burst"];
    const CUT: &[&str] = &["amount", "width", "buckets"];
    let (source, args) = match algorithm {
        Algorithm::TokenBucket => (source!("token_bucket"), BUCKET),
        Algorithm::IntervalBucket => (source!("interval_bucket"), BUCKET),
        Algorithm::LeakyBucket => (source!("leaky_bucket"), BUCKET),
        Algorithm::FixedWindow => (source!("fixed_window"), WINDOW),
        Algorithm::WindowFromFirstHit => (source!("window_from_first_hit"), WINDOW),
        Algorithm::SlidingWindow => (source!("sliding_window"), WINDOW),
        Algorithm::SlidingBuckets { .. } => (source!("sliding_buckets"), CUT),
        Algorithm::SlidingLog => (source!("sliding_log"), WINDOW),
    };
    let words = algorithm.words();
    let parted = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    let tagged = algorithm == Algorithm::SlidingLog;
    Part { source, args, words, parted, tagged }
}

/// Returns the file that a `like` line names.
fn named(name: &str) -> &'static str {
    match name {
        "fixed_window" => source!("fixed_window"),
        "token_bucket" => source!("token_bucket"),
        _ => unreachable!("a script names a file that does not exist: {name}"),
    }
}

/// Returns the number of words in the reply for each policy of a set.
pub(crate) fn words(policies: &[Arc<Policy>]) -> impl Iterator<Item = usize> {
    let alone = policies.len() == 1;
    policies.iter().map(move |policy| {
        let (part, quota) = (part(policy.algorithm()), policy.quota());
        let whole = quota.period_us().is_multiple_of(quota.amount());
        part.words - usize::from(alone && part.parted && whole)
    })
}

/// Returns the arguments of a policy.
pub(crate) fn args(policy: &Policy) -> impl Iterator<Item = u64> {
    let (quota, cut) = (policy.quota(), policy.buckets());
    part(policy.algorithm()).args.iter().map(move |&name| match name {
        "amount" => quota.amount(),
        "period" => quota.period_us(),
        "burst" => quota.burst(),
        "width" => cut.width_us,
        "buckets" => cut.count,
        _ => unreachable!("a script names an argument that no policy has: {name}"),
    })
}

/// Returns whether a check of these algorithms has a tag argument.
pub(crate) fn is_tagged(algorithms: &[Algorithm]) -> bool {
    algorithms.iter().any(|&algorithm| part(algorithm).tagged)
}

/// Returns the name of an algorithm, without its parameters.
fn name(algorithm: Algorithm) -> String {
    format!("{algorithm:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

impl Script {
    /// Returns the script that decides over policies of these algorithms.
    pub(crate) fn check(algorithms: &[Algorithm]) -> Self {
        Self::assemble(CHECK, algorithms)
    }

    /// Returns the script that decides over policies of these algorithms for many keys.
    pub(crate) fn batch(algorithms: &[Algorithm]) -> Self {
        Self::assemble(BATCH, algorithms)
    }

    /// Returns the script that refunds units to policies of these algorithms.
    pub(crate) fn refund(algorithms: &[Algorithm]) -> Self {
        Self::assemble(REFUND, algorithms)
    }

    /// Returns the script that lists the entries of a log.
    pub(crate) fn entries() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::assemble(ENTRIES, &[Algorithm::SlidingLog]));
        &SCRIPT
    }

    /// Returns the script that counts the processes of a prefix.
    pub(crate) fn replicas() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::assemble(REPLICAS, &[]));
        &SCRIPT
    }

    fn assemble(frame: &str, algorithms: &[Algorithm]) -> Self {
        let parts: Vec<Part> = algorithms.iter().map(|&algorithm| part(algorithm)).collect();
        let names: Vec<String> = algorithms.iter().map(|&algorithm| name(algorithm)).collect();
        let names = if names.is_empty() { "all policies".to_owned() } else { names.join(", ") };
        let mut text = format!("-- tollgate, assembled for: {names}\n");
        for line in frame.lines().filter(|line| !line.starts_with("--") || line.starts_with("--@")) {
            fill(&mut text, line, &parts);
        }
        if frame == BATCH {
            // The batch has read all keys at its start, so they are not read again. A verdict is declared outside the
            // loop.
            for at in 1..=parts.len() {
                let read = format!("pcall('GET', key_{at})");
                text = text.replace(&read, &format!("states[at + {at}]"));
                text = text.replace(&format!("local fits_{at} ="), &format!("fits_{at} ="));
            }
        }
        let sha = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha }
    }
}

fn fill(text: &mut String, line: &str, parts: &[Part]) {
    let code = line.trim_start();
    let indent = &line[..line.len() - code.len()];
    let mut push = |code: &str| {
        text.push_str(indent);
        text.push_str(code);
        text.push('\n');
    };
    let Some(directive) = code.strip_prefix("--@ ") else {
        return push(code);
    };
    let names = |word: &str| -> Vec<String> { (1..=parts.len()).map(|at| format!("{word}_{at}")).collect() };
    match directive.split_once(' ').unwrap_or((directive, "")) {
        ("args", more) => args_lines(parts, more).iter().for_each(|line| push(line)),
        ("counts", _) => {
            push(&format!("local each, counted = {}, ARGV[next_arg]", parts.len()));
        }
        ("keys", base) => {
            for at in 1..=parts.len() {
                match base {
                    "0" => push(&format!("local key_{at} = KEYS[{at}]")),
                    base => push(&format!("local key_{at} = KEYS[{base} + {at}]")),
                }
            }
        }
        ("verdicts", _) => push(&format!("local {}", names("fits").join(", "))),
        ("once", _) => {
            for (at, part) in parts.iter().enumerate() {
                if parts[..at].iter().all(|other| other.source != part.source) {
                    section_lines(part.source, "once").iter().for_each(|line| push(line));
                }
            }
        }
        ("each", section) => {
            for (at, part) in (1..).zip(parts) {
                for line in section_lines(part.source, section) {
                    let line = line.replace("_1", &format!("_{at}"));
                    push(&line);
                }
            }
        }
        ("admitted", _) => push(&format!("local admitted = {}", names("fits").join(" and "))),
        ("reply", _) => {
            signs(parts.len()).for_each(|line| push(&line));
            if let [Part { parted: true, .. }] = parts {
                push("if rest_1 == 0 then return first_1 end");
            }
            push(&format!("return {{ {}, now }}", words_of(parts).collect::<Vec<_>>().join(", ")));
        }
        ("replies", _) => {
            signs(parts.len()).for_each(|line| push(&line));
            push("if counted then");
            push("  place = place + 1");
            push("  replies[place] = granted");
            push("end");
            for word in words_of(parts) {
                let store = ["place = place + 1".to_owned(), format!("replies[place] = {word}")];
                if matches!(parts, [Part { parted: true, .. }]) && word == "second_1" {
                    push("if rest_1 > 0 then");
                    store.iter().for_each(|line| push(&format!("  {line}")));
                    push("end");
                } else {
                    store.iter().for_each(|line| push(line));
                }
            }
        }
        _ => unreachable!("an unknown line in a script: {line}"),
    }
}

/// Returns the lines that read the numbers of a call: packed, or one by one in decimal when a person calls. A refund
/// has one number more. A batch has to know where the counts begin.
fn args_lines(parts: &[Part], more: &str) -> Vec<String> {
    let (is_refund, is_batch) = (more == "spent", more == "counted");
    let is_tagged = !is_refund && parts.iter().any(|part| part.tagged);
    let times: &[&str] = if is_refund { &["now", "cost", "spent"] } else { &["now", "cost"] };
    let own = (1..).zip(parts).flat_map(|(at, part)| part.args.iter().map(move |name| format!("{name}_{at}")));
    let names: Vec<String> = times.iter().map(|&name| name.to_owned()).chain(own).collect();
    let (all, count) = (names.join(", "), names.len());
    let mut lines = vec!["local packed = ARGV[1]".to_owned(), format!("local {all}")];
    lines.extend(is_tagged.then(|| "local tag".to_owned()));
    lines.extend(is_batch.then(|| format!("local next_arg = {}", 2 + usize::from(is_tagged))));
    lines.push(format!("if #packed == {} then", count * 8));
    lines.push(format!("  {all} = unpack('<{}', packed)", "d".repeat(count)));
    lines.extend(is_tagged.then(|| "  tag = ARGV[2]".to_owned()));
    lines.push("else".to_owned());
    for (at, name) in names.iter().enumerate() {
        // The tag comes before the numbers of the policies.
        let arg = at + 1 + usize::from(is_tagged && at >= times.len());
        let absent =
            if name == "now" || name == "spent" { format!("ARGV[{arg}] == '' and -1 or ") } else { String::new() };
        lines.push(format!("  {name} = {absent}ARGV[{arg}] + 0"));
    }
    lines.extend(is_tagged.then(|| "  tag = ARGV[3]".to_owned()));
    lines.extend(is_batch.then(|| format!("  next_arg = {}", count + 1 + usize::from(is_tagged))));
    lines.push("end".to_owned());
    lines
}

/// Returns the lines that negate the first word of a policy that denies.
fn signs(policies: usize) -> impl Iterator<Item = String> {
    (1..=policies).map(|at| format!("if not fits_{at} then first_{at} = -1 - first_{at} end"))
}

/// Returns the names of all words, in the order of the reply.
fn words_of(parts: &[Part]) -> impl Iterator<Item = String> {
    (1..).zip(parts).flat_map(|(at, part)| WORDS[..part.words].iter().map(move |word| format!("{word}_{at}")))
}

/// Returns the lines of a section, with those of the sections that it includes.
fn section_lines(source: &'static str, section: &str) -> Vec<String> {
    if section == "mend" {
        let store = section_lines(source, "store").into_iter().map(|line| format!("  {line}"));
        return std::iter::once("if mended_1 then".to_owned()).chain(store).chain(["end".to_owned()]).collect();
    }
    // One function serves the sections of several files.
    let source = if section == "muldiv" { source!("muldiv") } else { source };
    let header = format!("--@ {section}");
    let mut lines = Vec::new();
    let mut found = false;
    for line in source.lines() {
        if !line.starts_with("--@ ") {
            if !found || line.is_empty() {
                continue;
            }
            let code = line.trim_start();
            match code.strip_prefix("--@ ") {
                Some(included) => {
                    let indent = &line[..line.len() - code.len()];
                    lines.extend(section_lines(source, included).iter().map(|line| format!("{indent}{line}")));
                }
                None => lines.push(line.to_owned()),
            }
        } else if let Some(name) = line.strip_prefix("--@ like ") {
            if lines.is_empty() {
                return section_lines(named(name), section);
            }
            found = false;
        } else {
            found = line == header;
        }
    }
    lines
}

#[cfg(test)]
mod tests;
