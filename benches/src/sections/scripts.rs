//! Measures the server time of one decision for each script, and compares it with an empty script.

use std::{ops::Add, time::Duration};

use tollgate::{Cost, Key, Policy, PolicySet, Quota};
use tollgate_test_support::calls::Script;

use crate::{
    keys::{self, ANY_KEY, KEYS},
    pace::Pace,
    peers::{
        benchmark::Run,
        lua::{COMMON, Common, LOGS},
        pipeline,
    },
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

/// Describes a set of Tollgate's policies. It admits when `scarce` is false. When `scarce` is true,
/// it denies after `drain` calls.
struct Ours {
    name: &'static str,
    policies: fn(scarce: bool) -> PolicySet,
    subjects: usize,
    drain: usize,
}

/// A lock that outlasts the run.
const LOCK: Duration = Duration::from_secs(86_400);

/// Lists the sets. A new algorithm is one more line. [`BUCKET`] and [`THREE`] are the positions of
/// the first two sets.
const OURS: &[Ours] = &[
    one("token bucket", |scarce| {
        Policy::token_bucket("a", bucket(scarce)).into()
    }),
    one("three: bucket, window, window from first hit", |scarce| {
        PolicySet::from([
            Policy::token_bucket("a", bucket(scarce)),
            Policy::fixed_window("b", window(scarce)),
            Policy::window_from_first_hit("c", window(scarce)),
        ])
    }),
    one("token bucket, 7 a second (fractions of a µs)", |scarce| {
        let quota = if scarce {
            Quota::per_day(7).with_burst(1)
        } else {
            Quota::per_second(7).with_burst(36_000)
        };
        Policy::token_bucket("a", quota).into()
    }),
    one("interval bucket", |scarce| {
        Policy::interval_bucket("a", bucket(scarce)).into()
    }),
    one("leaky bucket", |scarce| {
        Policy::leaky_bucket("a", bucket(scarce)).into()
    }),
    one("fixed window", |scarce| {
        Policy::fixed_window("a", window(scarce)).into()
    }),
    one("window from first hit", |scarce| {
        Policy::window_from_first_hit("a", window(scarce)).into()
    }),
    one("lockout", |scarce| {
        Policy::lockout("a", window(scarce), LOCK, LOCK).into()
    }),
    one("sliding window", |scarce| {
        Policy::sliding_window("a", window(scarce)).into()
    }),
    one("sliding buckets, 10", |scarce| {
        Policy::sliding_buckets("a", window(scarce), 10).into()
    }),
    Ours {
        name: "sliding log of 100",
        policies: |scarce| log(scarce).into(),
        subjects: LOGS,
        drain: 100,
    },
];

/// Sets the position of the token bucket in a round. The empty script has position 0.
const BUCKET: usize = 1;
/// Sets the position of the three policies in a round.
const THREE: usize = 2;

const fn one(name: &'static str, policies: fn(bool) -> PolicySet) -> Ours {
    Ours {
        name,
        policies,
        subjects: KEYS,
        drain: 1,
    }
}

const fn bucket(scarce: bool) -> Quota {
    if scarce {
        Quota::per_day(1)
    } else {
        Quota::per_second(10).with_burst(36_000)
    }
}

const fn window(scarce: bool) -> Quota {
    if scarce {
        Quota::per_day(1)
    } else {
        Quota::per_hour(1_000_000)
    }
}

/// Returns a policy with the same limits as the sorted set that it is compared with.
///
/// A scarce log is full with 100 entries. Another log holds the entries of 300 ms.
const fn log(scarce: bool) -> Policy {
    let quota = if scarce {
        Quota::per_day(100)
    } else {
        Quota::new(1_000, Duration::from_millis(300))
    };
    Policy::sliding_log("a", quota)
}

/// Stores a script, and the call of it for any subject. A subject is a key that is limited.
struct Subject {
    name: &'static str,
    /// Words of the call, with [`ANY_KEY`] in place of the subject.
    words: Vec<Vec<u8>>,
    /// Keys at the server, with [`ANY_KEY`] in place of the subject.
    keys: Vec<String>,
    subjects: usize,
    drain: usize,
    admits: bool,
    is_ours: bool,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let server = Server::start();
    let mut findings = Findings::default();
    let mut costs = Vec::new();
    for admits in [true, false] {
        let subjects: Vec<Subject> = std::iter::once(noop(&server))
            .chain(
                OURS.iter()
                    .enumerate()
                    .map(|(number, it)| ours(&server, number, it, admits)),
            )
            .chain(COMMON.iter().map(|it| common(&server, it, admits)))
            .collect();
        server.flush();
        subjects
            .iter()
            .filter(|subject| !subject.admits)
            .for_each(|subject| subject.drain_all(&server));
        let cases = subjects.iter().map(|subject| {
            Case::new(subject.name, |time: Duration| {
                let run = pipeline::run(&server, 16, pace.calls_in(time), subject.subjects, |it| {
                    subject.call(it)
                });
                subject.verify(&server);
                (run, subject.bytes(&server))
            })
        });
        let series = alternate(pace.load, cases.collect());
        findings.tables.push(table(&subjects, &series, admits));
        costs.push(series);
    }
    goals(&mut findings, &costs[0], &costs[1]);
    findings
}

fn goals(findings: &mut Findings, admitted: &[Series<(Run, f64)>], denied: &[Series<(Run, f64)>]) {
    for (outcome, series, target) in [("admitted", admitted, 2.9), ("denied", denied, 2.4)] {
        let measure = format!("Redis CPU, token bucket, one call, {outcome}, to noop");
        findings.goal(
            measure,
            Target::AtMost(target),
            series[BUCKET].ratio(&series[0], cpu_us),
            " ×",
        );
    }
    let three = admitted[THREE].ratio(&admitted[BUCKET], cpu_us);
    findings.goal(
        "Redis CPU, three policies in one call, to one token bucket",
        Target::AtMost(1.9),
        three,
        " ×",
    );
}

fn table(subjects: &[Subject], series: &[Series<(Run, f64)>], admits: bool) -> Table {
    let outcome = if admits { "admitted" } else { "denied" };
    let about = "50 connections, 16 calls in flight on each, 10 000 limited keys, called subjects (1 000 for logs). \
                 *CPU* is the processor time of the server per call, including its work for sockets. *Inside* is the \
                 time that the server reports for `EVALSHA`. *Commands* counts the commands that the script calls. \
                 *Bytes* is the `MEMORY USAGE` of all keys of one subject. *Noop* is `EVALSHA` of `return 1` with one \
                 key. Bold rows are scripts of Tollgate.";
    let heads = [
        "",
        "CPU µs",
        "CPU, to noop",
        "inside µs",
        "commands",
        "bytes per subject",
    ];
    let mut table = Table::new(&format!("Cost at the server, {outcome}"), about, &heads);
    for (subject, one) in subjects.iter().zip(series) {
        table.row([
            if subject.is_ours {
                format!("**{}**", one.name)
            } else {
                one.name.clone()
            },
            figure(one.median(cpu_us)),
            figure(one.ratio(&series[0], cpu_us)),
            figure(one.median(|(run, _)| run.inside_us())),
            figure(one.median(|(run, _)| run.usage.calls_inside() as f64 / run.calls as f64)),
            figure(one.median(|(_, bytes)| *bytes)),
        ]);
    }
    table
}

fn cpu_us((run, _): &(Run, f64)) -> f64 {
    run.cpu_us()
}

fn noop(server: &Server) -> Subject {
    let words = ["EVALSHA", &server.load("return 1"), "1", ANY_KEY]
        .map(|word| word.as_bytes().to_vec())
        .to_vec();
    Subject {
        name: "`return 1`",
        words,
        keys: Vec::new(),
        subjects: KEYS,
        drain: 0,
        admits: true,
        is_ours: false,
    }
}

fn ours(server: &Server, number: usize, ours: &Ours, admits: bool) -> Subject {
    let script = Script::new((ours.policies)(!admits));
    server.load(script.text());
    // Each outcome of each set has its own keys. The keys are short, because a long key would be
    // replaced by a digest.
    let subject = format!("{ANY_KEY}/{number}/{admits}");
    let key = Key::from(subject.as_str());
    Subject {
        name: ours.name,
        words: script.check(&key, Cost::ONE, None),
        keys: script.keys(&key),
        subjects: ours.subjects,
        drain: ours.drain,
        admits,
        is_ours: true,
    }
}

fn common(server: &Server, common: &Common, admits: bool) -> Subject {
    let sha = server.load(common.text);
    let keys: Vec<String> = common
        .keys
        .iter()
        .map(|name| format!("{name}:{{{ANY_KEY}}}:{admits}"))
        .collect();
    let count = keys.len().to_string();
    let mut words: Vec<&str> = vec!["EVALSHA", &sha, &count];
    words.extend(keys.iter().map(String::as_str));
    words.extend_from_slice(if admits {
        common.admitting
    } else {
        common.denying
    });
    let words = words
        .into_iter()
        .map(|word| word.as_bytes().to_vec())
        .collect();
    Subject {
        name: common.name,
        words,
        keys,
        subjects: common.subjects,
        drain: common.drain,
        admits,
        is_ours: false,
    }
}

/// Sets how many subjects are checked after each run, to verify that the outcome is as expected.
const SAMPLE: usize = 50;

impl Subject {
    fn call(&self, number: usize) -> Vec<Vec<u8>> {
        let key = keys::key(number);
        let with_key = |word: &Vec<u8>| match std::str::from_utf8(word) {
            Ok(text) => text.replace(ANY_KEY, &key).into_bytes(),
            Err(_) => word.clone(),
        };
        self.words.iter().map(with_key).collect()
    }

    fn drain_all(&self, server: &Server) {
        for _ in 0..self.drain {
            let calls: Vec<_> = (0..self.subjects).map(|number| self.call(number)).collect();
            server.all(&calls);
        }
    }

    /// Verifies that a sample of the subjects has the expected outcome.
    ///
    /// # Panics
    ///
    /// When a subject is admitted that should be denied, or denied that should be admitted.
    fn verify(&self, server: &Server) {
        let calls: Vec<_> = (0..SAMPLE).map(|number| self.call(number)).collect();
        for reply in server.all(&calls) {
            let first = match &reply {
                tollgate_tests::Reply::Array(words) => words[0].int(),
                word => word.int(),
            };
            // For a denial, the first number in a reply of Tollgate's scripts is below zero. The
            // other scripts use 0.
            let admitted = if self.is_ours { first >= 0 } else { first == 1 };
            assert_eq!(admitted, self.admits, "{}: {reply:?}", self.name);
        }
    }

    /// Returns the memory of all keys of one subject in bytes, right after a call for this subject.
    ///
    /// The subject is in the middle of the sample.
    fn bytes(&self, server: &Server) -> f64 {
        let of = |key: &String| {
            let key = key.replace(ANY_KEY, &keys::key(SAMPLE / 2));
            match server.command(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]) {
                tollgate_tests::Reply::Int(bytes) => bytes as f64,
                _ => f64::NAN,
            }
        };
        server.all(&[self.call(SAMPLE / 2)]);
        self.keys.iter().map(of).fold(0.0, f64::add)
    }
}
