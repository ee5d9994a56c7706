use ratatui::{Terminal, backend::TestBackend};
use tollgate_operator::states::ScanReport;

use super::*;
use crate::{
    cells::of_window,
    watch::snapshot::{
        DeniedKey, LimiterFigures, PolicyFigures, ScanFigures, SourceStatus, StoreFigures,
    },
};

/// Returns the screen as text.
fn drawn(snapshot: Option<&Snapshot>, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, snapshot)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| {
        (0..width)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
            .trim_end()
            .to_owned()
    };
    (0..height)
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
        .trim_end()
        .to_owned()
}

fn source(address: &str) -> SourceStatus {
    SourceStatus {
        address: address.to_owned(),
        failure: None,
        away_seconds: None,
    }
}

fn snapshot() -> Snapshot {
    let policy = |policy: &str, rate: f64| PolicyFigures {
        policy: policy.to_owned(),
        algorithm: Some("fixed_window"),
        keys: Some(2),
        limited_keys: Some(1),
        units_per_second: Some(rate),
        allowed_per_second: Some(rate),
        denied_per_second: Some(1.5),
        shadowed_per_second: None,
    };
    let figures = ScanFigures {
        round_trip_seconds: 0.000_21,
        scan_seconds: 0.012,
        compared_part: 1,
        ..Default::default()
    };
    let mut report = ScanReport::default();
    (report.states, report.other_keys) = (4, 1);
    Snapshot {
        time: None,
        prefix: Some("tollgate".to_owned()),
        redis: Some(source("127.0.0.1:6379")),
        scan: Some(ScanFigures { report, ..figures }),
        endpoints: vec![source("127.0.0.1:9090/metrics")],
        policies: vec![policy("api", 120.0), policy("exports-of-the-night", 7.25)],
        limiters: vec![LimiterFigures {
            limiter: "api".to_owned(),
            allowed_per_second: Some(120.0),
            denied_per_second: Some(1.5),
            p99_seconds: Some(0.001_9),
            processes_in_outage: Some(0),
            outages: Some(3),
            ..LimiterFigures::default()
        }],
        rules: Vec::new(),
        published: Vec::new(),
        warnings: Vec::new(),
        stores: vec![StoreFigures {
            store: "tollgate".to_owned(),
            servers: 2,
            connected: 2,
            breakers_open: 0,
            queued: 0,
            round_trip_seconds: Some(0.000_3),
            replicas: 2,
        }],
        states: vec![
            of_window("acme", "api", 10, Some(10)),
            of_window("192.0.2.7", "exports-of-the-night", 3, Some(10)),
        ],
        denied_keys: vec![DeniedKey {
            name: "0123456789abcdef0123456789abcdef".to_owned(),
            denials: 7,
        }],
    }
}

#[test]
fn everything_stands_on_a_wide_screen() {
    let expected = "\
tollgate top  prefix tollgate                                                                q quits
redis 127.0.0.1:6379  up, 0.21 ms, 4 states, 1 keys of other programs left out, scanned in 12.0 ms
page 127.0.0.1:9090/metrics  up
store tollgate  2 of 2 servers connected, 0 breakers open, 0 queued, 2 replicas, 0.30 ms
outage  none

policy                algorithm     keys  limited  units/s  allowed/s  denied/s
api                   fixed_window     2        1      120        120       1.5
exports-of-the-night  fixed_window     2        1      7.2        7.2       1.5

limiter  allowed/s  denied/s     p99  outages
api            120       1.5  1.9 ms        3

denials  denied key
      7  0123456789abcdef0123456789abcdef

spent  left  spent %  fresh in   key        policy                quota
   10     0    100.0  1 min 0 s  acme       api                   10/min
    3     7     30.0  1 min 0 s  192.0.2.7  exports-of-the-night  10/min";
    let drawn = drawn(Some(&snapshot()), 100, 30);
    assert_eq!(drawn, expected, "{drawn}");
}

#[test]
fn a_narrow_screen_leaves_out_columns_and_a_low_one_rows() {
    let expected = "\
tollgate top  prefix tollgate
redis 127.0.0.1:6379  up, 0.21 ms, 4 st…
page 127.0.0.1:9090/metrics  up
store tollgate  2 of 2 servers connecte…
outage  none

policy      units/s  allowed/s  denied/s
api             120        120       1.5
exports-o…      7.2        7.2       1.5

limiter  allowed/s  denied/s     p99
api            120       1.5  1.9 ms";
    let drawn = drawn(Some(&snapshot()), 40, 12);
    assert_eq!(drawn, expected, "{drawn}");
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(1, 1), (2, 3), (8, 40), (200, 2), (41, 1)] {
        let text = drawn(Some(&snapshot()), width, height);
        assert!(text.lines().count() <= usize::from(height), "{text}");
        assert!(!drawn(None, width, height).is_empty());
    }
}

#[test]
fn sources_that_are_away_and_outages_are_told() {
    let mut away = snapshot();
    let reason = "cannot connect to 127.0.0.1:6379: the connection was refused";
    away.redis = Some(SourceStatus {
        failure: Some(reason.to_owned()),
        away_seconds: Some(12),
        ..source("127.0.0.1:6379")
    });
    away.scan = None;
    away.endpoints[0].failure = Some("status 503".to_owned());
    away.endpoints[0].away_seconds = Some(2);
    away.limiters[0].processes_in_outage = Some(2);
    away.stores[0].connected = 1;
    (away.policies, away.states, away.denied_keys) = Default::default();
    let expected = "\
tollgate top  prefix tollgate                                        q quits
redis 127.0.0.1:6379  away for 12 s: the connection was refused
page 127.0.0.1:9090/metrics  away for 2 s: status 503
store tollgate  1 of 2 servers connected, 0 breakers open, 0 queued, 2 repl…
outage  api (2 processes)

limiter  allowed/s  denied/s     p99  outages
api            120       1.5  1.9 ms        3";
    let text = drawn(Some(&away), 76, 20);
    assert_eq!(text, expected, "{text}");
    let bad: Vec<_> = sections::status(&away)
        .iter()
        .map(|line| line.is_bad)
        .collect();
    assert_eq!(bad, [true; 4]);
    assert!(!away.is_read() && snapshot().is_read());
}

#[test]
fn without_a_server_the_pages_are_shown_and_what_is_missing_is_told() {
    let mut pages = snapshot();
    (pages.prefix, pages.redis, pages.scan) = (None, None, None);
    (pages.policies, pages.states, pages.denied_keys) = Default::default();
    let expected = "\
tollgate top                                                         q quits
redis  not read: --redis adds units, keys and their use
page 127.0.0.1:9090/metrics  up
store tollgate  2 of 2 servers connected, 0 breakers open, 0 queued, 2 repl…
outage  none

limiter  allowed/s  denied/s     p99  outages
api            120       1.5  1.9 ms        3";
    let text = drawn(Some(&pages), 76, 20);
    assert_eq!(text, expected, "{text}");
    assert!(sections::status(&pages).iter().all(|line| !line.is_bad) && pages.is_read());
}
