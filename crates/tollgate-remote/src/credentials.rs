//! User and password that change while a store is in use: tokens that live for minutes, and
//! passwords that an operator replaces.
//!
//! A [`Provider`] is asked for them instead of a URL. It is asked again when they are due, and at
//! once when a server refuses them. Use a password in the URL if it stays the same.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Error, RedisStore, credentials::{Credentials, Provider}};
//!
//! async fn sign() -> Result<String, Error> {
//!     Ok("a token that the cloud accepts for 15 minutes".to_owned())
//! }
//!
//! let provider = Provider::new(|| async {
//!     let token = sign().await?;
//!     Ok(Credentials::new(token).with_user("limits").renew_after(Duration::from_secs(600)))
//! });
//! let store = RedisStore::builder("redis://127.0.0.1").credentials(provider).build();
//! assert!(store.is_ok());
//! ```

// What a store signs in with is asked for here. How it signs in is in `tollgate-redis/src/connect/dialer.rs`,
// and in tollgate-postgres.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep_until, timeout};

use tollgate_core::{
    Error, ErrorKind,
    raw::{Lock, runtime},
};

/// A user and a password that a server accepts now.
///
/// `Debug` shows neither of them.
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
    renew_after: Duration,
}

/// The time after which the next credentials are asked for by default.
const RENEWAL: Duration = Duration::from_secs(60);

/// The bounds of that time.
const SHORTEST_RENEWAL: Duration = Duration::from_millis(100);
const LONGEST_RENEWAL: Duration = Duration::from_secs(86_400);

/// The time until a file is read again.
const FILE_RENEWAL: Duration = Duration::from_secs(1);

/// The time that a provider has to answer.
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

impl Credentials {
    /// Creates credentials of the user that the URL names, or of the server's default user.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
            renew_after: RENEWAL,
        }
    }

    /// Sets the user, instead of the one in the URL.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets when to ask for the next credentials: one minute after these by default, at least 100
    /// ms and at most a day. Choose a time well before the end of these, so that a provider that
    /// fails for a while does no harm.
    #[must_use]
    pub fn renew_after(mut self, renew_after: Duration) -> Self {
        self.renew_after = renew_after.clamp(SHORTEST_RENEWAL, LONGEST_RENEWAL);
        self
    }

    /// Returns the user. `None` for the user of the URL.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the password, for a [`Store`](tollgate_core::Store) outside this crate.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    fn are(&self, other: &Self) -> bool {
        self.user == other.user && self.password == other.password
    }
}

tollgate_core::debug_fields! { Credentials: renew_after, .. }

/// Is asked for [`Credentials`]. Clones share what they know, so that all connections of a store
/// cost one question.
///
/// While a provider fails, the last credentials remain in use, and the failure is logged. A store
/// that cannot connect for it reports [`ErrorKind::Authentication`] with the words of the provider.
#[derive(Clone)]
pub struct Provider(Arc<ProviderInner>);

struct ProviderInner {
    ask: Box<dyn Fn() -> Answer + Send + Sync>,
    known: Lock<KnownCredentials>,
    /// Held while an answer is waited for.
    turn: tokio::sync::Mutex<()>,
}

type Answer = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Outcome = Result<Credentials, Error>;

#[derive(Default)]
struct KnownCredentials {
    newest: Option<Credentials>,
    failure: Option<Error>,
    /// When to ask again. `None` stands for now.
    due: Option<Instant>,
}

impl Provider {
    /// The time until a provider is asked again that failed, or whose credentials a server refused.
    pub const RETRY: Duration = Duration::from_secs(1);

    /// Creates a provider of a function. The function has 10 seconds to answer, in a task of its
    /// own, and is not called again meanwhile.
    ///
    /// The words of its error are logged: they must not contain a secret.
    #[must_use]
    pub fn new<F>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, Error>> + Send + 'static,
    {
        Self(Arc::new(ProviderInner {
            ask: Box::new(move || Box::pin(ask())),
            known: Lock::default(),
            turn: tokio::sync::Mutex::default(),
        }))
    }

    /// Creates a provider of a file, which is read every second. It contains the password, or the
    /// user and the password on two lines.
    ///
    /// Replace the file by renaming a new one, so that no half of it is read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the file cannot be read, or is empty or longer than two lines.
    ///
    /// ```
    /// use tollgate::credentials::Provider;
    ///
    /// let error = Provider::file("/nowhere/password").unwrap_err();
    /// assert_eq!(error.to_string(), "the file of credentials /nowhere/password cannot be read: entity not found");
    /// ```
    pub fn file(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path: PathBuf = path.into();
        let path: Arc<Path> = path.into();
        read(&path)?;
        Ok(Self::new(move || {
            let path = Arc::clone(&path);
            async move {
                tokio::task::spawn_blocking(move || read(&path))
                    .await
                    .unwrap_or_else(|_| Err(ended()))
            }
        }))
    }

    /// Returns the newest credentials, and asks for them first when they are due. When the provider
    /// fails, those before remain the newest.
    ///
    /// # Errors
    ///
    /// The failure of the provider, when it has never answered.
    pub async fn newest(&self) -> Result<Credentials, Error> {
        if self.is_due() {
            // A caller that gives up does not end the question.
            let question = runtime::current()?.spawn(self.clone().ask());
            if question.await.is_err() {
                self.note(Err(ended()));
            }
        }
        let known = self.0.known.lock();
        match (&known.newest, &known.failure) {
            (Some(newest), _) => Ok(newest.clone()),
            (None, failure) => Err(failure.clone().unwrap_or_else(ended)),
        }
    }

    /// Returns other credentials than these, which a server refused: those that came meanwhile, or
    /// those that the provider has now. `None` when it has none.
    ///
    /// # Errors
    ///
    /// The failure of the provider.
    pub async fn instead_of(&self, refused: &Credentials) -> Result<Option<Credentials>, Error> {
        {
            let mut known = self.0.known.lock();
            if known.newest.as_ref().is_some_and(|it| it.are(refused)) {
                known.due = None;
            }
        }
        let newest = self.newest().await?;
        match self.failure() {
            Some(failure) if newest.are(refused) => Err(failure),
            _ => Ok(Some(newest).filter(|newest| !newest.are(refused))),
        }
    }

    /// Waits until there are other credentials than these.
    pub async fn changed_from(&self, current: &Credentials) -> Credentials {
        loop {
            match self.newest().await {
                Ok(newest) if !newest.are(current) => return newest,
                Ok(_) | Err(_) => {}
            }
            let due = self.0.known.lock().due;
            sleep_until(due.unwrap_or_else(|| Instant::now() + Self::RETRY)).await;
        }
    }

    /// Returns why the provider failed, if it has not answered since.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.0.known.lock().failure.clone()
    }

    /// Returns whether an answer of the provider is waited for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.turn.try_lock().is_err()
    }

    fn is_due(&self) -> bool {
        let due = self.0.known.lock().due;
        due.is_none_or(|due| due <= Instant::now())
    }

    /// Asks, unless another caller has done so meanwhile.
    async fn ask(self) {
        let _turn = self.0.turn.lock().await;
        if self.is_due() {
            let outcome = timeout(LONGEST_ANSWER, (self.0.ask)()).await;
            self.note(outcome.unwrap_or_else(|_| {
                let message = format!("it gave no answer within {LONGEST_ANSWER:?}");
                Err(Error::new(ErrorKind::Timeout, message))
            }));
        }
    }

    /// Keeps an answer, or a failure.
    fn note(&self, outcome: Outcome) {
        let (now, mut known) = (Instant::now(), self.0.known.lock());
        match outcome {
            Ok(credentials) => {
                *known = KnownCredentials {
                    due: Some(now + credentials.renew_after),
                    newest: Some(credentials),
                    failure: None,
                };
            }
            Err(error) => {
                let message = format!("the provider of credentials failed: {error}");
                let error = Error::new(ErrorKind::Authentication, message);
                known.due = Some(now + Self::RETRY);
                let is_first = known.failure.replace(error.clone()).is_none();
                drop(known);
                if is_first {
                    tracing::warn!(%error, "the credentials before remain in use, if there are any");
                }
            }
        }
    }
}

/// Reports a question that ended without an answer.
fn ended() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "it panicked, or its runtime was shut down",
    )
}

/// Reads a file of credentials. No error shows a part of it.
fn read(path: &Path) -> Result<Credentials, Error> {
    let refused = |why: fmt::Arguments<'_>| {
        let message = format!("the file of credentials {} {why}", path.display());
        Error::new(ErrorKind::Config, message)
    };
    let text = fs::read_to_string(path)
        .map_err(|error: io::Error| refused(format_args!("cannot be read: {}", error.kind())))?;
    let lines: Vec<_> = text.trim_end().lines().collect();
    let credentials = match lines[..] {
        [password] => Credentials::new(password),
        [user, password] if !user.is_empty() => Credentials::new(password).with_user(user),
        _ => {
            let lines = lines.len();
            return Err(refused(format_args!(
                "must have the password, or the user and the password on two lines, got {lines} lines"
            )));
        }
    };
    Ok(credentials.renew_after(FILE_RENEWAL))
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.known.lock();
        f.debug_struct("Provider")
            .field("newest", &known.newest)
            .field("failure", &known.failure)
            .finish_non_exhaustive()
    }
}
