//! Target: the reply to a script, right, changed, or random.

mod fault;

use proptest::{prelude::*, sample::select};
use redis::Value;
use tollgate::{Algorithm, Cost, Decision, ErrorKind, Key, Policy, PolicySet, Quota, testing};
use tollgate_test_support::calls::{self, MixedBatch, MixedSubject, Script};

use crate::{equal, hold};

/// The law: a reply in the form that scripts/README.md tells is read as it tells, any other is an
/// error.
#[test]
fn a_reply_is_read_correctly_or_refused() {
    hold(&inputs(), |input| law(&input));
}

#[derive(Clone, Debug)]
struct Input {
    /// The index into [`sets`].
    set: usize,
    cost: u64,
    reply: Value,
    /// The number of checks of each key in the batch.
    counts: Vec<usize>,
}

/// The limit of a word: the first integer that a double cannot distinguish from the next one.
const EXACT: i64 = 1 << 53;

thread_local! {
    static SETS: Vec<Script> = sets().into_iter().map(Script::new).collect();
    static POLICIES: Vec<PolicySet> = sets();
}

fn sets() -> Vec<PolicySet> {
    let hour = Quota::per_hour;
    let (parted, whole) = (hour(7).with_burst(50), hour(10).with_burst(30));
    let window = Policy::fixed_window("window", hour(100));
    let lone = [
        Policy::token_bucket("whole", whole),
        Policy::token_bucket("parted", parted),
        Policy::leaky_bucket("queue", parted),
        Policy::interval_bucket("interval", whole),
        window.clone(),
        Policy::window_from_first_hit("hit", hour(100)),
        Policy::sliding_window("sliding", hour(100)),
        Policy::sliding_buckets("buckets", hour(100), 10),
        Policy::sliding_log("log", hour(100)),
    ];
    let several = [
        vec![lone[0].clone(), window],
        lone[..].iter().step_by(2).cloned().collect(),
    ];
    lone.into_iter()
        .map(PolicySet::from)
        .chain(several.map(|set| PolicySet::try_new(set).expect("a set")))
        .collect()
}

/// The number of words of each policy in the reply to a mixed batch, which leaves out nothing.
fn full_widths(policies: &PolicySet) -> Vec<usize> {
    let width = |policy: &Policy| match policy.algorithm() {
        Algorithm::SlidingWindow => 3,
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => 4,
        _ => 2,
    };
    policies.iter().map(width).collect()
}

/// The number of words of each policy in the reply to a check or a batch.
fn widths(policies: &PolicySet) -> Vec<usize> {
    let is_whole = |policy: &Policy| {
        let is_bucket = matches!(
            policy.algorithm(),
            Algorithm::TokenBucket | Algorithm::LeakyBucket
        );
        is_bucket
            && policy
                .quota()
                .period()
                .as_micros()
                .is_multiple_of(policy.quota().amount().into())
    };
    let mut widths = full_widths(policies);
    if policies.len() == 1 && policies.iter().all(is_whole) {
        widths[0] = 1;
    }
    widths
}

fn inputs() -> impl Strategy<Value = Input> {
    let word = || {
        prop_oneof![
            4 => 0_i64..120,
            3 => 0_i64..7,
            2 => 0_i64..7_200_000_000,
            1 => any::<i64>(),
            1 => select(vec![-1, 0, EXACT - 1, EXACT, i64::from(u32::MAX), i64::MIN, i64::MAX]),
        ]
    };
    let sets = POLICIES.with(Vec::len);
    let head = (
        0..sets,
        0_u32..=30,
        prop::collection::vec(prop_oneof![3 => Just(1_usize), 1 => 0_usize..5], 1..4),
    );
    let reply = (
        prop::collection::vec(word(), 60),
        prop::collection::vec(any::<bool>(), 60),
        fault::fault(),
        any::<bool>(),
    );
    (head, reply).prop_map(|((set, cost, counts), (words, denials, fault, is_batch))| {
        let widths = POLICIES.with(|sets| widths(&sets[set]));
        let is_counted = counts.iter().any(|&count| count != 1);
        let mut words = words.into_iter();
        let mut denials = denials.into_iter();
        let mut reply = Vec::new();
        for &count in if is_batch { counts.as_slice() } else { &[1] } {
            let denies: Vec<bool> = widths
                .iter()
                .map(|_| denials.next().unwrap_or_default())
                .collect();
            if is_batch && is_counted {
                let short = usize::from(denies.contains(&true));
                reply.push(
                    i64::try_from(count).unwrap_or_default()
                        - i64::try_from(short).unwrap_or_default(),
                );
            }
            for (&width, denies) in widths.iter().zip(denies) {
                let at = reply.len();
                reply.extend(words.by_ref().take(width));
                if denies {
                    reply[at] = -1_i64.wrapping_sub(reply[at]);
                }
            }
        }
        reply.extend(words.next());
        let reply = Value::Array(reply.into_iter().map(Value::Int).collect());
        let reply = fault.of(reply);
        Input {
            set,
            cost: cost.into(),
            reply: if is_batch { packed(reply) } else { reply },
            counts,
        }
    })
}

/// Encodes a list of integers as a batch does: as doubles.
fn packed(reply: Value) -> Value {
    match &reply {
        Value::Array(values) => match numbers(values) {
            Some(words) => Value::BulkString(
                words
                    .iter()
                    .flat_map(|&word| (word as f64).to_le_bytes())
                    .collect(),
            ),
            None => reply,
        },
        _ => reply,
    }
}

fn law(input: &Input) -> Result<(), String> {
    let policies = POLICIES.with(|sets| sets[input.set].clone());
    let cost = Cost::new(input.cost);
    SETS.with(|scripts| {
        let script = &scripts[input.set];
        let found = refused(script.read(cost, &input.reply))?;
        match (found, expected(&policies, &input.reply)) {
            (None, None) => {}
            (Some(found), Some((words, at_us))) => said(&found, &words, at_us, 0)?,
            (found, expected) => {
                return Err(format!("read as {found:?} where {expected:?} belongs"));
            }
        }
        batch(script, &policies, input)?;
        mixed(&policies, input)?;
        entries(&input.reply)
    })
}

fn batch(script: &Script, policies: &PolicySet, input: &Input) -> Result<(), String> {
    let keys: Vec<(Key, usize)> = input
        .counts
        .iter()
        .enumerate()
        .map(|(at, &count)| (Key::from(at as u64), count))
        .collect();
    let found = refused(script.read_batch(&keys, Cost::new(input.cost), &input.reply))?;
    let is_counted = input.counts.iter().any(|&count| count != 1);
    let expected = expected_batch(
        policies,
        &widths(policies),
        is_counted,
        &input.counts,
        &input.reply,
    );
    let Some((outcomes, at_us)) = expected else {
        return equal("whether it is no batch", found.is_none(), true);
    };
    let found = found.ok_or("a batch is refused")?;
    all_said(&found, &outcomes, at_us, input)
}

/// Reads the reply as that to a mixed batch: each key has one run.
fn mixed(policies: &PolicySet, input: &Input) -> Result<(), String> {
    let subject = |(at, &count): (u64, &usize)| MixedSubject {
        policies: policies.clone(),
        key: Key::from(at),
        tag: String::new(),
        runs: vec![(Cost::new(input.cost).into(), count)],
    };
    let mixed = MixedBatch::new((0..).zip(&input.counts).map(subject).collect());
    let found = refused(mixed.read(&input.reply))?;
    let expected = expected_batch(
        policies,
        &full_widths(policies),
        true,
        &input.counts,
        &input.reply,
    );
    let Some((outcomes, at_us)) = expected else {
        return equal("whether it is no mixed batch", found.is_none(), true);
    };
    let found: Vec<Vec<Decision>> = found
        .ok_or("a mixed batch is refused")?
        .into_iter()
        .flatten()
        .collect();
    all_said(&found, &outcomes, at_us, input)
}

/// Checks the decisions of each key.
fn all_said(
    found: &[Vec<Decision>],
    outcomes: &[(u64, Said)],
    at_us: u64,
    input: &Input,
) -> Result<(), String> {
    for ((decisions, (granted, words)), &count) in found.iter().zip(outcomes).zip(&input.counts) {
        equal("the number of decisions", decisions.len(), count)?;
        let fits = words.iter().all(|(denies, _)| !denies);
        // No script replies with a level that contradicts the number of admitted checks.
        let is_sound = *granted <= count as u64 && (*granted == count as u64) == fits;
        for (at, decision) in decisions.iter().enumerate().filter(|_| is_sound) {
            let is_granted = (at as u64) < *granted;
            equal("whether one passes", decision.is_allowed(), is_granted)?;
            if fits {
                said(
                    decision,
                    words,
                    at_us,
                    (granted - 1 - at as u64) * input.cost,
                )?;
            }
        }
    }
    Ok(())
}

/// Returns the answer, or nothing where the reply was refused as invalid.
fn refused<T>(answer: Result<T, tollgate::Error>) -> Result<Option<T>, String> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => {
            equal("the kind of the error", error.kind(), ErrorKind::Protocol).map(|()| None)
        }
    }
}

/// Returns of each policy whether it denies, and its words.
type Said = Vec<(bool, Vec<u64>)>;

fn numbers(values: &[Value]) -> Option<Vec<i64>> {
    let number = |value: &Value| {
        if let Value::Int(number) = value {
            Some(*number)
        } else {
            None
        }
    };
    values.iter().map(number).collect()
}

fn expected(policies: &PolicySet, reply: &Value) -> Option<(Said, u64)> {
    match reply {
        Value::Array(values) => {
            let numbers = numbers(values)?;
            let (time, words) = numbers.split_last()?;
            let time = u64::try_from(*time)
                .ok()
                .filter(|time| *time < EXACT as u64)?;
            Some((split(policies, &widths(policies), words)?, time))
        }
        Value::Int(word) => Some((split(policies, &widths(policies), &[*word])?, 0)),
        _ => None,
    }
}

fn expected_batch(
    policies: &PolicySet,
    widths: &[usize],
    is_counted: bool,
    counts: &[usize],
    reply: &Value,
) -> Option<(Vec<(u64, Said)>, u64)> {
    let Value::BulkString(bytes) = reply else {
        return None;
    };
    let number = |bytes: &[u8]| {
        let number = f64::from_le_bytes(bytes.try_into().ok()?);
        (number.fract() == 0.0 && number.abs() <= 2_f64.powi(62)).then_some(number as i64)
    };
    let numbers: Vec<i64> = bytes.chunks(8).map(number).collect::<Option<_>>()?;
    let (time, words) = numbers.split_last()?;
    let time = u64::try_from(*time)
        .ok()
        .filter(|time| *time < EXACT as u64)?;
    let each = widths.iter().sum::<usize>() + usize::from(is_counted);
    if words.len() != each * counts.len() {
        return None;
    }
    let outcome = |(words, &count): (&[i64], &usize)| {
        let said = split(policies, widths, &words[usize::from(is_counted)..])?;
        let fits = said.iter().all(|it| !it.0);
        let granted = if is_counted {
            u64::try_from(words[0]).ok()?
        } else {
            u64::from(fits)
        };
        // Every check that was not admitted was denied.
        let is_sound = !is_counted || granted == count as u64 || granted < count as u64 && !fits;
        is_sound.then_some((granted, said))
    };
    Some((
        words
            .chunks_exact(each)
            .zip(counts)
            .map(outcome)
            .collect::<Option<_>>()?,
        time,
    ))
}

fn split(policies: &PolicySet, widths: &[usize], mut words: &[i64]) -> Option<Said> {
    let mut said = Vec::new();
    for (policy, &width) in policies.iter().zip(widths) {
        let (mine, rest) = words.split_at_checked(width)?;
        words = rest;
        let first = if mine[0] < 0 { -1 - mine[0] } else { mine[0] };
        let all: Vec<i64> = std::iter::once(first)
            .chain(mine[1..].iter().copied())
            .collect();
        let all: Option<Vec<u64>> = all
            .into_iter()
            .map(|it| u64::try_from(it).ok().filter(|it| *it < EXACT as u64))
            .collect();
        let all = all?;
        // The parts of 1/amount µs are less than a microsecond.
        let is_bucket = matches!(
            policy.algorithm(),
            Algorithm::TokenBucket | Algorithm::LeakyBucket
        );
        if is_bucket
            && all
                .get(1)
                .is_some_and(|&part| part >= policy.quota().amount())
        {
            return None;
        }
        said.push((mine[0] < 0, all));
    }
    words.is_empty().then_some(said)
}

/// Checks that the decision agrees with the words, `later` units before.
fn said(decision: &Decision, words: &Said, at_us: u64, later: u64) -> Result<(), String> {
    equal("the time", testing::at_us(decision), at_us)?;
    equal(
        "whether it passes",
        decision.is_allowed(),
        words.iter().all(|(denies, _)| !denies),
    )?;
    let most = decision
        .policies()
        .iter()
        .map(|policy| u128::from(policy.quota().burst()))
        .min()
        .unwrap_or(0);
    for (state, (denies, words)) in decision.states().zip(words) {
        equal("who denies", state.is_exceeded(), *denies)?;
        let quota = state.policy().quota();
        let (amount, burst) = (u128::from(quota.amount()), u128::from(quota.burst()));
        let (period, first) = (quota.period().as_micros(), u128::from(words[0]));
        let second = words.get(1).map_or(0, |it| u128::from(*it));
        // None of these panics, and every denial has a wait.
        let _ = (state.reset_after(), state.next_unit_after(), state.delay());
        equal(
            "whether there is a wait",
            state.retry_after().is_some_and(|wait| !wait.is_zero()),
            *denies,
        )?;
        let later = u128::from(later);
        let spent = match state.policy().algorithm() {
            // The bucket is `first` µs and `second` parts of a µs from full.
            Algorithm::TokenBucket | Algorithm::LeakyBucket => (first * amount + second)
                .checked_sub(later * period)
                .map(|level| level.div_ceil(period)),
            Algorithm::SlidingWindow => {
                let inside = (second * u128::from(words[2]).min(period)).div_ceil(period);
                first.checked_sub(later).map(|current| current + inside)
            }
            _ => first.checked_sub(later),
        };
        // No script admits more than the level or the smallest burst.
        let Some(spent) = spent.filter(|_| later <= most) else {
            continue;
        };
        equal(
            "what remains",
            u128::from(state.remaining()),
            burst.saturating_sub(spent),
        )?;
    }
    Ok(())
}

fn entries(reply: &Value) -> Result<(), String> {
    const PERIOD_US: u64 = 3_600_000_000;
    let found = refused(calls::entries(PERIOD_US, reply.clone()))?;
    let expected = match reply {
        Value::Array(pair) => match pair.as_slice() {
            [Value::Int(now), Value::Array(list)] => Some(
                list.iter()
                    .filter_map(|it| entry(it, *now))
                    .collect::<Vec<_>>(),
            ),
            _ => None,
        },
        _ => None,
    };
    let found = found.map(|entries| {
        entries
            .iter()
            .map(|it| (it.at_us(), it.tag().to_vec()))
            .collect::<Vec<_>>()
    });
    equal("the entries", found, expected)
}

/// Encodes an entry inside of the period: the time as a double, and the tag.
fn entry(value: &Value, now: i64) -> Option<(u64, Vec<u8>)> {
    let Value::BulkString(bytes) = value else {
        return None;
    };
    let time = <[u8; 8]>::try_from(bytes.get(..8)?)
        .ok()
        .map(f64::from_le_bytes)?;
    let at_us = if time.is_nan() { 0 } else { time as u64 };
    (u128::from(at_us) + 3_600_000_000 > u128::from(now.unsigned_abs()))
        .then(|| (at_us, bytes[8..].to_vec()))
}
