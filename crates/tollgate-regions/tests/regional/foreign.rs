//! Texts of other programs under the names of a purse and of a home. Each key is decided all the same.
//! Streams over what the scripts write themselves are in `agreement.rs`.

use tollgate_regions::{
    rules::{Ask, Call, Meter, Terms},
    testing::{HOME_LUA, PURSE_LUA, call, check, checked, granted, home_of},
};
use tollgate_tests::{RedisServer, no_server};

use super::agreement::run;

const NOW_US: u64 = 4_000_000_000_000_000;

const METERS: [Meter; 2] = [
    Meter::Bucket {
        amount: 2,
        period_us: 1_000,
    },
    Meter::Window {
        period_us: 3_000_000,
    },
];

fn terms(meter: Meter) -> Terms {
    Terms {
        meter,
        burst: 1_000,
        length_us: 500_000,
        most: 500,
    }
}

/// Returns texts that are none of a script, or have its length.
fn texts(words: usize) -> Vec<Vec<u8>> {
    let of = |number: f64, words: usize| number.to_le_bytes().repeat(words);
    let numbers = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        9_007_199_254_740_992.0,
        9_007_199_254_740_994.0,
        -1e15,
        0.5,
        0.0,
    ];
    let mut texts = vec![Vec::new(), b"garbage".to_vec(), vec![b'x'; words * 8]];
    texts.extend(numbers.map(|number| of(number, words)));
    // Only one number of it is wrong.
    for place in 0..words {
        let mut text = of(1.0, words);
        text[place * 8..][..8].copy_from_slice(&f64::NAN.to_le_bytes());
        texts.push(text);
    }
    texts
}

#[test]
fn a_home_grants_as_if_a_foreign_text_was_not_there() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    for meter in METERS {
        for text in texts(16) {
            let made = |number| Call {
                reign: 5,
                number,
                since_us: NOW_US,
                want: 100,
                held: 0,
                reports: Default::default(),
            };
            server.command(&[b"SET" as &[u8], b"it", &text]);
            for step in 1..4 {
                let numbers = call((NOW_US, 1), &terms(meter), 77, 3, &made(NOW_US + step));
                let reply = run(&server, HOME_LUA, &numbers);
                let reply = reply.unwrap_or_else(|error| panic!("{meter:?} {text:?}: {error}"));
                let grant = granted(&reply).expect("a grant");
                assert_eq!(grant.units, 100, "{meter:?} {text:?}: {grant:?}");
            }
        }
    }
    assert!(home_of(&[0.0; 16]).is_none(), "no period");
}

#[test]
fn a_purse_answers_as_if_a_foreign_text_was_not_there() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    for text in texts(16) {
        server.command(&[b"SET" as &[u8], b"it", &text]);
        let ask = Ask {
            cost: 1,
            is_first: true,
            trip_us: 80_000,
            most: 500,
            ..Ask::default()
        };
        let numbers = check((NOW_US, 3), 0, &terms(METERS[0]), &ask);
        let reply = run(&server, PURSE_LUA, &numbers);
        let reply = reply.unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let (_, answer) = checked(&reply).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert!(!answer.is_admitted && answer.free == 0, "{text:?}");
        assert!(answer.call.is_some(), "{text:?}: nobody asks the home");
    }
}
