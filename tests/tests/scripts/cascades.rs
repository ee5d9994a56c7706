//! The script of costs that cascade and the Rust functions agree, bit for bit, and mistakes in it are
//! found.

use tollgate::{
    Algorithm, Cost, Costs, Decision, Key, PolicySet, Quota, reservation::ReservationId,
};
use tollgate_test_support::{
    Alteration, Dice, InMemory, InRedis, START_US, Subject, calls::Script, mistakes, policies,
    reserved, stream,
};

use super::CALENDAR;

const WINDOWS: [Algorithm; 3] = [
    Algorithm::FixedWindow,
    Algorithm::WindowFromFirstHit,
    CALENDAR,
];

/// An algorithm, and whether its policy stands beside those that are spent one after the other.
type Member = (Algorithm, bool);

/// Draws one to four windows, and often up to two policies of any algorithm beside them, in any order.
fn members(dice: &mut Dice) -> Vec<Member> {
    let beside = [0, 1, 1, 2][dice.below(4) as usize];
    let windows = if beside == 0 { 2 } else { 1 } + dice.below(3);
    let mut members: Vec<_> = (0..windows).map(|_| (dice.pick(&WINDOWS), false)).collect();
    for _ in 0..beside {
        let at = dice.below(members.len() as u64 + 1) as usize;
        members.insert(at, (dice.pick(policies::ALGORITHMS), true));
    }
    members
}

/// Draws a set whose windows have few units. One of another amount leaves debts.
fn drawn(dice: &mut Dice, members: &[Member]) -> PolicySet {
    let policies = members
        .iter()
        .enumerate()
        .map(|(at, (algorithm, is_beside))| {
            let name = format!("p{at}");
            if *is_beside {
                return policies::small_policy(dice, &name, *algorithm);
            }
            let policy = policies::policy(dice, &name, *algorithm);
            let quota = Quota::new(1 + dice.below(12), policy.quota().period());
            policy.with_quota(quota).expect("a policy")
        });
    PolicySet::try_new(policies.collect::<Vec<_>>()).expect("a set")
}

/// Compares a stream of calls on both sides. Returns the first difference.
fn compare(redis: &mut InRedis, seed: u64, alter: &dyn Fn(&str) -> String) -> Result<(), String> {
    redis.run(&["FLUSHALL"]);
    let (mut dice, mut memory) = (Dice::new(seed), InMemory::new());
    let (key, mut now) = (Key::from("subject"), START_US);
    let members = members(&mut dice);
    let mut set = drawn(&mut dice, &members);
    for step in 0..60_u64 {
        if dice.below(8) == 0 {
            set = drawn(&mut dice, &members);
        }
        let period = dice.pick(
            &set.iter()
                .map(|policy| policy.quota().period())
                .collect::<Vec<_>>(),
        );
        let period = period.as_micros() as u64;
        now += dice.pick(&[
            0,
            0,
            0,
            1,
            period / 2,
            period - now % period,
            period - 1 - now % period,
        ]);
        if dice.below(20) == 0 {
            now -= dice.below(period.min(now - START_US + 1));
        }
        memory.set_now(now);
        redis.set_now(now);
        let each = || set.iter().zip(&members);
        let windows = each().filter(|(_, (_, is_beside))| !is_beside);
        let amounts = windows.map(|(policy, _)| policy.quota().amount());
        let (cost, is_split) = (dice.below(amounts.sum::<u64>() + 1), dice.below(3) > 0);
        let costs = Costs::cascading(cost);
        let costs = if is_split { costs } else { costs.undivided() };
        let beside = each().filter(|(_, (_, is_beside))| *is_beside);
        let costs = beside.fold(costs, |costs, (policy, _)| {
            let own = dice.below(policy.quota().burst() + 1);
            costs.with(policy.name().to_owned(), own)
        });
        let is_capped = dice.below(4) == 0;
        let ceilings = is_capped.then(|| policies::ceilings(&mut dice, &set, &costs));
        // Some ids are used again.
        let id = ReservationId::try_new(dice.below(step + 2).to_string()).expect("an id");
        let life = 1 + dice.below(2 * period);
        let expected = memory.reserve_under(&set, &key, &id, &costs, ceilings.as_deref(), life);
        let script = Script::new(set.clone()).under(ceilings);
        let loaded = redis.run(&["SCRIPT", "LOAD", &alter(script.cascade_text())]);
        let mut words = script.reserve(&key, &id, costs.clone(), life, Some(now));
        words[1] = loaded.text().into_bytes();
        let reply = redis.run(&words);
        let found = reserved(&script, costs.clone(), &reply).map_err(|error| error.to_string())?;
        let told = |decision: &Decision| {
            let costs: Vec<_> = decision.states().map(|state| state.cost()).collect();
            format!("{decision:?} {costs:?}")
        };
        if told(&expected) != told(&found) {
            return Err(format!(
                "seed {seed} step {step}: {} is not {}",
                told(&found),
                told(&expected)
            ));
        }
        if dice.below(3) == 0 {
            let final_costs = Costs::new(Cost::new(dice.below(30)));
            let number = step + 1;
            let expected = memory.commit(&set, &key, &id, &final_costs, number);
            let found = redis.commit(&set, &key, &id, &final_costs, number);
            if expected != found {
                return Err(format!(
                    "seed {seed} step {step}: {found:?} is not {expected:?}"
                ));
            }
        }
        for policy in set.iter() {
            let (expected, found) = (memory.stored(policy, &key), redis.stored(policy, &key));
            if expected != found {
                return Err(format!(
                    "seed {seed} step {step}: {found:?} is not {expected:?}"
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn cascades_agree_with_their_script() {
    let mut redis = InRedis::new();
    for seed in 0..stream::part_of(200) {
        compare(&mut redis, seed, &str::to_owned).expect("both agree");
    }
}

const MISTAKES: &str = r"
a policy gives more than it has
- math.min(free, uncovered)
+ uncovered
a policy in debt takes units
- math.max(math.min(free, uncovered), 0)
+ math.min(free, uncovered)
each policy gives the whole cost
- uncovered = uncovered - cost_1
+ uncovered = uncovered - 0
what is divided is asked of one policy
- if undivided > 0 and cost_1 < uncovered then
+ if cost_1 < uncovered then
what is undivided is divided
- if undivided > 0 and cost_1 < uncovered then
+ if false then
too little is enough
- cost_1 = cost_1 + uncovered
+ cost_1 = cost_1 + 0
a policy beside the others shares
- local shares_1 = cost_1 < 0
+ local shares_1 = true
none shares
- local shares_1 = cost_1 < 0
+ local shares_1 = false
a policy beside the others gives what they lack
- if shares_1 then
-   cost_1 = cost_1 + uncovered
+ if true then
+   cost_1 = cost_1 + uncovered
those beside the others deny nothing
- if fits_1 and fits_2 then
+ if fits_1 then
those beside the others alone deny
- if fits_1 and fits_2 then
+ if fits_2 then
a repeated id is charged again
- return { 2, record }
+ status = 1
a denied reservation is recorded
- if status == 1 then
+ if status < 2 then
the record has the whole cost
- parts[1 + 1] = pack('<ddddd', cost_1,
+ parts[1 + 1] = pack('<ddddd', uncovered,
";

#[test]
fn every_mistake_in_the_script_of_a_cascade_is_found() {
    let mut redis = InRedis::new();
    for (mistake, right, wrong) in mistakes(MISTAKES) {
        let alteration = Alteration::new(&right, &wrong);
        let is_found =
            (0..60).any(|seed| compare(&mut redis, seed, &|text| alteration.apply(text)).is_err());
        assert!(
            alteration.was_applied(),
            "the script has no such text: {mistake}"
        );
        assert!(is_found, "not found: {mistake}");
    }
}
