use std::{collections::BTreeSet, fs, path::Path};

use super::*;
use tollgate_core::{
    Policy, raw,
    testing::{ALGORITHMS, named_number},
};

const FRAMES: [(&str, Purpose); 7] = [
    ("check", Purpose::Check),
    ("look", Purpose::Look),
    ("batch", Purpose::Batch),
    ("mixed", Purpose::Mixed),
    ("refund", Purpose::Refund),
    ("reserve", Purpose::Reserve),
    ("commit", Purpose::Commit),
];

/// Assembles the scripts of all frames over these policies.
fn framed(algorithms: &[Algorithm], form: Form) -> [Script; 7] {
    FRAMES.map(|(_, purpose)| Script::assemble(purpose, algorithms, form))
}

fn lease(algorithms: &[Algorithm]) -> Script {
    Script::assemble(Purpose::Lease, algorithms, Form::Leased)
}

/// Lists the algorithms that can be leased.
fn leasable() -> impl Iterator<Item = Algorithm> {
    algorithms()
        .into_iter()
        .filter(|algorithm| algorithm.is_leasable())
}

/// Returns whether costs cascade over windows of this algorithm.
fn is_counter(algorithm: &Algorithm) -> bool {
    ["fixed_window", "calendar_window", "window_from_first_hit"].contains(&algorithm.name())
}

/// Lists every algorithm, calendar windows included.
fn algorithms() -> Vec<Algorithm> {
    // One that a feature adds is behind the others.
    let is_added = |algorithm: &Algorithm| !ALGORITHMS.contains(algorithm);
    ALGORITHMS
        .into_iter()
        .chain(raw::algorithms().filter(is_added))
        .collect()
}

fn scripts() -> impl Iterator<Item = (String, Script)> {
    let of = |algorithm: Algorithm,
              frames: &'static [(&str, Purpose)],
              infix: &'static str,
              form: Form| {
        let named = move |&(frame, purpose): &(&str, Purpose)| {
            (
                format!("{}{infix}.{frame}.lua", algorithm.name()),
                Script::assemble(purpose, &[algorithm], form),
            )
        };
        frames.iter().map(named)
    };
    let decide = algorithms()
        .into_iter()
        .flat_map(move |algorithm| of(algorithm, &FRAMES, "", Form::Plain));
    let cascade = algorithms()
        .into_iter()
        .filter(is_counter)
        .flat_map(move |algorithm| {
            of(algorithm, &[("cascade", Purpose::Cascade)], "", Form::Plain)
        });
    let capped = algorithms()
        .into_iter()
        .flat_map(move |algorithm| of(algorithm, &FRAMES[..6], ".capped", Form::Capped));
    let leased = leasable().flat_map(move |algorithm| {
        let lease = (
            format!("{}.lease.lua", algorithm.name()),
            lease(&[algorithm]),
        );
        of(algorithm, &FRAMES[..2], ".leased", Form::Leased).chain([lease])
    });
    let others = [
        ("entries", &ENTRIES),
        ("permits", &PERMITS),
        ("replicas", &REPLICAS),
        ("publish", &PUBLISH),
        ("exceptions", &EXCEPTIONS),
        ("except", &EXCEPT),
        ("report", &REPORT),
        ("spending", &SPENDING),
    ];
    let others = others.map(|(name, text)| (format!("{name}.lua"), Script::new(&*text.text)));
    decide
        .chain(leased)
        .chain(capped)
        .chain(cascade)
        .chain(others)
}

/// Returns where the folder shows a script: complete scripts, and what one copies to use without
/// Rust. The others have the same sections in other frames, the leaky bucket those of the token
/// bucket, and a calendar is needed for its window.
fn shown(name: &str) -> Option<String> {
    let is_bare = !["capped", "leased", "leaky", "calendar"]
        .iter()
        .any(|word| name.contains(word));
    match name {
        "entries.lua" | "permits.lua" | "replicas.lua" | "publish.lua" | "exceptions.lua"
        | "except.lua" | "report.lua" | "spending.lua" => Some(name.to_owned()),
        _ if is_bare && name.ends_with(".check.lua") => Some(format!("standalone/{name}")),
        _ => None,
    }
}

/// A changed script is a deliberate act: two versions run side by side during a roll-out. To say
/// that it is meant, run this test with all features and `TOLLGATE_BLESS=1`. It writes every script
/// into `target/scripts`, too.
#[test]
fn the_scripts_that_run_are_those_that_are_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let bless = std::env::var_os("TOLLGATE_BLESS").is_some();
    let all = folder.join("../target/scripts");
    fs::create_dir_all(&all).unwrap();
    let mut sums = String::new();
    for (name, script) in scripts() {
        if bless {
            fs::write(all.join(&name), &script.text).unwrap();
        }
        let Some(path) = shown(&name) else {
            sums.push_str(&format!("{}  {name}\n", script.sha));
            continue;
        };
        sums.push_str(&format!("{}  {path}\n", script.sha));
        if bless {
            fs::write(folder.join(&path), &script.text).unwrap();
        }
        assert_eq!(
            fs::read_to_string(folder.join(&path)).unwrap_or_default(),
            script.text,
            "{name}"
        );
    }
    let path = folder.join("SHA1SUMS");
    if bless {
        fs::write(&path, &sums).unwrap();
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(listed, sums);
}

#[test]
fn no_line_of_a_frame_or_a_place_is_left_over() {
    let kinds = ALGORITHMS.len();
    for count in 1..=2 {
        for shape in 0..kinds.pow(count) {
            let set: Vec<_> = (0..count)
                .map(|at| ALGORITHMS[shape / kinds.pow(at) % kinds])
                .collect();
            let cascade = [Form::Plain, Form::Capped]
                .map(|form| Script::assemble(Purpose::Cascade, &set, form));
            let leased = framed(&set, Form::Leased).into_iter().chain([lease(&set)]);
            let scripts = framed(&set, Form::Plain).into_iter().zip([1; 7]);
            let capped = framed(&set, Form::Capped).into_iter().zip([1; 7]);
            let scripts = scripts.chain(capped).chain(cascade.into_iter().zip([1; 2]));
            for (script, keys) in scripts.chain(leased.zip([2; 8])) {
                let left = [
                    "--@",
                    "--#",
                    "<words>",
                    "<slots>",
                    "<width>",
                    "<place>",
                    "<number>",
                    "<keys>",
                    "<policies>",
                    "<fits>",
                ];
                assert!(
                    !left.iter().any(|left| script.text.contains(left)),
                    "{}",
                    script.text
                );
                let key = if set.len() > 1 {
                    "key_1 = KEYS["
                } else {
                    "key = KEYS["
                };
                assert_eq!(script.text.matches(key).count(), 1);
                assert_eq!(script.text.matches(" = KEYS[").count(), keys * set.len());
                assert!(!script.text.contains(&format!("_{}", set.len() + 1)));
            }
        }
    }
}

/// Lua allows 200 local variables in a function, counting those of the blocks that are open. A loop
/// over numbers has three that it hides.
#[test]
fn a_set_of_the_most_policies_compiles() {
    for algorithm in algorithms() {
        let plain = framed(&[algorithm; 8], Form::Plain);
        let leased = framed(&[algorithm; 4], Form::Leased);
        let capped = framed(&[algorithm; 8], Form::Capped);
        // Seven stand beside a window.
        let mut set = [algorithm; 8];
        set[7] = Algorithm::FixedWindow;
        let cascade =
            [Form::Plain, Form::Capped].map(|form| Script::assemble(Purpose::Cascade, &set, form));
        for script in plain
            .into_iter()
            .chain(capped)
            .chain(cascade)
            .chain(leased)
            .chain([lease(&[algorithm; 4])])
        {
            let (mut open, mut most) = (vec![0], 0);
            for line in script.text.lines() {
                let depth = (line.len() - line.trim_start().len()) / 2;
                open.resize(depth + 1, 0);
                if let Some(names) = line.trim_start().strip_prefix("local ") {
                    open[depth] += names
                        .split(" = ")
                        .next()
                        .map_or(0, |names| names.split(", ").count());
                } else if let Some(names) = line.trim_start().strip_prefix("for ") {
                    open.push(if names.contains(" in ") { 5 } else { 4 });
                }
                most = most.max(open.iter().sum());
            }
            assert!(most < 196, "{most} in {:?}", script.text.lines().next());
        }
    }
}

#[test]
fn a_policy_has_the_numbers_that_its_script_takes() {
    let quota = tollgate_core::Quota::per_minute(7);
    for algorithm in ALGORITHMS {
        let policy = Policy::try_new("p", algorithm, quota).unwrap();
        let named = part(algorithm, Form::Plain, true)
            .list("quotas")
            .unwrap()
            .into_iter()
            .map(|name| match name {
                "amount" => policy.quota().amount(),
                "period" => policy.quota().period().as_micros() as u64,
                "burst" => policy.quota().burst(),
                _ => named_number(&policy, name).expect("a number of a policy"),
            });
        assert_eq!(
            raw::numbers(&policy).collect::<Vec<_>>(),
            named.collect::<Vec<_>>(),
            "{algorithm:?}"
        );
    }
}

/// An empty section stands for one that does not exist, so a misspelt name would be silent.
#[test]
fn every_section_that_a_file_asks_for_exists_and_is_asked_for() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "lua"));
    let text: String = files
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let (mut has, mut asked) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().map(str::trim_start) {
        let directive = line
            .strip_prefix("--@ ")
            .map(|names| names.split_once(' ').unwrap_or((names, "")));
        match (line.strip_prefix("--# "), directive) {
            (Some(title), _) => has.extend(title.split(':').next()),
            (_, Some(("numbers" | "next" | "again" | "like", _))) | (_, None) => {}
            (_, Some(("own", name))) => asked.extend([name]),
            (_, Some((first, rest))) => {
                asked.extend([first].into_iter().chain(rest.split_terminator(' ')));
            }
        }
    }
    let plain = |name: &&str| !name.ends_with("_alone") && !name.ends_with("_capped");
    assert_eq!(
        has.iter().copied().filter(plain).collect::<BTreeSet<_>>(),
        asked
    );
}

#[test]
fn the_clock_is_read_once_and_numbers_are_never_concatenated() {
    for (name, script) in scripts() {
        let code: String = script
            .text
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"))
            .collect();
        assert_eq!(code.matches("'TIME'").count(), 1, "{name}");
        // Three dots stand for the arguments of a function.
        assert!(!code.replace("...", "").contains(".."), "{name}");
        assert!(!code.contains("tostring"), "{name}");
    }
}
