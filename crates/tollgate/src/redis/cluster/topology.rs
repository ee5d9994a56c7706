use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::JoinSet,
    time::timeout,
};

use super::{
    Node,
    table::{self, Table, View},
};
use crate::{
    Error, ErrorKind,
    reason::Reason,
    redis::{
        connection::Connection,
        lane::{Lane, Manner},
        link::{Link, Source},
        probe,
        servers::Servers,
    },
};

/// What is known of a cluster, and the task that keeps it true.
///
/// There is one look at a time, and a pause after each. It is asked for by whoever notices that
/// something moved or broke, goes on for as long as a server with slots is not asked, and happens
/// every half minute in any case, so that a cluster whose servers are replaced one by one is never
/// lost. What a redirect says counts at once.
pub(super) struct Topology {
    servers: Servers,
    manner: Manner,
    connect_timeout: Duration,
    seeds: Vec<Node>,
    known: ArcSwap<Known>,
    /// Held by who changes what is known, so that a server has one connection.
    changes: Mutex<()>,
    /// Who told last that something moved: it is asked first.
    informed: Mutex<Option<Node>>,
    /// How many looks there were.
    looks: watch::Sender<u64>,
    bell: Arc<Notify>,
    is_rung: AtomicBool,
    is_watched: AtomicBool,
}

struct Known {
    table: Table,
    /// Whether any server told of the cluster yet.
    is_told: bool,
    /// Why the last look told nothing.
    failure: Option<Error>,
}

/// How long a server has for its answer before another is asked as well.
const STAGGER: Duration = Duration::from_millis(50);

/// How often the cluster is looked at when nothing happens.
const AGAIN: Duration = Duration::from_secs(30);

/// How long a server stays that a redirect named and that has no slots yet.
const KEPT: Duration = Duration::from_secs(10);

impl Topology {
    pub(super) fn new(servers: Servers, seeds: Vec<Node>, manner: Manner, connect_timeout: Duration) -> Arc<Self> {
        let known = Known { table: Table::empty(), is_told: false, failure: None };
        Arc::new(Self {
            servers,
            manner,
            connect_timeout,
            seeds,
            known: ArcSwap::from_pointee(known),
            changes: Mutex::default(),
            informed: Mutex::default(),
            looks: watch::Sender::new(0),
            bell: Arc::default(),
            is_rung: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
        })
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The server of a slot, if there is one; else why there is none, unless nobody has looked yet.
    pub(super) fn lane_now(self: &Arc<Self>, slot: u16) -> Option<Result<Arc<Lane>, Error>> {
        let known = self.known.load();
        if let Some(lane) = known.table.lane(slot) {
            return Some(Ok(Arc::clone(lane)));
        }
        let failure = match known.is_told {
            true => Some(Error::new(Reason::ClusterDown, "no server of the redis cluster has the slot")),
            false => known.failure.clone(),
        };
        self.look_soon();
        failure.map(Err)
    }

    /// The server of a slot, once the cluster was looked at.
    pub(super) async fn lane(self: &Arc<Self>, slot: u16) -> Result<Arc<Lane>, Error> {
        let mut looks = self.looks.subscribe();
        match self.lane_now(slot) {
            Some(lane) => lane,
            None => {
                self.until_changed(&mut looks).await?;
                self.lane_now(slot).unwrap_or_else(|| Err(unknown()))
            }
        }
    }

    /// The server that a redirect sent to.
    pub(super) fn lane_at(self: &Arc<Self>, node: &Node) -> Result<Arc<Lane>, Error> {
        if let Some(lane) = self.known.load().table.lane_at(node) {
            return Ok(Arc::clone(lane));
        }
        self.change(|table| {
            let at = table.named(node, Instant::now() + KEPT, || self.lane_of(node))?;
            Ok(Arc::clone(&table.members[at].lane))
        })
    }

    /// A server told that another one has the slot now.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, node: &Node) -> Result<(), Error> {
        let is_known = |known: &Known| {
            let (owner, lane) = (known.table.lane(slot), known.table.lane_at(node));
            owner.zip(lane).is_some_and(|(owner, lane)| Arc::ptr_eq(owner, lane))
        };
        if !is_known(&self.known.load()) {
            self.change(|table| {
                let at = table.named(node, Instant::now() + KEPT, || self.lane_of(node))?;
                table.give(slot, at);
                Ok(())
            })?;
        }
        *self.informed.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.clone());
        self.look_soon();
        Ok(())
    }

    /// Where a redirect leads. A server that does not know its own host leaves it out.
    pub(super) fn resolve(&self, (host, port): &Node, told_by: &Arc<Lane>) -> Node {
        let known = self.known.load();
        let teller = known.table.members.iter().find(|member| Arc::ptr_eq(&member.lane, told_by));
        let host = match teller {
            Some(teller) if host.is_empty() => &teller.node.0,
            _ => host,
        };
        (host.clone(), *port)
    }

    /// The servers that have slots, each with the first of them, as the cluster is now.
    pub(super) async fn masters(self: &Arc<Self>) -> Result<Vec<(u16, Arc<Lane>)>, Error> {
        self.look_now().await?;
        let known = self.known.load();
        match &known.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(known.table.masters().map(|(slot, lane)| (slot, Arc::clone(lane))).collect()),
        }
    }

    /// Whether every server that has slots is asked.
    pub(super) fn is_asked(&self) -> bool {
        let known = self.known.load();
        match known.is_told {
            true => known.table.masters().all(|(_, lane)| !lane.connection.breaker().is_open()),
            false => known.failure.is_none(),
        }
    }

    /// Asks for a look.
    pub(super) fn look_soon(self: &Arc<Self>) {
        if !self.is_rung.load(Ordering::Relaxed) && !self.is_rung.swap(true, Ordering::AcqRel) {
            self.bell.notify_one();
        }
        if self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            let watch = Watch { topology: Arc::downgrade(self), bell: Arc::clone(&self.bell) };
            runtime.spawn(watch.run());
        }
    }

    /// Waits for the next look.
    pub(super) async fn look_now(self: &Arc<Self>) -> Result<(), Error> {
        let mut looks = self.looks.subscribe();
        self.look_soon();
        self.until_changed(&mut looks).await
    }

    async fn until_changed(&self, looks: &mut watch::Receiver<u64>) -> Result<(), Error> {
        // Each server has the time for connecting, and once more for its answer.
        match timeout(self.connect_timeout * 3, looks.changed()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(unknown()),
        }
    }

    /// Asks one server after the other what the cluster is like, until one tells.
    async fn look(self: &Arc<Self>) -> Result<(), Error> {
        let mut candidates = self.candidates()?.into_iter();
        let mut asked = JoinSet::new();
        let mut failure = None;
        loop {
            let next = candidates.next();
            let is_last = next.is_none();
            match next {
                Some((node, connection)) => drop(asked.spawn(async move { ask(&node, &connection).await })),
                None if asked.is_empty() => return Err(failure.unwrap_or_else(unknown)),
                None => {}
            }
            let answer = match is_last {
                true => asked.join_next().await,
                false => timeout(STAGGER, asked.join_next()).await.unwrap_or_default(),
            };
            match answer {
                Some(Ok(Ok(view))) => return self.adopt(&view),
                Some(Ok(Err(error))) => failure = Some(error),
                Some(Err(_)) | None => {}
            }
        }
    }

    /// Whom to ask, in which order: who told of the last change, who answers, then the seeds, last
    /// those who did not answer.
    fn candidates(self: &Arc<Self>) -> Result<Vec<(Node, Arc<Connection>)>, Error> {
        let is_silent = |member: &table::Member| member.lane.connection.breaker().is_open();
        if self.known.load().table.members.iter().all(is_silent) {
            for seed in &self.seeds {
                self.lane_at(seed)?;
            }
        }
        let informed = self.informed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let known = self.known.load();
        let mut candidates: Vec<_> = known.table.members.iter().collect();
        fastrand::shuffle(&mut candidates);
        candidates.sort_by_key(|member| {
            let is_open = is_silent(member);
            (is_open, informed.as_ref() != Some(&member.node), is_open && !self.seeds.contains(&member.node))
        });
        let candidate = |member: &&table::Member| (member.node.clone(), Arc::clone(&member.lane.connection));
        Ok(candidates.iter().map(candidate).collect())
    }

    fn adopt(self: &Arc<Self>, view: &View) -> Result<(), Error> {
        let _held = self.lock();
        let known = self.known.load();
        let table = known.table.adopt(view, Instant::now(), |node| self.lane_of(node))?;
        self.known.store(Arc::new(Known { table, is_told: true, failure: None }));
        Ok(())
    }

    fn failed(&self, error: Error) {
        let _held = self.lock();
        let known = self.known.load();
        let known = Known { table: known.table.clone(), is_told: known.is_told, failure: Some(error) };
        self.known.store(Arc::new(known));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> Result<T, Error>) -> Result<T, Error> {
        let _held = self.lock();
        let known = self.known.load();
        let mut table = known.table.clone();
        let outcome = change(&mut table)?;
        self.known.store(Arc::new(Known { table, is_told: known.is_told, failure: known.failure.clone() }));
        Ok(outcome)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane_of(&self, node: &Node) -> Result<Lane, Error> {
        let link = Link::new(Source::Client(self.servers.client(node)?.into()), self.connect_timeout);
        Ok(Lane::new(link, self.manner.clone(), true))
    }
}

async fn ask(node: &Node, connection: &Connection) -> Result<View, Error> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    table::view(&connection.query_in_time(&slots).await?, &node.0)
}

fn unknown() -> Error {
    Error::new(ErrorKind::Unavailable, "no server of the redis cluster told what the cluster is like")
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.load();
        let lanes: Vec<_> = known.table.masters().map(|(_, lane)| &lane.connection).collect();
        f.debug_struct("Topology").field("is_told", &known.is_told).field("masters", &lanes).finish_non_exhaustive()
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.bell.notify_one();
    }
}

/// The task that looks.
struct Watch {
    topology: Weak<Topology>,
    bell: Arc<Notify>,
}

impl Watch {
    async fn run(self) {
        let mut in_vain = 0;
        loop {
            let Some(topology) = self.topology.upgrade() else { return };
            topology.is_rung.store(false, Ordering::Release);
            if let Err(error) = topology.look().await {
                tracing::debug!(%error, "no server tells what the redis cluster is like");
                topology.failed(error);
            }
            topology.looks.send_modify(|looks| *looks += 1);
            let is_well = topology.is_asked() && topology.known.load().failure.is_none();
            drop(topology);
            in_vain = if is_well { 0 } else { in_vain + 1_u32 };
            // A replica may take its time to take over, so the pauses grow later than those of a probe.
            tokio::time::sleep(probe::pause(in_vain / 8, 0)).await;
            if is_well {
                let _ = timeout(AGAIN.mul_f64(0.8 + 0.4 * fastrand::f64()), self.bell.notified()).await;
            }
        }
    }
}

impl Drop for Watch {
    /// The runtime was shut down under it, or the store is gone.
    fn drop(&mut self) {
        if let Some(topology) = self.topology.upgrade() {
            topology.is_watched.store(false, Ordering::Release);
        }
    }
}
