//! The scripts of exceptions and the list of Rust agree on streams of calls. Mistakes that are built
//! into the scripts are found.

use std::time::Duration;

use tollgate::{
    Quota,
    store::{Exception, ExceptionCall, ExceptionChange, ExceptionList},
};
use tollgate_test_support::{Dice, InRedis, START_US, mistakes};

const EXCEPT: &str = include_str!("../../../scripts/except.lua");
const EXCEPTIONS: &str = include_str!("../../../scripts/exceptions.lua");

const KEY: &str = "tollgate:{replicas}:exceptions";

/// The most exceptions of a hash here, so that streams reach it.
const MOST: usize = 4;

/// The time in milliseconds after which the hash expires.
const LIFE_MS: u64 = 60_000_000;

/// The calls of a stream.
const CALLS: u64 = 120;

/// A server, the list that it has to agree with, and the scripts.
struct Compared<'a> {
    redis: &'a mut InRedis,
    list: ExceptionList,
    except: &'a str,
    exceptions: &'a str,
    now_us: u64,
    version: String,
    number: u64,
}

/// Returns an exception of one of a few keys and policies.
fn drawn(dice: &mut Dice) -> Exception {
    let names = ["daily", "a policy"];
    let keys = ["acme", "acme>ann", "ümlaut", "shop,(tenant,gold)"];
    let change = match dice.below(3) {
        0 => ExceptionChange::Factor(2.5),
        1 => ExceptionChange::Quota(Quota::per_day(dice.below(3))),
        _ => ExceptionChange::Quota(Quota::per_hour(7).with_burst(9)),
    };
    let lasts = [1_000_000, 5_000_001, 86_400_000_000][dice.below(3) as usize];
    let policy = names[dice.below(2) as usize];
    Exception::new(policy, "", change, Duration::from_micros(lasts))
        .at_key(keys[dice.below(4) as usize])
        .at_limiter(["search", "api"][dice.below(2) as usize])
        .by("ann")
        .because(format!("reason {}", dice.below(5)))
}

impl Compared<'_> {
    /// Sends a script, and returns the texts of its reply.
    fn eval(&mut self, script: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
        let words = [&["EVAL", script, "1", KEY], arguments].concat();
        let reply = self.redis.run(&words);
        if reply.is_error() {
            return Err(reply.text().to_owned());
        }
        let texts = reply.items().iter().map(|item| item.text().to_owned());
        Ok(texts.collect())
    }

    /// Grants or withdraws, and compares what is said.
    fn change(&mut self, call: &ExceptionCall) -> Result<(), String> {
        let (id, lasts_us, end) = match call {
            ExceptionCall::Grant(exception) => exception.parts().expect("an exception"),
            ExceptionCall::Withdraw(id) => (id.clone(), 0, String::new()),
            _ => unreachable!("the other script lists"),
        };
        self.number += 1;
        let (now, version) = (self.now_us.to_string(), format!("v{}", self.number));
        let (lasts, most, life) = (lasts_us.to_string(), MOST.to_string(), LIFE_MS.to_string());
        let arguments = [&*now, &version, &id, &lasts, &end, &most, &life];
        let said = self.eval(self.except, &arguments)?;

        let all = self.list.apply(&ExceptionCall::List, self.now_us);
        let all = all.expect("a list");
        let is_new = all.iter().all(|exception| exception.id() != id);
        if lasts_us > 0 && is_new && all.len() >= MOST {
            return expect("a full store", &said, &[&now, "", "full"]);
        }
        let last = self.list.apply(call, self.now_us).expect("room");
        let last = last.first().map(ToString::to_string).unwrap_or_default();
        self.version = version;
        expect("the last one", &said, &[&now, &last])?;
        // What has ended is gone, and the hash expires.
        let fields = self.redis.run(&["HLEN", KEY]).int();
        let expected = self.list.as_slice().len() as i64 + 1;
        if fields != expected {
            return Err(format!("{fields} fields instead of {expected}"));
        }
        match self.redis.run(&["PTTL", KEY]).int() {
            left if left > 0 && left as u64 <= LIFE_MS => Ok(()),
            left => Err(format!("the hash expires after {left} ms")),
        }
    }

    /// Lists by the other script, as one who knows this version.
    fn list(&mut self, known: &str) -> Result<(), String> {
        let (now, version) = (self.now_us.to_string(), self.version.clone());
        let said = self.eval(self.exceptions, &[&now, known])?;
        if known == version {
            return expect("nothing new", &said, &[&now, &version]);
        }
        if said.len() < 3 {
            return Err(format!("no list: {said:?}"));
        }
        expect("the head of a list", &said[..3], &[&now, &version, "1"])?;
        let lines = ExceptionList::read(&said[3..].join("\n")).into_vec();
        let mut listed: Vec<_> = lines
            .iter()
            .filter(|exception| exception.ends_us() > self.now_us)
            .map(ToString::to_string)
            .collect();
        let all = self.list.apply(&ExceptionCall::List, self.now_us);
        let mut all: Vec<_> = all
            .expect("a list")
            .iter()
            .map(ToString::to_string)
            .collect();
        listed.sort();
        all.sort();
        match listed == all {
            true => Ok(()),
            false => Err(format!("{listed:?} instead of {all:?}")),
        }
    }

    /// Compares the clock of the server, without a time in the call.
    fn clock(&mut self) -> Result<(), String> {
        let mut last = self.server_us();
        for at in 0..5 {
            let script = if at % 2 == 0 {
                self.exceptions
            } else {
                self.except
            };
            let said = self.eval(script, &["", "-", "none", "0", "", "4", "60000"])?;
            let now: u64 = said[0].parse().map_err(|_| said[0].clone())?;
            let after = self.server_us();
            if now < last || now > after {
                return Err(format!("{now} is not between {last} and {after}"));
            }
            last = after;
        }
        Ok(())
    }

    fn server_us(&mut self) -> u64 {
        let time = self.redis.run(&["TIME"]);
        let part = |at: usize| time.items()[at].text().parse::<u64>().expect("a time");
        part(0) * 1_000_000 + part(1)
    }
}

fn expect(what: &str, said: &[String], expected: &[&str]) -> Result<(), String> {
    match said == expected {
        true => Ok(()),
        false => Err(format!("{what}: {said:?} instead of {expected:?}")),
    }
}

/// Compares the scripts with the list on the stream of this seed.
fn compare(redis: &mut InRedis, seed: u64, except: &str, exceptions: &str) -> Result<(), String> {
    redis.run(&["DEL", KEY]);
    let mut dice = Dice::new(seed);
    let mut compared = Compared {
        redis,
        list: ExceptionList::default(),
        except,
        exceptions,
        now_us: START_US,
        version: String::new(),
        number: 0,
    };
    compared.clock()?;
    compared.redis.run(&["DEL", KEY]);
    compared.list("")?;
    compared.list("-")?;
    for _ in 0..CALLS {
        // To the microsecond at which an exception ends, too.
        compared.now_us +=
            [0, 1, 999_999, 1_000_000, 5_000_000, 90_000_000_000][dice.below(6) as usize];
        let exception = drawn(&mut dice);
        let call = match dice.below(4) {
            0 => {
                let (limiter, policy) = (exception.limiter(), exception.policy());
                ExceptionCall::withdraw(limiter, policy, exception.key())
            }
            _ => ExceptionCall::Grant(exception),
        };
        if dice.below(8) == 0 && !compared.version.is_empty() {
            // Written by hand, or by a version of tomorrow.
            compared.redis.run(&["HSET", KEY, "by hand", "a line"]);
        }
        let before = compared.version.clone();
        compared.change(&call)?;
        let version = compared.version.clone();
        compared.list(&version)?;
        compared.list(if dice.below(2) == 0 { &before } else { "-" })?;
    }
    Ok(())
}

#[test]
fn the_scripts_of_exceptions_agree_with_the_list() {
    let mut redis = InRedis::new();
    for seed in 0..24 {
        if let Err(difference) = compare(&mut redis, seed, EXCEPT, EXCEPTIONS) {
            panic!("seed {seed}: {difference}");
        }
    }
}

/// Mistakes in the script that grants, in the form of [`mistakes`].
const GRANTING: &str = r"
an exception outlasts its end by a microsecond
- ends + 0 <= now
+ ends + 0 < now
a line of another form is kept
- if not ends or ends + 0 <= now then
+ if ends and ends + 0 <= now then
the end is read in the place of the beginning
- '^[^\t]*\t[^\t]*\t[^\t]*\t%d+\t(%d+)\t'
+ '^[^\t]*\t[^\t]*\t[^\t]*\t(%d+)\t%d+\t'
a change counts as one more, and says nothing of the one before
- elseif all[at] == ARGV[3] then
+ elseif false then
one exception more than the most is granted
- count >= ARGV[6] + 0
+ count > ARGV[6] + 0
a full store refuses a change
- if lasts > 0 and count >= ARGV[6] + 0 then
+ if lasts > 0 and count + (last == '' and 0 or 1) >= ARGV[6] + 0 then
a full store withdraws nothing
- if lasts > 0 and count >= ARGV[6] + 0 then
+ if count >= ARGV[6] + 0 then
what is refused is known as a change
- if lasts > 0 and count >= ARGV[6] + 0 then
+ if lasts > 0 and count >= ARGV[6] + 0 then redis.call('HSET', KEYS[1], '', ARGV[2])
what has ended takes room
- ended[#ended + 1] = all[at]
+ ended[#ended + 1] = all[at] count = count + 1
the version is counted as an exception
- if all[at] ~= '' then
+ if true then
the version stays
- redis.call('HSET', KEYS[1], '', ARGV[2])
+ redis.call('HSETNX', KEYS[1], '', ARGV[2])
what has ended stays
- redis.call('HDEL', KEYS[1], ended[at])
+ local _ = ended[at]
only the first that has ended is dropped
- for at = 1, #ended do
+ for at = 1, math.min(#ended, 1) do
the end is a span
- now, now + lasts)
+ now, lasts)
times lose digits
- string.format('\t%.0f\t%.0f\t', now, now + lasts)
+ '\t' .. now .. '\t' .. (now + lasts) .. '\t'
what is withdrawn stays
- redis.call('HDEL', KEYS[1], ARGV[3])
+ local _ = ARGV[3]
the name of an exception is not in its line
- { ARGV[3], times, ARGV[5] }
+ { times, ARGV[5] }
the author is not in the line
- { ARGV[3], times, ARGV[5] }
+ { ARGV[3], times }
the hash never expires
- redis.call('PEXPIRE', KEYS[1], ARGV[7])
+ redis.call('PERSIST', KEYS[1])
the hash expires in seconds
- redis.call('PEXPIRE', KEYS[1], ARGV[7])
+ redis.call('EXPIRE', KEYS[1], ARGV[7])
the time of the reply loses digits
- return { string.format('%.0f', now), last }
+ return { now .. '', last }
a refusal has no time
- return { string.format('%.0f', now), '', 'full' }
+ return { '0', '', 'full' }
the clock of the caller is not believed
- if now == '' then
+ if true then
the clock has whole seconds
- now = time[1] * 1000000 + time[2]
+ now = time[1] * 1000000
";

/// Mistakes in the script that lists.
const LISTING: &str = r"
everything is sent each time
- if version ~= ARGV[2] then
+ if true then
nothing is ever sent
- if version ~= ARGV[2] then
+ if false then
who knows none yet gets nothing of an empty store
- if version ~= ARGV[2] then
+ if version ~= ARGV[2] and version ~= '' then
a store without exceptions has no version
- redis.call('HGET', KEYS[1], '') or ''
+ redis.call('HGET', KEYS[1], '') or '0'
the names are sent in the place of the lines
- redis.call('HVALS', KEYS[1])
+ redis.call('HKEYS', KEYS[1])
the last one is left out
- for at = 1, #values do
+ for at = 1, #values - 1 do
a line takes the place of the mark of a list
- reply[at + 3] = values[at]
+ reply[at + 2] = values[at]
the time loses digits
- string.format('%.0f', now), version
+ now .. '', version
the clock of the caller is not believed
- if now == '' then
+ if true then
the clock has whole seconds
- now = time[1] * 1000000 + time[2]
+ now = time[1] * 1000000
";

#[test]
fn every_mutant_of_the_scripts_of_exceptions_is_found() {
    let mut redis = InRedis::new();
    let mut survivors = Vec::new();
    let granting = mistakes(GRANTING).map(|mistake| (mistake, EXCEPT));
    let listing = mistakes(LISTING).map(|mistake| (mistake, EXCEPTIONS));
    for ((mistake, right, wrong), script) in granting.chain(listing) {
        let text = script.replace(&right, &wrong);
        assert_ne!(text, script, "the script has no such text: {mistake}");
        let (except, exceptions) = match script == EXCEPT {
            true => (&*text, EXCEPTIONS),
            false => (EXCEPT, &*text),
        };
        if (0..12).all(|seed| compare(&mut redis, seed, except, exceptions).is_ok()) {
            survivors.push(mistake);
        }
    }
    assert!(survivors.is_empty(), "not found: {survivors:#?}");
}
