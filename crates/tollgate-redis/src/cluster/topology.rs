//! What is known of a cluster, and the task that keeps the knowledge true.
//! The knowledge itself is a `SlotMap` in `slot_map.rs`; redirects of calls are followed in
//! `routing.rs`.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::slot_map::{self, SlotMap, View};
use crate::{
    connect::{Address, ConnectionSource, ConnectionTemplate, SharedConnection},
    dispatch::{Sender, SlotShare, StoreConfig},
    protocol::hash_slot::unused_key_in,
    server::{self, Server},
};
use tollgate_core::{
    Error, ErrorKind, Key,
    raw::{
        Lock,
        runtime::{Background, Running},
    },
};

/// Knows a cluster, and keeps the knowledge true.
///
/// One task refreshes the knowledge: one refresh at a time, with a pause after each. A refresh is
/// requested when a call meets a redirect or a broken server. Refreshes go on while a server with
/// slots is not asked. One happens every half minute in any case, so that a cluster whose servers
/// are replaced one by one is never lost. A redirect counts at once.
pub(crate) struct Cluster {
    template: ConnectionTemplate,
    config: StoreConfig,
    pub(super) connect_timeout: Duration,
    seeds: Vec<Address>,
    known: ArcSwap<KnownCluster>,
    /// Held while the knowledge changes, so that each server has one connection.
    change: Lock<()>,
    /// The server that a redirect named last. It is asked first.
    redirected_to: Lock<Option<Address>>,
    /// The number of refreshes.
    refreshes: watch::Sender<u64>,
    task: Background,
}

/// The duty to refresh.
const REFRESH: u32 = 1;

#[derive(Clone)]
struct KnownCluster {
    map: SlotMap,
    /// A server has described the cluster.
    is_described: bool,
    /// The error of the last refresh.
    failure: Option<Error>,
}

/// The time that a server has to answer before the next one is asked as well.
const STAGGER: Duration = Duration::from_millis(50);

/// The time between two refreshes when nothing happens.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// The time for which a server is kept that a redirect named and that has no slots yet.
const KEPT: Duration = Duration::from_secs(10);

/// The time for which the checks of a slot leave apart after one was refused, because the slot is
/// being moved.
const OPEN: Duration = Duration::from_secs(1);

/// The time after which nobody waits any more for the end of a move. A slot whose keys hold 50 000
/// reservations takes 1.2 s.
const STUCK: Duration = Duration::from_secs(2);

impl Cluster {
    pub(crate) fn new(
        template: ConnectionTemplate,
        seeds: Vec<Address>,
        config: StoreConfig,
        connect_timeout: Duration,
    ) -> Arc<Self> {
        let known = KnownCluster {
            map: SlotMap::empty(),
            is_described: false,
            failure: None,
        };
        Arc::new(Self {
            template,
            config,
            connect_timeout,
            seeds,
            known: ArcSwap::from_pointee(known),
            change: Lock::default(),
            redirected_to: Lock::default(),
            refreshes: watch::Sender::new(0),
            task: Background::new(),
        })
    }

    /// Returns the server of a slot, or the error when there is none. `None` before the first
    /// refresh.
    pub(super) fn by_slot_now(self: &Arc<Self>, slot: u16) -> Option<Result<Arc<Sender>, Error>> {
        let known = self.known.load();
        if let Some(sender) = known.map.by_slot(slot) {
            return Some(Ok(sender.clone()));
        }
        let failure = match known.is_described {
            true => Some(Error::new(
                ErrorKind::ClusterDown,
                "no server of the redis cluster has the slot",
            )),
            false => known.failure.clone(),
        };
        self.request_refresh();
        failure.map(Err)
    }

    /// Returns the server of a slot. Waits for the first refresh.
    pub(super) async fn by_slot(self: &Arc<Self>, slot: u16) -> Result<Arc<Sender>, Error> {
        let mut refreshes = self.refreshes.subscribe();
        match self.by_slot_now(slot) {
            Some(sender) => sender,
            None => {
                self.wait_for_refresh(&mut refreshes).await?;
                self.by_slot_now(slot).unwrap_or_else(|| Err(unknown()))
            }
        }
    }

    /// Returns the server at an address that a redirect named.
    pub(super) fn by_address(self: &Arc<Self>, address: &Address) -> Result<Arc<Sender>, Error> {
        if let Some(sender) = self.known.load().map.by_address(address) {
            return Ok(sender.clone());
        }
        self.change(|KnownCluster { map, .. }| {
            let at = map.insert(address, Instant::now() + KEPT, || self.connect(address))?;
            Ok(map.members[at].sender.clone())
        })
    }

    /// Returns how much of a slot its server has, as far as this is known.
    pub(super) fn share(&self, slot: u16) -> SlotShare {
        match self.known.load().map.move_of(slot) {
            Some(open) if Instant::now() < open.until => SlotShare::Leaving,
            _ => SlotShare::Whole,
        }
    }

    /// Returns whether the move of a slot goes on for so long that nobody seems to end it.
    pub(super) fn is_stuck(&self, slot: u16) -> bool {
        self.known
            .load()
            .map
            .move_of(slot)
            .is_some_and(|open| open.since.elapsed() >= STUCK)
    }

    /// Notes that a slot is in the middle of a move.
    pub(super) fn slot_opened(&self, slot: u16) -> Result<(), Error> {
        let now = Instant::now();
        let is_noted = self
            .known
            .load()
            .map
            .move_of(slot)
            .is_some_and(|open| now + OPEN / 2 < open.until);
        if is_noted {
            return Ok(());
        }
        self.change(|known| {
            known.map.open(slot, now, now + OPEN);
            Ok(())
        })
    }

    /// Notes that another server has the slot now.
    pub(super) fn slot_moved(self: &Arc<Self>, slot: u16, address: &Address) -> Result<(), Error> {
        let is_known = |known: &KnownCluster| {
            let (owner, named) = (known.map.by_slot(slot), known.map.by_address(address));
            owner
                .zip(named)
                .is_some_and(|(owner, named)| Arc::ptr_eq(owner, named))
        };
        if !is_known(&self.known.load()) {
            self.change(|KnownCluster { map, .. }| {
                let at = map.insert(address, Instant::now() + KEPT, || self.connect(address))?;
                map.assign(slot, at);
                Ok(())
            })?;
        }
        *self.redirected_to.lock() = Some(address.clone());
        self.request_refresh();
        Ok(())
    }

    /// Completes the address of a redirect. A server that does not know its own host leaves the
    /// host empty.
    pub(super) fn resolve(&self, (host, port): &Address, redirected_by: &Arc<Sender>) -> Address {
        let known = self.known.load();
        let sender = known
            .map
            .members
            .iter()
            .find(|member| Arc::ptr_eq(&member.sender, redirected_by));
        let host = match sender {
            Some(sender) if host.is_empty() => &sender.address.0,
            _ => host,
        };
        (host.clone(), *port)
    }

    /// Refreshes, and returns the servers that have slots, each with a key of one of its slots.
    pub(crate) async fn masters(self: &Arc<Self>) -> Result<Vec<(Arc<Server>, Key)>, Error> {
        self.refresh().await?;
        let known = self.known.load();
        let master =
            |(slot, sender): (_, &Arc<Sender>)| (Arc::clone(&sender.server), unused_key_in(slot));
        match &known.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(known.map.masters().map(master).collect()),
        }
    }

    /// Returns the servers that are known to have slots.
    pub(crate) fn known_masters(&self) -> Vec<Arc<Sender>> {
        self.known
            .load()
            .map
            .masters()
            .map(|(_, sender)| sender.clone())
            .collect()
    }

    /// Returns whether checks are sent to every server that has slots.
    pub(crate) fn is_available(&self) -> bool {
        let known = self.known.load();
        match known.is_described {
            true => known
                .map
                .masters()
                .all(|(_, sender)| !sender.server.health.breaker.is_open()),
            false => known.failure.is_none(),
        }
    }

    /// Requests a refresh, without waiting for it.
    pub(super) fn request_refresh(self: &Arc<Self>) {
        if !self.task.has(REFRESH) {
            self.task.ask(REFRESH);
            self.task
                .start(|running| refresh(Arc::downgrade(self), running));
        }
    }

    /// Requests a refresh, and waits for it.
    pub(super) async fn refresh(self: &Arc<Self>) -> Result<(), Error> {
        let mut refreshes = self.refreshes.subscribe();
        self.request_refresh();
        self.wait_for_refresh(&mut refreshes).await
    }

    async fn wait_for_refresh(&self, refreshes: &mut watch::Receiver<u64>) -> Result<(), Error> {
        // Each server has the time for connecting, and the same time again to answer.
        match timeout(self.connect_timeout * 3, refreshes.changed()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(unknown()),
        }
    }

    /// Asks one server after the other for the slots, until one answers.
    async fn refresh_once(self: &Arc<Self>) -> Result<(), Error> {
        let mut candidates = self.candidates()?.into_iter();
        let mut questions = JoinSet::new();
        let mut failure = None;
        loop {
            let next = candidates.next();
            let is_last = next.is_none();
            match next {
                Some((address, server)) => {
                    drop(questions.spawn(async move { ask(&address, &server).await }));
                }
                None if questions.is_empty() => return Err(failure.unwrap_or_else(unknown)),
                None => {}
            }
            let answer = match is_last {
                true => questions.join_next().await,
                false => timeout(STAGGER, questions.join_next())
                    .await
                    .unwrap_or_default(),
            };
            match answer {
                Some(Ok(Ok(view))) => return self.adopt(&view),
                Some(Ok(Err(error))) => failure = Some(error),
                Some(Err(_)) | None => {}
            }
        }
    }

    /// Returns the servers to ask, in order: the target of the last redirect, servers that answer,
    /// the seeds, and last the servers that do not answer.
    fn candidates(self: &Arc<Self>) -> Result<Vec<(Address, Arc<Server>)>, Error> {
        let is_silent = |member: &slot_map::Member| member.sender.server.health.breaker.is_open();
        if self.known.load().map.members.iter().all(is_silent) {
            for seed in &self.seeds {
                self.by_address(seed)?;
            }
        }
        let redirected_to = self.redirected_to.lock().take();
        let known = self.known.load();
        let mut candidates: Vec<_> = known.map.members.iter().collect();
        fastrand::shuffle(&mut candidates);
        candidates.sort_by_key(|member| {
            let is_silent = is_silent(member);
            let is_redirect = redirected_to.as_ref() == Some(&member.address);
            (
                is_silent,
                !is_redirect,
                is_silent && !self.seeds.contains(&member.address),
            )
        });
        let candidate = |member: &&slot_map::Member| {
            (member.address.clone(), Arc::clone(&member.sender.server))
        };
        Ok(candidates.iter().map(candidate).collect())
    }

    fn adopt(self: &Arc<Self>, view: &View) -> Result<(), Error> {
        self.change(|known| {
            let connect = |address: &Address| self.connect(address);
            known.map = known.map.with_view(view, Instant::now(), connect)?;
            (known.is_described, known.failure) = (true, None);
            Ok(())
        })
    }

    /// Replaces what is known by a changed copy. Changes come one after the other.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut KnownCluster) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _held = self.change.lock();
        let mut known = KnownCluster::clone(&self.known.load());
        let outcome = change(&mut known)?;
        self.known.store(Arc::new(known));
        Ok(outcome)
    }

    fn connect(&self, address: &Address) -> Result<Arc<Sender>, Error> {
        let source = ConnectionSource::Client(self.template.dialer(address)?.into());
        Ok(Sender::new(
            SharedConnection::new(source, self.connect_timeout),
            &self.config,
            true,
        ))
    }
}

async fn ask(address: &Address, server: &Server) -> Result<View, Error> {
    server.shared.bound().admit_slots();
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    slot_map::view(&server.query_in_time(&slots).await?, &address.0)
}

fn unknown() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "no server of the redis cluster described the cluster in time",
    )
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.load();
        let masters: Vec<_> = known
            .map
            .masters()
            .map(|(_, sender)| &sender.server)
            .collect();
        f.debug_struct("Cluster")
            .field("is_described", &known.is_described)
            .field("masters", &masters)
            .finish_non_exhaustive()
    }
}

/// Refreshes the cluster until the store is dropped.
async fn refresh(cluster: Weak<Cluster>, running: Running) {
    let mut in_vain = 0;
    loop {
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        running.take(REFRESH);
        if let Err(error) = cluster.refresh_once().await {
            tracing::debug!(%error, "no server describes the redis cluster");
            let _ = cluster.change(|known| {
                known.failure = Some(error);
                Ok(())
            });
        }
        cluster.refreshes.send_modify(|refreshes| *refreshes += 1);
        let is_well = cluster.is_available() && cluster.known.load().failure.is_none();
        drop(cluster);
        in_vain = if is_well { 0 } else { in_vain + 1_u32 };
        // A replica takes time to take over, so the pauses grow later than for a probe.
        tokio::time::sleep(server::pause(in_vain / 8, 0)).await;
        if is_well {
            let _ = timeout(
                REFRESH_INTERVAL.mul_f64(0.8 + 0.4 * fastrand::f64()),
                running.woken(),
            )
            .await;
        }
    }
}
