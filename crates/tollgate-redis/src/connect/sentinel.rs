//! Asks and follows Sentinels, so that the connection leads to the current master.
//! What becomes of the connection to the old one is decided in `shared.rs` and `server/`.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use redis::{RedisError, Value};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    connection::Connection,
    dialer::{Address, ConnectionTemplate, Dialer, Opened},
};
use crate::protocol::{self, ReplyBound};
use tollgate_core::{
    Error, ErrorKind,
    raw::{
        Lock,
        runtime::{Background, Running},
    },
};
use tollgate_remote::credentials::Provider;

/// Finds the master through its Sentinels.
///
/// The Sentinels are asked for the master when a connection is made. A Sentinel announces a change
/// (`+switch-master`). [`MasterWatch`] receives the announcements, and asks once a second in case
/// none came.
pub(crate) struct Sentinels {
    sentinels: Vec<Sentinel>,
    master_name: String,
    template: ConnectionTemplate,
    /// The time that a Sentinel has to answer.
    answer_timeout: Duration,
    known: Lock<KnownMaster>,
    announcements: watch::Sender<Option<Address>>,
    follower: Background,
}

/// The duty to follow the master as long as the server is in use.
const FOLLOW: u32 = 1;

struct Sentinel {
    dialer: Dialer,
    /// The connection, kept between questions.
    connection: tokio::sync::Mutex<Option<Opened>>,
}

/// The newest knowledge about the master.
#[derive(Default)]
struct KnownMaster {
    /// The number of the newest decision. The Sentinels number their decisions.
    epoch: u64,
    /// The time since which most Sentinels have known only older decisions.
    forgotten_since: Option<Instant>,
    announced: Option<(Address, Instant)>,
}

/// The answer of one Sentinel.
struct SentinelAnswer {
    epoch: u64,
    master: Address,
}

/// The pause between two questions when no Sentinel announces a change.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The time that the other Sentinels have after the first answer. One of them may know a newer
/// master.
const GRACE: Duration = Duration::from_millis(50);

/// The time in which Sentinels learn of a change from each other: they report it every two seconds.
/// For so long an announcement is believed without asking again.
const LEARNING: Duration = Duration::from_secs(3);

const SWITCH_CHANNEL: &str = "+switch-master";

impl KnownMaster {
    /// Returns whether the newest of several answers is believed.
    ///
    /// An older decision than the known one is not, at first: a Sentinel that was cut off, or that
    /// has not yet heard of a fail-over, names the old master. But Sentinels that lost their files,
    /// or were configured anew, count their decisions from 0. So an older decision is
    /// believed when `most` of the configured Sentinels answer, and have known nothing newer for
    /// [`LEARNING`]: a fail-over has the votes of most, and they hear of its end within that time.
    /// Even then a connection to `current` that works is not given up for another master.
    fn believes(&mut self, newest: &SentinelAnswer, most: bool, current: Option<&Address>) -> bool {
        if newest.epoch < self.epoch {
            if !most || current.is_some_and(|current| *current != newest.master) {
                return false;
            }
            let since = self.forgotten_since.get_or_insert_with(Instant::now);
            if since.elapsed() < LEARNING {
                return false;
            }
        }
        self.epoch = newest.epoch;
        self.forgotten_since = None;
        true
    }
}

impl Sentinels {
    pub(crate) fn new(
        dialers: Vec<Dialer>,
        master_name: String,
        template: ConnectionTemplate,
        answer_timeout: Duration,
    ) -> Arc<Self> {
        let sentinel = |dialer| Sentinel {
            dialer,
            connection: tokio::sync::Mutex::default(),
        };
        Arc::new(Self {
            sentinels: dialers.into_iter().map(sentinel).collect(),
            master_name,
            template,
            answer_timeout,
            known: Lock::default(),
            announcements: watch::Sender::new(None),
            follower: Background::new(),
        })
    }

    /// Returns the words for the master, whatever its address is.
    pub(super) fn server(&self) -> String {
        format!("the redis master {:?}", self.master_name)
    }

    pub(super) fn provider(&self) -> Option<&Provider> {
        self.template.provider.as_ref()
    }

    /// Connects to the master. Fails when the server does not say itself that it is a master.
    pub(super) async fn connect(
        self: &Arc<Self>,
        number: u64,
        bound: &ReplyBound,
    ) -> Result<Connection, Error> {
        let master = match self.announced() {
            Some(master) => master,
            None => self.ask(None).await?,
        };
        let dialer = self.template.dialer(&master)?;
        let mut opened = dialer.open(bound).await?;
        match redis::cmd("ROLE")
            .query_async::<Value>(&mut opened.multiplexed)
            .await
        {
            Ok(Value::Array(role)) if role.first().is_some_and(|role| !is_text(role, "master")) => {
                // The announcement is wrong, or no longer true.
                self.known.lock().announced = None;
                let message = format!(
                    "{}, which the sentinels name, is not a master",
                    dialer.server()
                );
                return Err(Error::new(ErrorKind::ReadOnly, message));
            }
            Err(error) if protocol::error(&error).kind() != ErrorKind::PermissionDenied => {
                return Err(protocol::connecting(dialer.server(), false, &error));
            }
            Ok(_) | Err(_) => {}
        }
        Connection::accept(dialer.server(), number, opened, None, Some(master)).await
    }

    /// Asks all Sentinels for the master, which is `current` as far as is known. Of several
    /// answers, returns the one with the newest decision, if it is [believed](KnownMaster::believes).
    async fn ask(self: &Arc<Self>, current: Option<&Address>) -> Result<Address, Error> {
        let mut questions = JoinSet::new();
        for at in 0..self.sentinels.len() {
            let sentinels = Arc::clone(self);
            questions.spawn(async move {
                timeout(sentinels.answer_timeout, sentinels.ask_one(at)).await
            });
        }
        let known = self.known.lock().epoch;
        let (mut newest, mut answers) = (None::<SentinelAnswer>, 0);
        let mut failure = None;
        let mut until = Instant::now() + self.answer_timeout * 2;
        while let Ok(Some(answer)) = timeout_at(until, questions.join_next()).await {
            match answer {
                Ok(Ok(Ok(answer))) => {
                    answers += 1;
                    let is_known = |answer: &SentinelAnswer| answer.epoch >= known;
                    // An older answer is not enough, so the others have all of their time.
                    if is_known(&answer) && !newest.as_ref().is_some_and(is_known) {
                        until = Instant::now() + GRACE;
                    }
                    if newest
                        .as_ref()
                        .is_none_or(|newest| answer.epoch > newest.epoch)
                    {
                        newest = Some(answer);
                    }
                }
                Ok(Ok(Err(error))) => failure = Some(error),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        let Some(newest) = newest else {
            return Err(failure.unwrap_or_else(|| {
                Error::new(
                    ErrorKind::Timeout,
                    "no sentinel answered within the timeout",
                )
            }));
        };
        let most = is_most(answers, self.sentinels.len());
        let is_believed = self.known.lock().believes(&newest, most, current);
        match is_believed {
            true => Ok(newest.master),
            false => Err(Error::new(
                ErrorKind::Unavailable,
                "the sentinels that answer do not know the newest master yet",
            )),
        }
    }

    async fn ask_one(&self, at: usize) -> Result<SentinelAnswer, Error> {
        let Sentinel { dialer, connection } = &self.sentinels[at];
        let mut kept = connection.lock().await;
        if let Some(mut opened) = kept.take()
            && let Ok(answer) = self.ask_on(dialer, &mut opened).await
        {
            *kept = Some(opened);
            return Ok(answer);
        }
        // There is no connection, or it ended since the last question.
        let mut opened = dialer.open(&ReplyBound::default()).await?;
        let answer = self.ask_on(dialer, &mut opened).await?;
        *kept = Some(opened);
        Ok(answer)
    }

    async fn ask_on(
        &self,
        dialer: &Dialer,
        Opened {
            multiplexed, wire, ..
        }: &mut Opened,
    ) -> Result<SentinelAnswer, Error> {
        wire.asks(2);
        let question = |what| {
            redis::cmd("SENTINEL")
                .arg(what)
                .arg(&self.master_name)
                .to_owned()
        };
        let (address, details) = (question("GET-MASTER-ADDR-BY-NAME"), question("MASTER"));
        let master: Option<Address> = address
            .query_async(multiplexed)
            .await
            .map_err(|error| refusal(dialer, &error))?;
        let Some(master) = master else {
            return Err(Error::config(
                "the sentinels know no master with the given name",
            ));
        };
        let details: HashMap<String, String> = details
            .query_async(multiplexed)
            .await
            .map_err(|error| protocol::error(&error))?;
        let epoch = details
            .get("config-epoch")
            .and_then(|epoch| epoch.parse().ok())
            .unwrap_or(0);
        Ok(SentinelAnswer { epoch, master })
    }

    /// Returns the master that a Sentinel announced a short time ago.
    fn announced(&self) -> Option<Address> {
        self.known
            .lock()
            .announced
            .as_ref()
            .filter(|(_, at)| at.elapsed() < LEARNING)
            .map(|(master, _)| master.clone())
    }

    fn announce(&self, master: Address) {
        // Every Sentinel announces the same change.
        let is_news = self.announced().as_ref() != Some(&master);
        self.known.lock().announced = Some((master.clone(), Instant::now()));
        if is_news {
            self.announcements.send_replace(Some(master));
        }
    }

    /// Starts a task that follows the master, unless one does.
    #[inline]
    pub(crate) fn follow<F>(self: &Arc<Self>, task: impl FnOnce(MasterWatch) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if !self.follower.has(FOLLOW) {
            self.follower.ask(FOLLOW);
            self.follower
                .start(|running| task(MasterWatch::new(self, running)));
        }
    }

    /// Listens to one Sentinel, and again after it went away.
    async fn listen(&self, at: usize) {
        loop {
            let _ = self.listen_once(at).await;
            sleep(POLL_INTERVAL.mul_f64(0.2 + fastrand::f64())).await;
        }
    }

    async fn listen_once(&self, at: usize) -> redis::RedisResult<()> {
        let subscribing = async {
            let mut subscription = self.sentinels[at].dialer.listen().await?;
            subscription.subscribe(SWITCH_CHANNEL).await?;
            redis::RedisResult::Ok(subscription)
        };
        let Ok(subscription) = timeout(self.answer_timeout * 2, subscribing).await else {
            return Ok(());
        };
        let mut subscription = subscription?;
        let mut messages = pin!(subscription.on_message());
        while let Some(message) = messages.next().await {
            let text: String = message.get_payload()?;
            if let Some(master) = new_master(&text, &self.master_name) {
                self.announce(master);
            }
        }
        Ok(())
    }
}

/// Receives changes of the master. The Sentinels are listened to until it is dropped.
pub(crate) struct MasterWatch {
    sentinels: Arc<Sentinels>,
    announcements: watch::Receiver<Option<Address>>,
    _listening: JoinSet<()>,
    _running: Running,
}

impl MasterWatch {
    /// Listens to all Sentinels, in a task for each.
    fn new(sentinels: &Arc<Sentinels>, running: Running) -> Self {
        let mut listening = JoinSet::new();
        for at in 0..sentinels.sentinels.len() {
            let sentinels = Arc::clone(sentinels);
            listening.spawn(async move { sentinels.listen(at).await });
        }
        let announcements = sentinels.announcements.subscribe();
        Self {
            sentinels: Arc::clone(sentinels),
            announcements,
            _listening: listening,
            _running: running,
        }
    }

    /// Waits for one announcement, or for one poll. Returns the master if it is known and not
    /// `current()`.
    pub(crate) async fn changed(
        &mut self,
        current: impl Fn() -> Option<Address>,
    ) -> Option<Address> {
        let announced = timeout(
            POLL_INTERVAL.mul_f64(0.9 + 0.2 * fastrand::f64()),
            self.announcements.changed(),
        )
        .await;
        let master = match announced {
            Ok(_) => self.announcements.borrow_and_update().clone()?,
            Err(_) => self.poll(current()?).await?,
        };
        (current().as_ref() != Some(&master)).then_some(master)
    }

    /// Asks the Sentinels for another master than `current`, unless one was just announced.
    async fn poll(&self, current: Address) -> Option<Address> {
        if self.sentinels.announced().is_some() {
            return None;
        }
        let master = self
            .sentinels
            .ask(Some(&current))
            .await
            .ok()
            .filter(|master| *master != current)?;
        self.sentinels.known.lock().announced = Some((master.clone(), Instant::now()));
        Some(master)
    }
}

/// Converts the error of a question. A server that keeps data knows no questions for Sentinels.
fn refusal(dialer: &Dialer, error: &RedisError) -> Error {
    match protocol::is_unknown_command(error) {
        true => Error::new(
            ErrorKind::Protocol,
            format!(
                "{} is no Sentinel: name the Sentinels, or this server alone by a URL that begins with redis://",
                dialer.server()
            ),
        ),
        false => protocol::error(error),
    }
}

fn is_most(answers: usize, sentinels: usize) -> bool {
    answers > sentinels / 2
}

/// Reads the new address from `name old-host old-port new-host new-port`.
fn new_master(message: &str, master_name: &str) -> Option<Address> {
    let mut words = message.split(' ');
    let name = words.next()?;
    let [_, _, host, port] = [words.next()?, words.next()?, words.next()?, words.next()?];
    Some((host.to_owned(), port.parse().ok()?)).filter(|_| name == master_name)
}

fn is_text(value: &Value, expected: &str) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == expected.as_bytes(),
        Value::SimpleString(text) => text == expected,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn named(epoch: u64, host: &str) -> SentinelAnswer {
        SentinelAnswer {
            epoch,
            master: (host.to_owned(), 6379),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_decision_is_believed_once_most_sentinels_have_known_no_newer_one_for_long() {
        let mut known = KnownMaster::default();
        let (old, new) = (named(6, "old"), named(7, "new"));
        assert!(known.believes(&new, false, None), "one that is newer");
        for _ in 0..2 {
            assert!(!known.believes(&old, true, None), "they may yet hear of it");
            advance(LEARNING / 2).await;
            assert!(known.believes(&new, false, None), "one has heard of it");
            advance(LEARNING / 2).await;
        }
        let from_zero = named(0, "old");
        assert!(!known.believes(&from_zero, true, None));
        advance(LEARNING).await;
        assert!(!known.believes(&from_zero, false, None), "it was cut off");
        assert!(known.believes(&from_zero, true, None));
        assert!(known.believes(&named(1, "new"), false, None), "it counts");
        assert!(!known.believes(&from_zero, true, None));
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_decision_does_not_end_a_connection_that_works() {
        let mut known = KnownMaster::default();
        let (new, from_zero) = (named(7, "new"), named(0, "old"));
        assert!(known.believes(&new, true, None));
        for _ in 0..3 {
            assert!(!known.believes(&from_zero, true, Some(&new.master)));
            advance(LEARNING).await;
        }
        let same = named(0, "new");
        assert!(!known.believes(&same, true, Some(&new.master)));
        advance(LEARNING).await;
        assert!(known.believes(&same, true, Some(&new.master)));
    }

    #[test]
    fn most_is_more_than_half() {
        let most = |sentinels| (1..).find(|&answers| is_most(answers, sentinels));
        assert_eq!([1, 2, 3, 4, 5].map(most), [1, 2, 2, 3, 3].map(Some));
    }

    #[test]
    fn a_switch_message_of_this_master_is_read_and_every_other_is_ignored() {
        let message = "m 10.0.0.1 6379 10.0.0.2 6380";
        assert_eq!(
            new_master(message, "m"),
            Some(("10.0.0.2".to_owned(), 6380))
        );
        assert_eq!(
            new_master("m ::1 6379 fe80::2 6380", "m"),
            Some(("fe80::2".to_owned(), 6380))
        );
        for (message, master) in [
            (message, "n"),
            ("m 10.0.0.1 6379 10.0.0.2 port", "m"),
            ("m", "m"),
            ("", "m"),
        ] {
            assert_eq!(new_master(message, master), None, "{message:?} of {master}");
        }
    }
}
