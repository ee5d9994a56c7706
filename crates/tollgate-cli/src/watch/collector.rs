//! Reads Redis and the pages of running services, one snapshot after the other.
//! A page is fetched in `endpoint.rs` and read in `exposition.rs`; how a snapshot is shown is
//! decided in `sections.rs`.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tollgate_operator::states::{First, Limits, Names, Server, StateEntry, Wanted};

use super::{
    endpoint::{self, Endpoint, EndpointOptions, MetricsEndpoint},
    figures::Figures,
    metrics,
    snapshot::{DeniedKey, ScanFigures, Snapshot, SourceStatus},
    tracker::{PolicyUse, Tracker},
};
use crate::{
    failure::Failure,
    options::{RedisOptions, ScanOptions},
};

/// The greatest number of keys that are compared from one scan to the next. A state takes about 100
/// bytes.
const MOST_COMPARED: usize = 200_000;

/// Reads snapshots of a prefix.
pub(crate) struct Collector<'a> {
    redis: Redis<'a>,
    names: Names,
    /// `None` when no server is named.
    server_health: Option<Health>,
    metrics: Vec<(Health, MetricsEndpoint)>,
    denied: Vec<(Health, Endpoint)>,
}

/// Remembers since when a source is away.
struct Health {
    address: String,
    away: Option<(Instant, String)>,
}

type Uses = BTreeMap<(String, &'static str), PolicyUse>;

impl<'a> Collector<'a> {
    /// Creates a collector. Nothing is connected yet.
    pub(crate) fn new(
        redis: &'a RedisOptions,
        limits: Limits,
        scan: &ScanOptions,
        endpoints: &EndpointOptions,
        names: Names,
        first: First,
    ) -> Result<Self, Failure> {
        let timeout = redis.timeout();
        let metrics = endpoints.metrics(timeout)?;
        let denied = endpoints.denied(timeout)?;
        let server_health = if redis.is_named() {
            Some(Health::new(redis.server().address()?))
        } else {
            None
        };
        Ok(Self {
            redis: Redis {
                options: redis,
                limits,
                scan: scan.clone(),
                server: None,
                tracker: Tracker::new(MOST_COMPARED),
                first,
            },
            names,
            server_health,
            metrics: metrics
                .into_iter()
                .map(|endpoint| (Health::new(endpoint.address()), endpoint))
                .collect(),
            denied: denied
                .into_iter()
                .map(|endpoint| (Health::new(endpoint.address()), endpoint))
                .collect(),
        })
    }

    /// Reads all sources. One that is away is part of the snapshot.
    pub(crate) async fn collect(&mut self) -> Snapshot {
        let pages = join_all(self.metrics.iter().map(|(_, endpoint)| endpoint.read()));
        let denied = join_all(self.denied.iter().map(|(_, endpoint)| endpoint.read()));
        let (redis, is_named) = (&mut self.redis, self.server_health.is_some());
        let scanned = async {
            if is_named {
                Some(redis.scan().await)
            } else {
                None
            }
        };
        let (scanned, pages, denied) = tokio::join!(scanned, pages, denied);

        let scanned = self.server_health.as_mut().zip(scanned);
        let scanned = scanned.and_then(|(health, scanned)| {
            health.record(scanned.map_err(|failure: Failure| failure.message().to_owned()))
        });
        let (uses, scan) = match scanned {
            Some((uses, figures)) => (uses, Some(figures)),
            None => (Uses::new(), None),
        };
        let mut states = redis.first.take();
        if scan.is_none() {
            // Connects again next time. The units that were spent meanwhile have no known time.
            redis.server = None;
            redis.tracker.forget();
            states.clear();
        }
        states.iter_mut().for_each(|state| self.names.apply(state));

        let mut figures = Figures::default();
        for ((health, endpoint), page) in self.metrics.iter_mut().zip(pages) {
            endpoint.add(health.record(page), &mut figures);
        }
        let mut denied_keys = BTreeMap::<String, u64>::new();
        for ((health, _), page) in self.denied.iter_mut().zip(denied) {
            for (name, denials) in health
                .record(page)
                .iter()
                .flat_map(|page| endpoint::denied_keys(page))
            {
                *denied_keys.entry(name).or_default() += denials;
            }
        }
        let mut denied_keys: Vec<_> = denied_keys
            .into_iter()
            .map(|(name, denials)| DeniedKey { name, denials })
            .collect();
        denied_keys.sort_by(|a, b| b.denials.cmp(&a.denials).then_with(|| a.name.cmp(&b.name)));

        let (published, warnings) = match &scan {
            Some(_) => (
                redis.limits.published().to_vec(),
                redis.limits.warnings().to_vec(),
            ),
            None => (Vec::new(), Vec::new()),
        };
        let healths = self
            .metrics
            .iter()
            .map(|(health, _)| health)
            .chain(self.denied.iter().map(|(health, _)| health));
        Snapshot {
            time: OffsetDateTime::now_utc()
                .replace_nanosecond(0)
                .ok()
                .and_then(|now| now.format(&Rfc3339).ok()),
            prefix: is_named.then(|| redis.options.prefix()),
            redis: self.server_health.as_ref().map(Health::source),
            scan,
            endpoints: healths.map(Health::source).collect(),
            policies: metrics::policies(&uses, &figures),
            limiters: metrics::limiters(&figures),
            rules: metrics::rules(&figures),
            published,
            warnings,
            stores: metrics::stores(&figures),
            states,
            denied_keys,
        }
    }
}

/// Scans the server, and compares each scan with the one before.
struct Redis<'a> {
    options: &'a RedisOptions,
    limits: Limits,
    scan: ScanOptions,
    server: Option<Server>,
    tracker: Tracker,
    first: First,
}

impl Redis<'_> {
    async fn scan(&mut self) -> Result<(Uses, ScanFigures), Failure> {
        let server = match &mut self.server {
            Some(server) => server,
            None => self.server.insert(self.options.connect().await?),
        };
        let begun = Instant::now();
        let now_us = server.now_us().await?;
        let round_trip = begun.elapsed();
        self.limits.read(server).await?;
        let mut uses = self.tracker.begin(now_us);
        let mut scan = self.scan.quietly_over(server, &self.limits);
        let visit = |state: StateEntry| {
            uses.add(&state);
            self.first.add(state);
        };
        let report = scan.run(&Wanted::All, visit).await?;
        let uses = uses.end();
        let figures = ScanFigures {
            report,
            round_trip_seconds: round_trip.as_secs_f64(),
            scan_seconds: begun.elapsed().as_secs_f64(),
            seconds_since_last: self.tracker.passed(),
            compared_part: self.tracker.part(),
        };
        Ok((uses, figures))
    }
}

impl Health {
    fn new(address: String) -> Self {
        Self {
            address,
            away: None,
        }
    }

    fn record<T>(&mut self, read: Result<T, String>) -> Option<T> {
        match read {
            Ok(read) => {
                self.away = None;
                Some(read)
            }
            Err(reason) => {
                let since = self
                    .away
                    .as_ref()
                    .map_or_else(Instant::now, |(since, _)| *since);
                self.away = Some((since, reason));
                None
            }
        }
    }

    fn source(&self) -> SourceStatus {
        let away: Option<Duration> = self.away.as_ref().map(|(since, _)| since.elapsed());
        SourceStatus {
            address: self.address.clone(),
            failure: self.away.as_ref().map(|(_, reason)| reason.clone()),
            away_seconds: away.map(|time| time.as_secs()),
        }
    }
}
