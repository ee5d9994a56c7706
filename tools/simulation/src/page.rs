//! Writes the page of the simulation.

use std::fmt::Write as _;

use tollgate_charts::Picture;

/// Holds one part of the page: its text, its table and its picture.
#[derive(Debug)]
pub(crate) struct Part {
    /// The name of the file of the picture.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) text: String,
    pub(crate) heads: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) picture: Picture,
}

const HEAD: &str = "\
# Simulated

Written by `cargo xtask simulate --write`. A process that uses a server in Redis limits what it has under way to that
server. The limit is the *window*: so many keys, in so many batches. This page shows how windows behave where a machine
cannot measure it: with many processes, changing distances and stalls.

## The model

Times are those of a model. No machine is measured here, and each run gives the same figures.

- A *server* works on one call after another. A call takes 10 µs, and 1.7 µs for each key in it, give or take a fifth. With
  full batches of 64 keys it decides up to 539 k checks a second. Both times come from [measurements](profile.md).
- A *line* delays what is sent, by half of the round trip in each direction and a random time (a fortieth of the round trip
  on average). Nothing overtakes.
- A *process* has callers. Each caller asks for a decision, waits for it, and asks for the next one. A process takes 0.9 µs
  for each check. A caller leaves at the deadline of 50 ms and asks again. Such a check is called *late*. A check is not
  sent when an answer after another round trip would come too late. Its caller asks again within a millisecond, and the
  check is counted as late.
- The *window* is the pacer of the store (`redis/dispatch/pacer.rs`), compiled into this program. *Four batches* is what the
  store did before: it had at most four batches under way, whatever the distance.

The *ideal* rate is the least of three: callers divided by the time of an empty system, the capacity of the server, and the
capacity of the processes. *Wait at the server* is the time between the arrival of a call and its begin. A good controller
reaches the ideal rate and keeps this wait short, so that checks wait where they can still be combined or given up.

## In short

- One process with many callers reaches 80 to 100 % of the ideal rate at each distance, and the server is idle or has a queue
  of a millisecond. Four batches fall behind with the distance.
- Eight processes keep one server busy without a growing queue. At one distance they share it about evenly while the load
  fits the deadline. With much more load, some processes have twice or three times as much as others. Processes that are
  farther away get less than near ones, as with TCP.
- A line that holds all answers back and releases them in bursts looks like a queue at the server. The window stays at its
  floor there, and is no better than four batches.
";

/// Returns the whole page.
pub(crate) fn markdown(parts: &[Part]) -> String {
    let mut page = HEAD.to_owned();
    for part in parts {
        let _ = writeln!(page, "\n## {}\n\n{}\n\n![{}](plots/{}.svg)", part.title, part.text, part.title, part.name);
        if part.heads.is_empty() {
            continue;
        }
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let heads: Vec<String> = part.heads.iter().map(|&head| head.to_owned()).collect();
        let _ = writeln!(page, "\n<details><summary>{} rows</summary>\n", part.rows.len());
        page += &(line(&heads) + &line(&vec!["---".to_owned(); heads.len()]));
        part.rows.iter().for_each(|row| page += &line(row));
        page.push_str("\n</details>\n");
    }
    page
}

/// Formats thousands per second.
pub(crate) fn thousands(rate: f64) -> String {
    format!("{} k", short(rate / 1e3))
}

/// Formats a number with three digits or fewer behind the point.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".to_owned(),
        it if it < 10.0 => format!("{value:.2}"),
        it if it < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats a share as per cent.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", short(100.0 * share))
}
