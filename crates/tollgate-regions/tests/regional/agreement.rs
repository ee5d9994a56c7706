//! The scripts do what the rules say: replies and stored numbers of random streams are equal.
//! Broken scripts, which a stream has to find, are in `mutants.rs`.

use smallvec::SmallVec;
use tollgate_regions::{
    rules::{
        Ask, Call, Deposit, Grant, Home, Lease, Meter, Purse, Report, Seen, Slot, Stamp, Terms,
    },
    testing::{
        HOME_LUA, PURSE_LUA, call, check, checked, deposit, deposited, granted, home_of, purse_of,
    },
};
use tollgate_tests::{RedisServer, expiry_command, no_server};

/// A time that no server has reached, so that no key expires: in the year 2096.
const START_US: u64 = 4_000_000_000_000_000;

/// The steps of a stream.
const STEPS: usize = 300;

/// The trip to the home in the streams, in microseconds.
const TRIP_US: u64 = 80_000;

/// Draws numbers, the same ones for a seed.
pub(crate) struct Dice(fastrand::Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0.u64(0..end)
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

fn terms(dice: &mut Dice) -> Terms {
    let meter = match dice.below(3) {
        0 => Meter::Bucket {
            amount: 1,
            period_us: 1_000,
        },
        1 => Meter::Bucket {
            amount: 7,
            period_us: 9_973,
        },
        _ => Meter::Window {
            period_us: 3_000_000,
        },
    };
    let burst = dice.of(&[40, 400, 1_000]);
    Terms {
        meter,
        burst,
        length_us: dice.of(&[500_000, 500_000, 500_000, 700_000]),
        most: burst / dice.of(&[1, 2, 4]),
    }
}

/// Runs a script over the key `it`, and returns the numbers of its reply.
pub(crate) fn run(server: &RedisServer, script: &str, numbers: &[f64]) -> Result<Vec<f64>, String> {
    let packed: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
    let words: [&[u8]; 5] = [b"EVAL", script.as_bytes(), b"1", b"it", &packed];
    let reply = server.command(&words);
    if reply.is_error() {
        return Err(reply.text());
    }
    Ok(doubles(reply.bytes()))
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    let words = bytes.as_chunks().0.iter();
    words.map(|word| f64::from_le_bytes(*word)).collect()
}

/// Compares the stored numbers and the expiry.
fn stored(server: &RedisServer, expected: &[f64], ends_us: u64) -> Result<(), String> {
    let found = doubles(server.command(&["GET", "it"]).bytes());
    equal("stored", &found, &expected.to_vec())?;
    let expires_ms = server.command(&expiry_command("it")).int() as u64;
    equal("expiry", &expires_ms, &(ends_us / 1_000 + 1))
}

fn equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}, and the rule says {expected:?}")),
    }
}

fn home_numbers(home: &Home) -> Vec<f64> {
    let Home {
        reign,
        level,
        stamp,
        length_us,
        outstanding: [new, old],
        ledger,
    } = home;
    let whole = [
        *reign,
        level.used,
        level.at,
        level.period_us,
        stamp.birth,
        stamp.generation,
        *length_us,
        *new,
        *old,
    ];
    let entries = ledger.0.iter().flat_map(|it| {
        let Stamp { birth, generation } = it.stamp;
        [
            it.region, it.reign, it.number, birth, generation, it.units, it.at,
        ]
    });
    whole
        .into_iter()
        .chain(entries)
        .map(|it| it as f64)
        .collect()
}

fn purse_numbers(purse: &Purse) -> Vec<f64> {
    let pace = purse.pace;
    let mut numbers: Vec<f64> = [
        purse.reign,
        purse.now_us,
        purse.number,
        purse.since_us,
        purse.claimed_us,
        purse.granted,
        purse.retry_at_us,
    ]
    .map(|it| it as f64)
    .to_vec();
    numbers.extend([pace.rate, pace.asked as f64, pace.estimated_us as f64]);
    for Slot {
        stamp,
        until_us,
        free,
        spent,
        leased,
    } in &purse.slots
    {
        let Stamp { birth, generation } = *stamp;
        let slot = [birth, generation, *until_us, *free, *spent, *leased];
        numbers.extend(slot.map(|it| it as f64));
    }
    numbers
}

/// Sends a stream of calls to a home, and returns the units that it has granted.
pub(crate) fn compare_home(server: &RedisServer, seed: u64, script: &str) -> Result<u64, String> {
    server.command(&["FLUSHALL"]);
    let (mut dice, mut home) = (Dice::new(seed), Home::default());
    let (mut terms_now, mut now_us, mut reign, mut sum) = (terms(&mut dice), START_US, 1, 0);
    let mut held: Vec<(Stamp, u64)> = Vec::new();
    let mut calls: Vec<(u64, Call)> = Vec::new();
    for step in 0..STEPS {
        match dice.below(60) {
            0 => now_us += dice.below(8_000_000),
            1 => now_us -= dice.below(2_000_000),
            2 => now_us = now_us / 500_000 * 500_000 + 500_000,
            3 => reign += 1,
            4 => terms_now = terms(&mut dice),
            5..15 => {}
            _ => now_us += dice.below(100_000),
        }
        let region = dice.below(3);
        let mut reports = Vec::new();
        while !held.is_empty() && dice.below(3) > 0 {
            let (mut stamp, units) = held.swap_remove(dice.below(held.len() as u64) as usize);
            let spent = dice.below(units + 2);
            match dice.below(12) {
                0 => stamp.birth += 1,
                1 => stamp.generation += 1,
                2 => stamp.birth = 0,
                3 => held.push((stamp, units)),
                _ => {}
            }
            reports.push(Report {
                stamp,
                spent,
                returned: dice.below(units + 2),
            });
        }
        let mut made = Call {
            reign: dice.below(2),
            number: START_US + step as u64,
            since_us: now_us,
            want: dice.of(&[0, 3, 50, 900]),
            held: dice.of(&[0, 0, 5]),
            reports: reports.into(),
        };
        let mut from = region;
        if !calls.is_empty() && dice.below(5) == 0 {
            (from, made) = calls[dice.below(calls.len() as u64) as usize].clone();
        }
        let birth = 1 + dice.below(1 << 40);
        let at = (now_us, reign);
        let reply = run(server, script, &call(at, &terms_now, birth, from, &made))?;
        let found = granted(&reply).map_err(|error| error.to_string())?;
        let expected = home.serve(&terms_now, at, birth, from, &made);
        let context = |difference| format!("seed {seed} step {step} {terms_now:?}: {difference}");
        equal("grant", &found, &expected).map_err(context)?;
        equal("read", &home_of(&home_numbers(&home)), &Some(home.clone())).map_err(context)?;
        let ends_us = home.ends_us(&terms_now, now_us);
        stored(server, &home_numbers(&home), ends_us).map_err(context)?;
        if expected.units > 0 {
            held.push((expected.stamp, expected.units));
            sum += expected.units;
        }
        calls.push((from, made));
        if calls.len() > 6 {
            calls.remove(0);
        }
    }
    Ok(sum)
}

/// Draws reports of leased units: some of a stamp that was never leased, of more units than were, or
/// a second time.
fn reports(dice: &mut Dice, leases: &mut Vec<Lease>) -> SmallVec<[Report; 2]> {
    let mut reports = SmallVec::new();
    while !leases.is_empty() && dice.below(4) == 0 {
        let lease = leases.swap_remove(dice.below(leases.len() as u64) as usize);
        let mut stamp = lease.stamp;
        match dice.below(12) {
            0 => stamp.birth += 1,
            1 => stamp.generation += 1,
            2 => leases.push(lease),
            _ => {}
        }
        reports.push(Report {
            stamp,
            spent: dice.below(lease.units + 2),
            returned: dice.below(lease.units + 2),
        });
    }
    reports
}

/// Sends a stream of checks and deposits to a purse, and returns the units that it has spent.
pub(crate) fn compare_purse(server: &RedisServer, seed: u64, script: &str) -> Result<u64, String> {
    server.command(&["FLUSHALL"]);
    let (mut dice, mut purse) = (Dice::new(seed), Purse::default());
    let terms = terms(&mut dice);
    let (mut now_us, mut reign, mut sum) = (START_US, 1, 0);
    let mut calls: Vec<Call> = Vec::new();
    let mut leases: Vec<Lease> = Vec::new();
    for step in 0..STEPS {
        match dice.below(60) {
            0 => now_us += dice.below(3_000_000),
            1 => now_us -= dice.below(1_000_000),
            2 => reign += 1,
            3..20 => {}
            _ => now_us += dice.below(30_000),
        }
        let floor_us = dice.of(&[0, 0, now_us - 5_000, now_us + 5_000]);
        let context = |difference| format!("seed {seed} step {step} {terms:?}: {difference}");
        let lost = purse.open(reign, now_us.max(floor_us));
        let seen = Seen {
            now_us: purse.now_us,
            lost,
        };
        if !calls.is_empty() && dice.below(4) == 0 {
            let place = dice.below(calls.len() as u64) as usize;
            let mut brought: Deposit = calls[place].deposit(Grant {
                stamp: Stamp {
                    birth: dice.of(&[7, 7, 8]),
                    generation: now_us / 500_000,
                },
                units: dice.of(&[0, 1, 20, 200]),
                life_us: dice.of(&[0, 30_000, 700_001, 1_000_000]),
                retry_us: dice.of(&[0, 0, 300_000, 5_000_000]),
            });
            if dice.below(8) == 0 {
                brought.number += 1;
            }
            let numbers = deposit((now_us, reign), floor_us, &terms, &brought);
            let reply = run(server, script, &numbers).map_err(context)?;
            let found = deposited(&reply).map_err(|error| error.to_string())?;
            let expected = purse.deposit(&brought);
            equal("deposit", &found, &(seen, expected)).map_err(context)?;
        } else {
            let ask = Ask {
                cost: dice.of(&[0, 1, 1, 1, 2, 30]),
                is_first: dice.below(5) > 0,
                trip_us: TRIP_US,
                most: terms.most,
                want: dice.of(&[0, 0, 3, 40]),
                reports: reports(&mut dice, &mut leases),
            };
            let numbers = check((now_us, reign), floor_us, &terms, &ask);
            let reply = run(server, script, &numbers).map_err(context)?;
            let mut found = checked(&reply).map_err(|error| error.to_string())?;
            let expected = purse.check(&ask);
            // Without a call its other numbers mean nothing.
            if let Some(call) = &mut found.1.call {
                equal("since", &call.since_us, &purse.since_us).map_err(context)?;
            }
            equal("check", &found, &(seen, expected.clone())).map_err(context)?;
            sum += if expected.is_admitted { ask.cost } else { 0 };
            if expected.lease.units > 0 {
                sum += expected.lease.units;
                leases.push(expected.lease);
            }
            calls.extend(expected.call);
            if calls.len() > 2 {
                calls.remove(0);
            }
        }
        equal(
            "read",
            &purse_of(&purse_numbers(&purse)),
            &Some(purse.clone()),
        )
        .map_err(context)?;
        stored(
            server,
            &purse_numbers(&purse),
            purse.ends_us(terms.length_us),
        )
        .map_err(context)?;
    }
    Ok(sum)
}

#[test]
fn a_home_does_what_the_rules_say() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let streams = (0..40).map(|seed| compare_home(&server, seed, HOME_LUA));
    let sum: u64 = streams.map(|sum| sum.expect("no difference")).sum();
    assert!(sum > 20_000, "granted {sum}");
}

#[test]
fn a_purse_does_what_the_rules_say() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let streams = (0..40).map(|seed| compare_purse(&server, seed, PURSE_LUA));
    let sum: u64 = streams.map(|sum| sum.expect("no difference")).sum();
    assert!(sum > 5_000, "spent {sum}");
}
