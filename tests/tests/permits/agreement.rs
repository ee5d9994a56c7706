//! The script that grants permits and the pure function agree, bit for bit, on hostile streams of
//! calls. Mistakes that are built into the script are found.

use std::time::Duration;

use tollgate::{
    Key, MemoryStore, Store,
    permits::Concurrency,
    store::{Clock, KeyValue, PermitGrant, PermitRequest},
    testing,
};
use tollgate_test_support::{
    Adapted, Bytes, Deployment, Dice, InMap, InRedis, Kind, POSTGRES, START_US, Stored, calls,
    in_postgres, integers, mistakes, stored_state, stream,
};
use tollgate_tests::expiry_command;

/// The calls of a stream.
const BATCH: u64 = 2_000;

/// A call that the pure function answered, with the state that it left.
struct Answered {
    words: Vec<Vec<u8>>,
    at: String,
    now_us: u64,
    grant: PermitGrant,
    stored: Option<Stored>,
}

/// Grants what a call asks for, and returns what is then stored under this name.
type Twin = Box<dyn Fn(PermitRequest<'_>, &str) -> (PermitGrant, Option<Stored>)>;

/// Calls as replicas make them, and as they never should.
struct Stream {
    dice: Dice,
    clock: Clock,
    store: MemoryStore,
    /// A store that has to grant and to store the same.
    twin: Option<Twin>,
    now_us: u64,
    policy: Concurrency,
    replicas: u64,
    /// Tells whether more replicas hold permits at a time than a state has room for.
    is_crowd: bool,
}

impl Stream {
    fn new(seed: u64) -> Self {
        let clock = Clock::manual(START_US);
        let mut dice = Dice::new(seed);
        // Half of the streams have more replicas than a state holds.
        let replicas = [3, 90][dice.below(2) as usize];
        let is_crowd = seed % 4 == 3;
        let limit = match seed % 8 {
            // A crowd waits for permits, or each has some.
            3 => 40,
            7 => 1_000,
            _ => [1, 2, 7, 40, 1_000][dice.below(5) as usize],
        };
        Self {
            store: MemoryStore::builder().clock(clock.clone()).build(),
            twin: None,
            policy: Concurrency::try_new("streams", limit).expect("a policy"),
            now_us: START_US,
            clock,
            dice,
            replicas: if is_crowd { 90 } else { replicas },
            is_crowd,
        }
    }

    fn next(&mut self, sha: &str) -> Answered {
        let dice = &mut self.dice;
        let life = Duration::from_millis(if self.is_crowd {
            10_000
        } else {
            [100, 1_000, 10_000][dice.below(3) as usize]
        });
        let life_us = life.as_micros() as u64;
        self.now_us = match dice.below(if self.is_crowd { 6 } else { 10 }) {
            0..=4 => self.now_us + dice.below(1_000),
            5 => self.now_us,
            6 => self.now_us + life_us - dice.below(2),
            7 => self.now_us + dice.below(life_us / 2),
            8 => self.now_us - dice.below(2 * life_us),
            _ if dice.below(50) == 0 => self.now_us + 20_000_000,
            _ => self.now_us + 1,
        };
        self.clock.set(self.now_us);
        let key = Key::from(dice.below(2)).child("inner");
        let needed = [u32::from(self.is_crowd), 0, 1, 2, 5][dice.below(5) as usize];
        let mut request = testing::permit_request(&self.policy, &key);
        request.limit = (u64::from(self.policy.limit()) + dice.below(3))
            .saturating_sub(dice.below(3))
            .max(1) as u32;
        // The limit is lowered for a while.
        request.limit = if dice.below(6) == 0 {
            request.limit.div_ceil(3)
        } else {
            request.limit
        };
        request.replica = dice.below(self.replicas);
        // Late and repeated calls are rare, as are very late ones.
        request.number = self.now_us - START_US / 2 - dice.below(3) * dice.below(2) * 1_000;
        request.used = if dice.below(2) == 0 { 0 } else { needed };
        request.needed = needed;
        request.extra = [0, 0, 1, 6][dice.below(4) as usize];
        request.kept = dice.below(u64::from(needed + request.extra) + 1) as u32;
        request.waits = dice.below(2) == 0 || self.is_crowd;
        request.life = life;
        let words = calls::permit_call(sha, &request, self.now_us);
        let grant = self
            .store
            .permits(request)
            .into_ready()
            .expect("in process")
            .expect("an answer");
        let stored = testing::stored_permits(&self.store, &key, "streams").map(Stored::from);
        if let Some(twin) = &self.twin {
            let at = calls::permit_key("streams", &key).replacen("tollgate:", "", 1);
            let expected = (grant, stored.clone());
            assert_eq!(twin(request, &at), expected, "{request:?}");
        }
        Answered {
            words,
            at: calls::permit_key("streams", &key),
            now_us: self.now_us,
            grant,
            stored,
        }
    }
}

/// Repeats a stream at the server. Returns the first difference.
fn compare(redis: &mut InRedis, seed: u64, text: &str) -> Result<(), String> {
    redis.run(&["FLUSHALL"]);
    let sha = redis.run(&["SCRIPT", "LOAD", text]).text();
    let mut stream = Stream::new(seed);
    let answered: Vec<_> = (0..BATCH).map(|_| stream.next(&sha)).collect();
    let commands: Vec<Vec<Vec<u8>>> = answered
        .iter()
        .flat_map(|step| {
            let at = step.at.clone().into_bytes();
            [
                step.words.clone(),
                vec![b"GET".to_vec(), at.clone()],
                expiry_command(at),
            ]
        })
        .collect();
    let replies = redis.client.pipeline(&commands).expect("replies");
    for (number, (step, replies)) in answered.iter().zip(replies.as_chunks::<3>().0).enumerate() {
        if replies[0].is_error() {
            return Err(format!("call {number}: {}", replies[0].text()));
        }
        let grant =
            calls::read_permits(&integers(&replies[0])).map_err(|error| error.to_string())?;
        let stored = stored_state(&replies[1], &replies[2]);
        if grant != step.grant || stored != step.stored {
            return Err(format!(
                "call {number} at {}: {grant:?} and {stored:?} at the server, {:?} and {:?} in process",
                step.now_us, step.grant, step.stored
            ));
        }
    }
    Ok(())
}

#[test]
fn the_script_agrees_with_the_pure_function() {
    let mut redis = InRedis::new();
    for seed in 0..(stream::steps() as u64).div_ceil(BATCH) {
        if let Err(difference) = compare(&mut redis, seed, calls::permit_text()) {
            panic!("seed {seed}: {difference}");
        }
    }
}

fn twin<B: Bytes + 'static>(adapted: Adapted<impl KeyValue, B>) -> Twin {
    Box::new(move |request, at| {
        let grant = adapted.permits(request);
        let stored = adapted.with_bytes(|bytes, runtime| bytes.stored(at.as_bytes(), runtime));
        (grant, stored)
    })
}

#[test]
fn the_adapter_over_a_map_grants_and_stores_as_in_process() {
    for seed in 0..8 {
        let mut stream = Stream::new(seed);
        stream.twin = Some(twin(InMap::on(stream.clock.clone())));
        (0..BATCH).for_each(|_| drop(stream.next("")));
    }
}

#[test]
fn the_adapter_over_postgres_grants_and_stores_as_in_process() {
    for seed in 0..8 {
        let mut stream = Stream::new(seed);
        stream.twin = Some(twin(in_postgres(&POSTGRES, stream.clock.clone())));
        (0..stream::part_of(400)).for_each(|_| drop(stream.next("")));
    }
}

#[test]
fn the_script_agrees_with_the_pure_function_on_valkey() {
    let deployment = Deployment::start(
        Kind::Valkey,
        "the_script_agrees_with_the_pure_function_on_valkey",
    );
    let Some(Deployment::Single(server)) = deployment else {
        return;
    };
    let mut valkey = InRedis::on(server);
    for seed in 1_000..1_000 + stream::part_of(5) {
        compare(&mut valkey, seed, calls::permit_text()).expect("agreement");
    }
}

#[test]
fn a_damaged_state_counts_as_missing() {
    let mut redis = InRedis::new();
    let sha = redis.run(&["SCRIPT", "LOAD", calls::permit_text()]).text();
    let policy = Concurrency::new("streams", 2);
    let key = Key::new("acme");
    let mut request = testing::permit_request(&policy, &key);
    (request.number, request.needed) = (1, 1);
    let at = calls::permit_key("streams", &key);
    for damage in [
        &["SET", &at, "damaged"][..],
        &["LPUSH", &at, "1"],
        &["SET", &at, &"x".repeat(47)],
    ] {
        redis.run(&["DEL", &at]);
        redis.run(damage);
        let reply = redis.run(&calls::permit_call(&sha, &request, START_US));
        assert_eq!(integers(&reply), [1, 1, 0, 0], "{damage:?}");
    }
}

/// Mistakes in the script, in the form of [`mistakes`].
const MUTANTS: &str = r"
one more than the limit is granted
- local free = limit - others - held
+ local free = limit - others - held + 1
the permits of others are not counted
- others = others + has
+ others = others + 0
a grant exceeds what is free
- math.min(needed - held, free)
+ needed - held
idle permits take all that is free
- math.floor(free / 2)
+ free
idle permits are kept while others wait
- if wanted == 0 and free > 1 then
+ if free > 1 then
lapsed permits are kept
- if lapses > now then
+ if true then
permits lapse one microsecond late
- if lapses > now then
+ if lapses >= now then
a clock that went back locks permits
- if lapses > now + its_life then
+ if false then
what the clock prolonged is not stored
- lapses, changed = now + its_life, true
+ lapses = now + its_life
a late call is applied
- if previous >= number then
+ if false then
a repeated call is applied
- if previous >= number then
+ if previous > number then
a lost state is counted above the limit
- not found and others + used > limit
+ false
a lost state loses the last permit that fits
- others + used > limit
+ others + used >= limit
permits of a lost state are lost with it
- not found and others + used > limit
+ not found
permits that the state has are lost
- used > 0 and not found and
+ used > 0 and
a lowered limit leaves idle permits
-   held = math.min(held, kept)
-
a lowered limit takes permits in use
- math.min(held, kept)
+ math.min(held, used)
a lowered limit takes more than is above it
- math.min(held, kept)
+ 0
a limit that is reached counts as lowered
- if others + held > limit then
+ if others + held >= limit then
a lowered limit does not count the others
- if others + held > limit then
+ if held > limit then
a replica that lost its permits gets others
- outcome, needed, extra = 2, 0, 0
+ outcome = 2
permits are not given back
-   held = needed + extra
-
+   held = held
+
the caller's own permits count as those of others
- if name == replica then
+ if false then
a mark is not left
- if waits == 0 or #parts > 64 then
+ if true then
an exact call leaves a mark
- if waits == 0 or #parts > 64 then
+ if #parts > 64 then
a denial writes
- local parts, others, wanted, last, changed = { pack('<d', began) }, 0, 0, now, false
+ local parts, others, wanted, last, changed = { pack('<d', began) }, 0, 0, now, true
permits that were given back stay
- elseif found then
-   changed = true
+ elseif found then
+   changed = false
no expiry
- , 'PXAT', format('%d', (last - last % 1000) / 1000 + 1)
the state expires with the permits of the caller
- last = math.max(last, now + life)
+ last = now + life
the state expires with its first permits
- last = math.max(last, lapses)
+ last = math.max(now, now)
an empty state is stored
- call('DEL', KEYS[1])
+ local kept = true
the life of the caller is not stored
- number, life, now + life)
+ number, 0, now + life)
the number of the caller is not stored
- needed, number, life
+ needed, 0, life
a 65th replica holds permits
- if held > 0 and #parts > 64 then
+ if held > 0 and #parts > 65 then
a 64th replica is refused
- if held > 0 and #parts > 64 then
+ if held > 0 and #parts > 63 then
a 65th replica leaves a mark
- if waits == 0 or #parts > 64 then
+ if waits == 0 or #parts > 65 then
a refused replica keeps what it was granted
- outcome, held, needed = 3, 0, 0
+ outcome, needed = 3, 0
the state begins with each call
- began = unpack('<d', state)
+ began = now
";

#[test]
fn every_mutant_is_found() {
    let mut redis = InRedis::new();
    let mut survivors = Vec::new();
    for (mistake, right, wrong) in mistakes(MUTANTS) {
        let text = calls::permit_text().replace(&right, &wrong);
        assert_ne!(
            text,
            calls::permit_text(),
            "the script has no such text: {mistake}"
        );
        if (0..12).all(|seed| compare(&mut redis, seed, &text).is_ok()) {
            survivors.push(mistake);
        }
    }
    assert!(survivors.is_empty(), "not found: {survivors:#?}");
}
