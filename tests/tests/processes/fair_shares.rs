//! Four replicas at one server, whose customers have fair shares of one limit.

use std::{
    collections::BTreeMap,
    process::Command,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate_tests::{Process, RedisServer, machine};

/// Units a second, and the burst. Light customers ask for half of it together.
const AMOUNT: u64 = 200;

const SECONDS: u64 = 5;

/// Counts what one customer asked for, and what it was admitted.
type Counts = BTreeMap<String, (u64, u64)>;

fn ask(amount: u64, seconds: u64) -> Counts {
    let server = RedisServer::start();
    let program = Process::example("customers").get_program().to_owned();
    // After the program was built.
    let from = SystemTime::now() + Duration::from_secs(2);
    let from = from.duration_since(UNIX_EPOCH).expect("a time").as_micros();
    let start = |replica: u64| {
        let mut command = Command::new(&program);
        command
            .env("URL", server.url())
            .env("AMOUNT", amount.to_string())
            .env("REPLICA", replica.to_string())
            .env("FROM", from.to_string())
            .env("SECONDS", seconds.to_string());
        thread::spawn(move || Process::start(command, "done"))
    };
    let replicas: Vec<_> = (0..4).map(start).collect();
    let mut counts = Counts::new();
    for replica in replicas {
        let replica = replica.join().expect("a process");
        for line in replica.output().lines() {
            if let ["customer", name, asked, admitted] = *line.split(' ').collect::<Vec<_>>() {
                let number = |text: &str| text.parse::<u64>().expect("a number");
                let count = counts.entry(name.to_owned()).or_default();
                *count = (count.0 + number(asked), count.1 + number(admitted));
            }
        }
    }
    counts
}

#[test]
fn customers_of_four_replicas_share_a_limit_fairly_wherever_they_come_in() {
    machine::undisturbed(Duration::from_millis(100), || {
        let counts = ask(AMOUNT, SECONDS);
        let light = counts.iter().filter(|(name, _)| name.starts_with("light"));
        let (asked, admitted) =
            light.fold((0, 0), |sum, (_, count)| (sum.0 + count.0, sum.1 + count.1));
        let [pinned, everywhere] = ["pinned", "everywhere"].map(|name| counts[name].1 as f64);
        let used: u64 = counts.values().map(|count| count.1).sum();
        let [served, pinned_part, used] = [
            admitted as f64 / asked as f64,
            pinned / ((AMOUNT * SECONDS - asked) as f64 / 2.0),
            used as f64 / (AMOUNT * SECONDS) as f64,
        ];
        let parts: Vec<f64> = counts
            .iter()
            .map(|(name, &(asked, admitted))| {
                let ideal = if name.starts_with("light") {
                    asked as f64
                } else {
                    AMOUNT as f64 * SECONDS as f64 / 4.0
                };
                admitted as f64 / ideal
            })
            .collect();
        let squares: f64 = parts.iter().map(|part| part * part).sum();
        let jain = parts.iter().sum::<f64>().powi(2) / (parts.len() as f64 * squares);
        println!(
            "light {served:.3}, pinned {pinned_part:.3}, Jain {jain:.3}, used {used:.3}: {counts:?}"
        );
        assert!(served > 0.95, "light customers got {served}: {counts:?}");
        assert!(
            pinned < everywhere * 2.0 && everywhere < pinned * 2.0,
            "{counts:?}"
        );
        assert!((0.9..=1.1).contains(&used), "{used}: {counts:?}");
    });
}
