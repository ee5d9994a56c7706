use std::time::Duration;
use tollgate::testing::{Script, Value, stored};
use tollgate::*;

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545F4914F6CDD1D) >> 11
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

fn quota(r: &mut Rng, big: bool) -> Quota {
    let (n, w) = if big {
        r.pick(&[
            (3u32, 1_000_000u64),
            (10, 7_000_000),
            (1, 1000),
            (50_000, 86_400_000_000),
            (1_000, 1_000_000),
            (100, 60_000_000),
            (5, 50),
            (7, 3),
        ])
    } else {
        (1 + r.below(8) as u32, 1 + r.below(60))
    };
    Quota::new(n, Duration::from_micros(w))
}

fn policy(r: &mut Rng, name: String, kind: u64, big: bool) -> Policy {
    let q = quota(r, big);
    let qb = if r.below(2) == 0 { q } else { q.with_burst(1 + r.below(3 * q.amount() as u64) as u32) };
    let w = q.period().as_micros() as u64;
    let (a, q) = match kind {
        0 => (Algorithm::TokenBucket, qb),
        1 => (Algorithm::IntervalBucket, qb),
        2 => (Algorithm::LeakyBucket, qb),
        3 => (Algorithm::FixedWindow, q),
        4 => (Algorithm::WindowFromFirstHit, q),
        5 => (Algorithm::SlidingWindow, q),
        6 => (Algorithm::SlidingBuckets { buckets: (1 + r.below(w.min(20))) as u16 }, q),
        _ => (Algorithm::SlidingLog, q),
    };
    Policy::try_new(name, a, q).unwrap()
}

fn run(con: &mut redis::Connection, seed: u64, rounds: u64) -> u64 {
    let mut r = Rng(seed | 1);
    let mut steps = 0;
    for round in 0..rounds {
        let big = r.below(3) == 0;
        let count = r.pick(&[1u64, 1, 1, 2, 3, 8]);
        let kinds: Vec<u64> = {
            let k = r.below(8);
            (0..count).map(|_| if count == 8 && round % 2 == 0 { k } else { r.below(8) }).collect()
        };
        let make = |r: &mut Rng| {
            PolicySet::try_new(kinds.iter().enumerate().map(|(i, &k)| policy(r, format!("p{i}"), k, big))).unwrap()
        };
        let mut set = make(&mut r);
        let clock = Clock::manual(4_000_000_000_000_000 + r.below(1_000_000_000));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let key = Key::from(format!("k{seed}-{round}"));
        let mut last: Vec<(u64, Decision)> = Vec::new();
        let mut log = Vec::new();
        for step in 0..60 {
            if r.below(25) == 0 {
                set = make(&mut r);
                log.push(format!("set {set:?}"));
            }
            let script = Script::new(set.clone());
            let p = set.iter().nth(r.below(count) as usize).unwrap().clone();
            let (w, t) = (
                p.quota().period().as_micros() as i64,
                p.quota().period().as_micros() as i64 / p.quota().amount() as i64,
            );
            let mut dt = r.pick(&[
                0,
                0,
                0,
                0,
                1,
                t - 1,
                t,
                t + 1,
                w - 1,
                w,
                w + 1,
                2 * w,
                -1,
                -t,
                -w,
                -w - 1,
                -3 * w,
                w / 2,
                w / 3,
                w / 7,
                w / 5,
            ]);
            if let Some((_, d)) = last.last() {
                if d.is_denied() && r.below(2) == 0 {
                    dt = d.retry_after().unwrap().as_micros() as i64 - r.below(2) as i64;
                } else if r.below(20) == 0 {
                    dt = d.states().map(|s| s.reset_after()).max().unwrap().as_micros() as i64 - r.below(2) as i64;
                }
            }
            if dt < 0 && r.below(3) > 0 {
                dt = 0;
            }
            let now = clock.now_us().saturating_add_signed(dt);
            clock.set(now);
            let most = set.iter().map(|p| p.quota().burst()).min().unwrap();
            let cost = match r.below(8) {
                0 => 0,
                1 => most,
                2 => 1 + r.below(most as u64) as u32,
                _ => 1,
            }
            .min(3000);
            let cost = Cost::new(cost);
            if r.below(8) == 0 {
                let plain = last.is_empty() || r.below(3) == 0;
                let cost = if cost.units() == 0 { Cost::ONE } else { cost };
                let (spent, d) = if plain {
                    (None, None)
                } else {
                    let (at, d) = r.pick(&last);
                    (Some(at), Some(d))
                };
                log.push(format!("{step}: refund at {now} {cost:?} spent {spent:?}"));
                store.refund(Check::new(&set, &key, cost), d.as_ref()).into_ready().unwrap().unwrap();
                let call = script.refund(&key, cost, Some(now), spent.unwrap_or(now));
                let mut c = redis::cmd("EVAL");
                c.arg(script.refund_text()).arg(&call[2..]);
                let _: redis::Value = c.query(con).unwrap_or_else(|e| panic!("{e} {log:#?} {}", script.refund_text()));
            } else {
                let tag = r.pick(&["", "u1", "someone"]);
                log.push(format!("{step}: check at {now} {cost:?} {tag}"));
                let d =
                    store.check(Check::new(&set, &key, cost).with_tag(tag.as_bytes())).into_ready().unwrap().unwrap();
                let call = script.check_tagged(&key, cost, tag, Some(now));
                let mut c = redis::cmd("EVAL");
                c.arg(script.text()).arg(&call[2..]);
                let words: redis::Value = c.query(con).unwrap_or_else(|e| panic!("{e} {log:#?} {}", script.text()));
                let words: Vec<i64> = match words {
                    redis::Value::Int(w) => vec![w],
                    redis::Value::Array(a) => a.into_iter().map(|w| redis::from_redis_value(w).unwrap()).collect(),
                    _ => panic!(),
                };
                let e = script.decision(cost, &words).unwrap();
                assert_eq!(format!("{d:#?}"), format!("{e:#?}"), "{set:?} {log:#?} {words:?}");
                assert_eq!(d.delay(), e.delay());
                assert_eq!(
                    d.states().map(|s| s.more_after()).collect::<Vec<_>>(),
                    e.states().map(|s| s.more_after()).collect::<Vec<_>>(),
                    "{set:?} {log:#?} {words:?}"
                );
                if d.is_allowed() && cost.units() > 0 {
                    last.push((now, d.clone()));
                } else if d.is_denied() {
                    last.push((now, d));
                }
            }
            steps += 1;
            for (p, k) in set.iter().zip(script.keys(&key)) {
                let rust = stored(&store, p, &key);
                let kind: String = redis::cmd("TYPE").arg(&k).query(con).unwrap();
                let value = match kind.as_str() {
                    "none" => None,
                    "string" => Some(Value::Bytes(redis::cmd("GET").arg(&k).query(con).unwrap())),
                    _ => Some(Value::List(redis::cmd("LRANGE").arg(&k).arg(0).arg(-1).query(con).unwrap())),
                };
                assert_eq!(rust.as_ref().map(|r| &r.value), value.as_ref(), "{p:?} {set:?} {log:#?}");
                if let Some(rust) = rust {
                    let at: u64 = redis::cmd("PEXPIRETIME").arg(&k).query(con).unwrap();
                    assert_eq!(rust.expires_ms, at, "{p:?} {log:#?}");
                }
            }
        }
        let _: () = redis::cmd("FLUSHALL").query(con).unwrap();
    }
    steps
}

#[test]
fn fuzz() {
    let mut con = redis::Client::open("redis://127.0.0.1:7391/").unwrap().get_connection().unwrap();
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let rounds = std::env::var("ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    eprintln!("{} steps", run(&mut con, seed * 7919, rounds));
}
