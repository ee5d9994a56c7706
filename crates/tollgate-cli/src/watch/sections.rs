//! Lays out a snapshot as lines of text, for a given width.
//! Nothing here prints: that is in `plain.rs` and `screen.rs`.

use super::snapshot::{Snapshot, SourceStatus};
use crate::{
    cells::{limiter_cells, scan_line, state_cells},
    output::{Line, Table},
};

/// Returns the lines about the sources and the outages.
pub(super) fn status(snapshot: &Snapshot) -> Vec<Line> {
    let redis = snapshot.scan.as_ref().map(|scan| {
        let mut text = format!(
            "up, {}, {}, scanned in {}",
            seconds(scan.round_trip_seconds),
            scan_line(&scan.report),
            seconds(scan.scan_seconds)
        );
        if scan.compared_part > 1 {
            text.push_str(&format!(", units/s of 1 key in {}", scan.compared_part));
        }
        text
    });
    let mut lines = vec![match &snapshot.redis {
        Some(server) => source("redis", server, redis),
        None => good("redis  not read: --redis adds units, keys and their use"),
    }];
    lines.extend(snapshot.warnings.iter().map(|warning| Line {
        text: format!("limits  {warning}"),
        is_bad: true,
    }));
    lines.extend(
        snapshot
            .endpoints
            .iter()
            .map(|endpoint| source("page", endpoint, Some("up".to_owned()))),
    );
    for store in &snapshot.stores {
        let is_bad = store.connected < store.servers || store.breakers_open > 0;
        let round_trip = store
            .round_trip_seconds
            .map(|time| format!(", {}", seconds(time)))
            .unwrap_or_default();
        let text = format!(
            "store {}  {} of {} servers connected, {} breakers open, {} queued, {} replicas{round_trip}",
            store.store,
            store.connected,
            store.servers,
            store.breakers_open,
            store.queued,
            store.replicas
        );
        lines.push(Line { text, is_bad });
    }
    let in_outage: Vec<_> = snapshot
        .limiters
        .iter()
        .filter(|limiter| limiter.processes_in_outage > Some(0))
        .collect();
    if !in_outage.is_empty() {
        let name = |limiter: &&super::snapshot::LimiterFigures| match limiter.processes_in_outage {
            Some(processes) if processes > 1 => {
                format!("{} ({processes} processes)", limiter.limiter)
            }
            _ => limiter.limiter.clone(),
        };
        let names: Vec<_> = in_outage.iter().map(name).collect();
        lines.push(Line {
            text: format!("outage  {}", names.join(", ")),
            is_bad: true,
        });
    } else if snapshot
        .limiters
        .iter()
        .any(|limiter| limiter.processes_in_outage.is_some())
    {
        lines.push(good("outage  none"));
    }
    lines
}

fn source(kind: &str, source: &SourceStatus, up: Option<String>) -> Line {
    match (&source.failure, up) {
        (None, Some(up)) => good(format!("{kind} {}  {up}", source.address)),
        (failure, _) => {
            // The message names the address, which stands before it.
            let reason = failure.as_deref().unwrap_or("not read yet");
            let reason = reason
                .rsplit_once(&format!("{}: ", source.address))
                .map_or(reason, |(_, reason)| reason);
            let away = source.away_seconds.unwrap_or(0);
            Line {
                text: format!("{kind} {}  away for {away} s: {reason}", source.address),
                is_bad: true,
            }
        }
    }
}

fn good(text: impl Into<String>) -> Line {
    Line {
        text: text.into(),
        is_bad: false,
    }
}

/// Returns the tables that have rows.
pub(super) fn sections(snapshot: &Snapshot) -> Vec<Table> {
    // The last ones have no place on a low screen.
    let mut all = vec![
        policies(snapshot),
        limiters(snapshot),
        denied(snapshot),
        states(snapshot),
        rules(snapshot),
        published(snapshot),
    ];
    all.retain(|section| section.rows() > 0);
    // Those that no source fills.
    all.iter_mut().for_each(Table::drop_empty_columns);
    all
}

fn policies(snapshot: &Snapshot) -> Table {
    let mut table = Table::dispensable([
        ("policy", 0),
        ("algorithm", 3),
        (">keys", 2),
        (">limited", 1),
        (">units/s", 0),
        (">allowed/s", 0),
        (">denied/s", 0),
        (">shadow/s", 1),
    ]);
    for of in &snapshot.policies {
        table.row([
            of.policy.clone(),
            of.algorithm.unwrap_or_default().to_owned(),
            whole(of.keys),
            whole(of.limited_keys),
            rate(of.units_per_second),
            rate(of.allowed_per_second),
            rate(of.denied_per_second),
            rate(of.shadowed_per_second),
        ]);
    }
    table
}

fn published(snapshot: &Snapshot) -> Table {
    let mut table = Table::dispensable([
        ("published limiter", 0),
        ("enforced", 0),
        ("operator", 0),
        ("policies", 1),
    ]);
    for of in &snapshot.published {
        table.row(limiter_cells(of));
    }
    table
}

fn limiters(snapshot: &Snapshot) -> Table {
    let mut table = Table::dispensable([
        ("limiter", 0),
        (">allowed/s", 0),
        (">denied/s", 0),
        (">failed/s", 2),
        (">degraded/s", 1),
        ("reason", 4),
        (">p99", 0),
        (">outages", 3),
    ]);
    for of in &snapshot.limiters {
        let cells = [
            of.limiter.clone(),
            rate(of.allowed_per_second),
            rate(of.denied_per_second),
            rate(of.failed_per_second),
            rate(of.degraded_per_second),
            of.degraded_reason.clone().unwrap_or_default(),
            of.p99_seconds.map(seconds).unwrap_or_default(),
            whole(of.outages),
        ];
        table.marked_row(of.processes_in_outage > Some(0), cells);
    }
    table
}

fn rules(snapshot: &Snapshot) -> Table {
    let mut table = Table::dispensable([
        ("rule", 0),
        (">within/s", 0),
        (">over/s", 0),
        (">shadow/s", 1),
    ]);
    for of in &snapshot.rules {
        let [within, over, shadow] = [
            of.within_per_second,
            of.over_per_second,
            of.shadow_per_second,
        ]
        .map(rate);
        table.row([of.rule.clone(), within, over, shadow]);
    }
    table
}

fn states(snapshot: &Snapshot) -> Table {
    let columns = [
        (">spent", 0),
        (">left", 1),
        (">spent %", 2),
        ("fresh in", 3),
        ("key", 0),
        ("policy", 0),
        ("quota", 4),
    ];
    let mut table = Table::dispensable(columns);
    for state in &snapshot.states {
        let [spent, left, share, fresh, key, policy, _, quota] = state_cells(state);
        table.marked_row(
            state.is_limited(),
            [spent, left, share, fresh, key, policy, quota],
        );
    }
    table
}

fn denied(snapshot: &Snapshot) -> Table {
    let mut table = Table::new([">denials", "denied key"]);
    for key in &snapshot.denied_keys {
        table.row([key.denials.to_string(), key.name.clone()]);
    }
    table
}

fn whole(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

fn rate(rate: Option<f64>) -> String {
    match rate {
        None => String::new(),
        Some(rate) if rate >= 100.0 => format!("{rate:.0}"),
        Some(rate) => format!("{rate:.1}"),
    }
}

/// Returns a time as text, with two or three digits that count.
fn seconds(time: f64) -> String {
    match time * 1e3 {
        ms if ms < 1.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 1e3 => format!("{ms:.0} ms"),
        _ => format!("{time:.1} s"),
    }
}
