//! Scripts with a broken line, each of which a stream of `agreement.rs` has to find.

use tollgate_regions::testing::{HOME_LUA, PURSE_LUA};
use tollgate_tests::{RedisServer, no_server};

use super::agreement::{compare_home, compare_purse};

/// The streams that may find a mutant.
const SEEDS: u64 = 40;

/// Lines of the home and what replaces them.
const OF_HOME: [(&str, &str); 24] = [
    ("level = math.min(level, present)", ""),
    ("used = ceil(used, under) * period", ""),
    (
        "used - (time - level) * amount, 0",
        "used - (time - level), 0",
    ),
    ("ruled ~= reign and new + old > 0 or ", ""),
    (" or generation > age + 1 then", " then"),
    ("birth, generation = 0, age + 1", "generation = age + 1"),
    ("settle(generation * terms)", ""),
    ("used = used + old * scale", ""),
    ("new, old = 0, new", "new, old = 0, 0"),
    ("ledger = {}\n", ""),
    ("if seen[7] + 2 >= age then", "if seen[7] + 1 >= age then"),
    ("and seen[2] == from", ""),
    (
        "if entry and entry[3] >= number then",
        "if entry and entry[3] == number then",
    ),
    ("entry[3] == number and entry[4]", "entry[4]"),
    ("and birth ~= 0 and left > 0", "and left > 0"),
    ("born == birth and born ~= 0 and", "born ~= 0 and"),
    ("and born ~= 0 and (since", "and (since"),
    ("(since == 0 or since == 1)", "since == 0"),
    ("spent = math.min(spent, out)", ""),
    ("returned = math.min(returned, out - spent)", ""),
    ("has_room and terms == length", "has_room"),
    ("math.max(left - reserve, 0)", "left"),
    (
        "units = math.min(want, ceil(free, 2), left)",
        "units = math.min(want, free, left)",
    ),
    ("if birth == 0 or new + old == 0 then", "if birth == 0 then"),
];

/// Lines of the purse and what replaces them.
const OF_PURSE: [(&str, &str); 37] = [
    ("now = math.max(now, floor)", ""),
    ("unpack('<d', stored) == reign", "true"),
    ("lost = math.min(lost + slot[4], 9007199254740992)", ""),
    ("now = math.max(now, newest)", ""),
    ("if not is_own or now >= slot[3] then", "if not is_own then"),
    ("  if first == 1 then\n", "  if true then\n"),
    ("    asked = asked + cost\n", ""),
    ("if passed >= 20000 then", "if passed > 0 then"),
    ("(passed / (passed + 250000))", "1"),
    ("slot[5] + units, left - units", "slot[5], left - units"),
    ("math.min(retry_at, claimed + 1000000)", "retry_at"),
    ("may_claim = now >= since + 4 * trip", "may_claim = true"),
    ("may_claim = now >= next_claim", "may_claim = true"),
    (" or unreported * 16 > most", ""),
    ("elseif slot[4] + slot[5] + slot[6] > 0 then", "else"),
    ("+ slot[6] > 0 then", "> 0 then"),
    ("used = math.min(used, slot[6])", ""),
    ("back = math.min(back, slot[6] - used)", ""),
    (
        "slot[1] == birth and slot[2] == generation then\n        used",
        "true then\n        used",
    ),
    ("spent = spent + used", ""),
    ("  asked = asked + spent\n", ""),
    ("math.min(want, math.floor(slot[4] / 8))", "want"),
    ("slot[3] - now\n", "2 * length\n"),
    (", slot[6] + lease\n", ", slot[6]\n"),
    ("for place = #slots, 1, -1 do", "for place = 1, #slots do"),
    ("math.max(number + 1, now)", "number + 1"),
    ("      slot[5] = 0\n", ""),
    (
        "surplus, slot[4] = surplus - returned, slot[4] - returned",
        "surplus = surplus - returned",
    ),
    ("since > 0 and of == number and", "of == number and"),
    ("of == number and from", "from"),
    (" and from == reign then", " then"),
    (" - math.ceil(life / 1000)", ""),
    ("math.min(place[3], ends)", "ends"),
    ("(retry_at == 0 or since", "(since"),
    ("since > 0 and granted > 0)", "granted > 0)"),
    (" and rate * trip * 2 <= most then", " then"),
    ("retry > 0 and now + retry or 0", "now + retry"),
];

fn altered(script: &str, (line, other): (&str, &str)) -> String {
    assert_eq!(script.matches(line).count(), 1, "{line}");
    script.replace(line, other)
}

#[test]
fn each_broken_line_of_a_home_is_found() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    for mutant in OF_HOME {
        let script = altered(HOME_LUA, mutant);
        let is_found = (0..SEEDS).any(|seed| compare_home(&server, seed, &script).is_err());
        assert!(is_found, "{mutant:?} survives");
    }
}

#[test]
fn each_broken_line_of_a_purse_is_found() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    for mutant in OF_PURSE {
        let script = altered(PURSE_LUA, mutant);
        let is_found = (0..SEEDS).any(|seed| compare_purse(&server, seed, &script).is_err());
        assert!(is_found, "{mutant:?} survives");
    }
}
