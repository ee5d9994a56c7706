//! Fills a frame with the sections of each policy's algorithm.

use super::parts::{LEASED, Part, named};

const WORDS: [&str; 4] = ["first", "second", "third", "fourth"];

/// The bytes of the record of a reservation before those of its policies, and those of each policy.
const HEAD: usize = 24;
const ENTRY: usize = 40;

/// Appends the lines that stand for one line of a frame.
pub(super) fn fill(text: &mut String, line: &str, parts: &[Part]) {
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
            push(&format!("local each, counted = {}, ARGV[next_arg]", keys_of(parts)));
        }
        ("policies", _) => push(&format!("local each = {}", keys_of(parts))),
        ("numbers", _) => number_lines(parts).iter().for_each(|line| push(line)),
        ("quotas", _) => {
            let names: Vec<String> = names_of(parts).collect();
            push(&format!("local {}", names.join(", ")));
            push(&unpacked(&names));
        }
        ("costs", _) => push(&format!("local {}", run_of(parts).collect::<Vec<_>>().join(", "))),
        ("states", _) => push("local states = call('MGET', unpack(KEYS))"),
        ("sizes", _) => size_lines(parts).iter().for_each(|line| push(line)),
        ("tag", _) if is_tagged(parts) => push("local tag = ARGV[at / each + 2]"),
        ("keys", base) => {
            let mut place = 0;
            for (at, part) in (1..).zip(parts) {
                for name in if part.leased { &["key", "account"][..] } else { &["key"] } {
                    place += 1;
                    match base.parse::<usize>() {
                        Ok(before) => push(&format!("local {name}_{at} = KEYS[{}]", before + place)),
                        Err(_) => push(&format!("local {name}_{at} = KEYS[{base} + {place}]")),
                    }
                }
            }
        }
        ("untagged", _) if is_tagged(parts) => push("local tag = ''"),
        ("tag" | "untagged", _) => {}
        ("size", _) => push(&format!("local size = {}", HEAD + parts.len() * ENTRY)),
        ("record", _) => record_lines(parts).iter().for_each(|line| push(line)),
        ("held", _) => held_lines(parts).iter().for_each(|line| push(line)),
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
                for line in lines_of(part, section) {
                    let line = line.replace("_1", &format!("_{at}"));
                    push(&line);
                }
            }
        }
        ("if", rest) => {
            let (condition, sections) = rest.split_once(" do ").unwrap_or((rest, ""));
            for (at, part) in (1..).zip(parts) {
                let of_policy = |line: &str| line.replace("_1", &format!("_{at}"));
                push(&of_policy(&format!("if {condition} then")));
                for line in sections.split(' ').flat_map(|section| lines_of(part, section)) {
                    push(&of_policy(&format!("  {line}")));
                }
                push("end");
            }
        }
        ("line", line) => (1..=parts.len()).for_each(|at| push(&line.replace("_1", &format!("_{at}")))),
        ("free", line) => {
            let costs: Vec<String> = names("cost").iter().map(|cost| format!("{cost} == 0")).collect();
            push(&format!("if {} then", costs.join(" and ")));
            push(&format!("  {line}"));
            push("end");
        }
        ("run", _) => push(&run_line(parts)),
        ("admitted", _) => push(&format!("local admitted = {}", names("fits").join(" and "))),
        ("reply", _) => {
            signs(parts.len()).for_each(|line| push(&line));
            if let [Part { parted: true, .. }] = parts {
                push("if rest_1 == 0 then return first_1 end");
            }
            push(&format!("return {{ {}, now }}", words_of(parts).collect::<Vec<_>>().join(", ")));
        }
        ("replies", "all") => {
            signs(parts.len()).for_each(|line| push(&line));
            push("replies[place + 1] = granted");
            let mut count = 1;
            for word in words_of(parts) {
                count += 1;
                push(&format!("replies[place + {count}] = {word}"));
            }
            push(&format!("place = place + {count}"));
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

/// Returns the lines that read the numbers of a call: packed, or one by one in decimal when a person calls. `more` names a
/// number that only this frame has. A batch has to know where the counts begin.
fn args_lines(parts: &[Part], more: &str) -> Vec<String> {
    let (is_refund, is_batch) = (more == "spent", more == "counted");
    // The calls of a reservation name the life of the record, or the number of the commit, before the costs.
    let is_held = matches!(more, "life" | "number");
    let is_tagged = !is_refund && is_tagged(parts);
    let first = ["now".to_owned()].into_iter().chain(is_held.then(|| more.to_owned()));
    let ceilings = ceilings_of(parts).filter(|_| !is_refund);
    let own = first.chain(costs_of(parts)).chain(ceilings).chain(is_refund.then(|| "spent".to_owned()));
    let own: Vec<String> = own.collect();
    let tag_at = own.len();
    let last = |at: usize| [format!("last_{at}"), format!("last_part_{at}")];
    let queued = (1..).zip(parts).filter(|(_, part)| is_refund && part.queued).flat_map(|(at, _)| last(at));
    let names: Vec<String> = own.into_iter().chain(names_of(parts)).chain(queued).collect();
    let (all, count) = (names.join(", "), names.len());
    if is_held && all == locals(&names) {
        return vec![format!("local {all} = unpack('<{}', ARGV[1])", "d".repeat(count))];
    }
    let mut lines = declared(&names);
    if is_held {
        lines.push(format!("{all} = unpack('<{}', ARGV[1])", "d".repeat(count)));
        return lines;
    }
    lines.insert(0, "local packed = ARGV[1]".to_owned());
    lines.extend(is_tagged.then(|| "local tag".to_owned()));
    lines.extend(is_batch.then(|| format!("local next_arg = {}", 2 + usize::from(is_tagged))));
    lines.push(format!("if #packed == {} then", count * 8));
    lines.push(format!("  {all} = unpack('<{}', packed)", "d".repeat(count)));
    lines.extend(is_tagged.then(|| "  tag = ARGV[2]".to_owned()));
    lines.push("else".to_owned());
    for (at, name) in names.iter().enumerate() {
        // The tag comes before the numbers of the policies.
        let arg = at + 1 + usize::from(is_tagged && at >= tag_at);
        let absent =
            if name == "now" || name == "spent" { format!("ARGV[{arg}] == '' and -1 or ") } else { String::new() };
        lines.push(format!("  {name} = {absent}ARGV[{arg}] + 0"));
    }
    lines.extend(is_tagged.then(|| format!("  tag = ARGV[{}]", tag_at + 1)));
    lines.extend(is_batch.then(|| format!("  next_arg = {}", count + 1 + usize::from(is_tagged))));
    lines.push("end".to_owned());
    lines
}

/// Returns the lines that read the number of entries of each log, before anything is written.
fn size_lines(parts: &[Part]) -> Vec<String> {
    let each = keys_of(parts);
    let logs = parts.iter().enumerate().filter(|(_, part)| part.tagged);
    let lines = |(at, _)| {
        let first = keys_of(&parts[..at]) + 1;
        let head = format!("for at = {first}, #KEYS, {each} do");
        [head, "  states[at] = size_of(KEYS[at])".to_owned(), "end".to_owned()]
    };
    logs.flat_map(lines).collect()
}

/// Returns the lines that build the record of a reservation, with the words of a denial as in a reply.
fn record_lines(parts: &[Part]) -> Vec<String> {
    let mut lines: Vec<String> = signs(parts.len()).collect();
    let words = |at: usize, part: &Part| {
        let words = WORDS.iter().enumerate();
        let words = words.map(|(place, word)| if place < part.words { format!("{word}_{at}") } else { "0".to_owned() });
        format!("cost_{at}, {}", words.collect::<Vec<_>>().join(", "))
    };
    lines.push("record = {".to_owned());
    lines.push("  pack('<ddd', lapse, 0, now),".to_owned());
    lines.extend((1..).zip(parts).map(|(at, part)| format!("  pack('<ddddd', {}),", words(at, part))));
    lines.push("}".to_owned());
    lines.push("record = table.concat(record)".to_owned());
    lines
}

/// Returns the lines that compare the final cost of each policy with its cost in the record. The cost becomes the
/// difference.
fn held_lines(parts: &[Part]) -> Vec<String> {
    let of_policy = |(at, part): (usize, &Part)| {
        let mut lines = vec!["local more_1 = false".to_owned()];
        if part.queued {
            lines.push("local last_1, last_part_1".to_owned());
        }
        lines.push("do".to_owned());
        lines.push(format!("  local held, first, second = unpack('<ddd', record, {})", HEAD + (at - 1) * ENTRY + 1));
        if part.queued {
            // The words of a leased policy count what replicas held, which may have come back.
            let words = if part.leased { "-1, 0" } else { "first, second" };
            lines.push(format!("  last_1, last_part_1 = {words}"));
        }
        lines.push("  more_1, cost_1 = cost_1 > held, math.min(math.abs(held - cost_1), 9007199254740991)".to_owned());
        lines.push("end".to_owned());
        lines.into_iter().map(move |line| line.replace("_1", &format!("_{at}")))
    };
    (1..).zip(parts).flat_map(of_policy).collect()
}

/// Returns the lines that read the numbers of one subject of a mixed batch, and the first of its runs.
fn number_lines(parts: &[Part]) -> Vec<String> {
    let numbers = names_of(parts).chain(["runs".to_owned()]).chain(run_of(parts));
    let names: Vec<String> = numbers.collect();
    let mut lines = declared(&names);
    lines.push(unpacked(&names));
    lines
}

/// Returns the lines that declare numbers. Those of ceilings are in a table: the largest set would have too many locals.
fn declared(names: &[String]) -> Vec<String> {
    let table = names.iter().any(|name| name.contains('.')).then(|| "local limits = {}".to_owned());
    [format!("local {}", locals(names))].into_iter().chain(table).collect()
}

/// Returns the numbers that are locals.
fn locals(names: &[String]) -> String {
    let own: Vec<&str> = names.iter().map(String::as_str).filter(|name| !name.contains('.')).collect();
    own.join(", ")
}

/// Returns the line that reads the next run of a mixed batch.
fn run_line(parts: &[Part]) -> String {
    unpacked(&run_of(parts).collect::<Vec<_>>())
}

/// Returns the line that reads the next numbers of a mixed batch.
fn unpacked(names: &[String]) -> String {
    let format = "d".repeat(names.len());
    format!("{}, next_byte = unpack('<{format}', packed, next_byte)", names.join(", "))
}

/// Returns the names of the numbers of a run.
fn run_of(parts: &[Part]) -> impl Iterator<Item = String> {
    costs_of(parts).chain(ceilings_of(parts)).chain(["count".to_owned()])
}

/// Returns the names of the costs for all policies.
fn costs_of(parts: &[Part]) -> impl Iterator<Item = String> {
    (1..=parts.len()).map(|at| format!("cost_{at}"))
}

/// Returns the names of the numbers of the ceilings for all policies.
fn ceilings_of(parts: &[Part]) -> impl Iterator<Item = String> {
    (1..).zip(parts).flat_map(|(at, part)| part.ceiling.iter().map(move |name| format!("limits.{name}_{at}")))
}

/// Returns the names of the numbers of all policies.
fn names_of(parts: &[Part]) -> impl Iterator<Item = String> {
    const LEASE: &[&str] = &["length", "most"];
    let names = |part: &Part| part.args.iter().chain(if part.leased { LEASE } else { &[] });
    (1..).zip(parts).flat_map(move |(at, part)| names(part).map(move |name| format!("{name}_{at}")))
}

/// Returns whether a request over these policies has a tag.
fn is_tagged(parts: &[Part]) -> bool {
    parts.iter().any(|part| part.tagged)
}

/// Returns the lines that negate the first word of a policy that denies.
fn signs(policies: usize) -> impl Iterator<Item = String> {
    (1..=policies).map(|at| format!("if not fits_{at} then first_{at} = -1 - first_{at} end"))
}

/// Returns the names of all words, in the order of the reply.
fn words_of(parts: &[Part]) -> impl Iterator<Item = String> {
    (1..).zip(parts).flat_map(|(at, part)| WORDS[..part.words].iter().map(move |word| format!("{word}_{at}")))
}

/// Returns the number of keys on the server that a subject has.
pub(super) fn keys_of(parts: &[Part]) -> usize {
    parts.iter().map(|part| 1 + usize::from(part.leased)).sum()
}

/// Returns the lines of a section for a policy.
fn lines_of(part: &Part, section: &str) -> Vec<String> {
    let source = part.source;
    let is_capped = !part.ceiling.is_empty();
    let lines = match section {
        _ if part.leased => leased_lines_of(part, section),
        "fits" if is_capped => [section_lines(source, section), section_lines(source, "later")].concat(),
        // A check under a ceiling may leave a debt.
        "store" if is_capped && part.queued => section_lines(source, "store_owed"),
        "refund" if part.queued => [section_lines(source, "last"), section_lines(source, section)].concat(),
        // What is not stored is not corrected either.
        "settle" if part.looks => section_lines(source, section).iter().map(|line| owed(line)).collect(),
        _ => section_lines(source, section),
    };
    match is_capped {
        true => lines.iter().map(|line| line.replace("ceiling_", "limits.ceiling_")).collect(),
        // Without a ceiling of its own, a check has that of the quota.
        false => lines.iter().map(|line| line.replace("ceiling", part.top)).collect(),
    }
}

/// Returns the line that reads a state as a debt, in the place of the one that looks for its mark.
fn owed(line: &str) -> String {
    match line.split_once("local is_owed = ") {
        Some((indent, _)) => format!("{indent}local is_owed = true"),
        None => line.to_owned(),
    }
}

/// Returns the lines of a section for a leased policy. Some sections are those of its algorithm in a frame.
fn leased_lines_of(part: &Part, section: &str) -> Vec<String> {
    let Some((_, text)) = LEASED.split_once(&format!("\n--@ {section}\n")) else {
        return section_lines(part.source, section);
    };
    let text = text.split("\n\n").next().unwrap_or_default();
    // The most units that fit, and the word that holds the time until missing units have lapsed.
    let whole = if part.args.contains(&"burst") { "burst_1" } else { "amount_1" };
    let late = if part.is_counted { "second_1" } else { "fourth_1" };
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let included =
            match code.strip_prefix("--@ ").map(|included| included.split_once(' ').unwrap_or((included, ""))) {
                None => vec![code.replace("whole_1", whole).replace("late_1", late)],
                // The state was read once, and may have been charged since.
                Some(("own", "settle")) => {
                    let lines = section_lines(part.source, "settle");
                    lines.iter().map(|line| line.replace("pcall('GET', key_1)", "stored_1")).collect()
                }
                Some(("own", section)) => section_lines(part.source, section),
                // The words are declared around the block.
                Some(("assigned", section)) => {
                    let lines = section_lines(part.source, section);
                    lines.iter().map(|line| line.replace("local first_1", "first_1")).collect()
                }
                // A state is a string, and that of a log a list.
                Some((section @ ("read" | "write" | "written"), _)) => {
                    leased_lines_of(part, &format!("{section}_{}", if part.tagged { "list" } else { "string" }))
                }
                Some((section, _)) => leased_lines_of(part, section),
            };
        lines.extend(included.iter().map(|line| format!("{indent}{line}")));
    }
    lines
}

/// Returns the lines of a section, with those of the sections that it includes.
fn section_lines(source: &'static str, section: &str) -> Vec<String> {
    let lines = found_lines(source, section);
    // Only a bucket and a sliding window store a debt in another form.
    if section == "store_owed" && lines.is_empty() { found_lines(source, "store") } else { lines }
}

fn found_lines(source: &'static str, section: &str) -> Vec<String> {
    if section == "mend" {
        let store = section_lines(source, "store_owed").into_iter().map(|line| format!("  {line}"));
        return std::iter::once("if mended_1 then".to_owned()).chain(store).chain(["end".to_owned()]).collect();
    }
    // One function serves the sections of several files.
    let source = if section == "muldiv" { named(section) } else { source };
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
        } else if let Some(included) = line.strip_prefix("--@ include ") {
            if found {
                lines.extend(section_lines(source, included));
            }
        } else if let Some(name) = line.strip_prefix("--@ like ") {
            if lines.is_empty() {
                return found_lines(named(name), section);
            }
            found = false;
        } else {
            found = line == header;
        }
    }
    lines
}
