//! The kinds of errors with their stable words, in one table.
//! What a server's own error means is sorted in `tollgate-redis/src/protocol/error.rs`; which kinds are an
//! outage is decided by the limiter.

use std::fmt;

/// Declares the kinds of errors, each with its word.
macro_rules! kinds {
    ($(#[$about:meta])* pub enum ErrorKind { $($(#[$doc:meta])+ $kind:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])+ #[doc = concat!("Word: `", $word, "`.")] $kind,)+
        }

        impl ErrorKind {
            const KINDS: &[Self] = &[$(Self::$kind,)+];

            /// Returns the stable word for metrics and alerts.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)+
                }
            }
        }
    };
}

kinds! {
    /// Names the cause of an [`Error`](crate::Error), and of a decision that was made without the
    /// store.
    ///
    /// Each kind has one stable word, [`as_str`](Self::as_str), for metrics and alerts. The word
    /// does not change between versions. [`is_config`](Self::is_config) and
    /// [`is_unavailable`](Self::is_unavailable) group the kinds by what can be done about them.
    ///
    /// ```
    /// use tollgate::ErrorKind;
    ///
    /// assert_eq!(ErrorKind::OutOfMemory.as_str(), "oom");
    /// assert!(ErrorKind::OutOfMemory.is_unavailable());
    /// assert!(ErrorKind::Authentication.is_config());
    /// ```
    pub enum ErrorKind {
        /// A configured value is wrong: a quota, a policy, an address. A retry does not help.
        Config = "config",
        /// The server refuses the user or the password.
        Authentication = "auth",
        /// The user lacks a right on the server (ACL).
        PermissionDenied = "acl",
        /// A key of the limiter holds data of another program.
        WrongType = "wrongtype",
        /// The branches of a key lie in different slots of a cluster, so that no server can decide
        /// over all of them in one step. Nothing was charged. Nest the branches in one outermost
        /// level ([`Key::child`](crate::Key::child)), or check each branch with a limiter of its
        /// own.
        CrossSlot = "crossslot",
        /// The server is a cluster and the store was not built for one, or the reverse.
        ClusterMismatch = "cluster",
        /// TLS failed: a certificate was refused, or one side does not use TLS.
        Tls = "tls",
        /// The key has fewer levels or branches than a policy meters: see
        /// [`Policy::at_level`](crate::Policy::at_level) and
        /// [`Policy::at_branch`](crate::Policy::at_branch).
        KeyLevels = "levels",
        /// A call that may have to wait was made outside a tokio runtime, or in a runtime without
        /// timers. Nothing was sent. Await the call inside a runtime that is built with
        /// `enable_all`, or use [`Limiter::block_on`]. In a runtime
        /// without timers the first such call prints tokio's panic, and a program that is compiled
        /// with `panic = "abort"` ends.
        ///
        /// [`Limiter::block_on`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.block_on
        NoRuntime = "runtime",
        /// The cost is above the burst of a policy, so no wait would ever let the request pass. The
        /// state is unchanged. Split the work, or refuse it for good.
        CostExceedsBurst = "cost",
        /// The store cannot do this, for example list the entries of a policy that keeps none.
        Unsupported = "unsupported",
        /// The store sent a reply that is not valid, or longer than any that was asked for. The
        /// cost may have been charged.
        Protocol = "protocol",
        /// The store did not answer before the deadline. The cost may have been charged.
        Timeout = "timeout",
        /// The store cannot be used, for a reason without a kind of its own.
        Unavailable = "unavailable",
        /// The circuit breaker is open: earlier checks got no answer, so the server is not asked
        /// until it answers a probe.
        CircuitOpen = "breaker",
        /// The round trip to the server leaves no room in the deadline of the check, so the server
        /// is not asked until the round trip is shorter. Set a longer
        /// [`deadline`][`LimiterBuilder::deadline`], or use a nearer server.
        ///
        /// [`LimiterBuilder::deadline`]: https://docs.rs/tollgate/latest/tollgate/struct.LimiterBuilder.html#method.deadline
        Distant = "distant",
        /// The answer would come after the deadline, because too many checks wait in this process.
        /// The server was not asked.
        Overloaded = "overload",
        /// Nothing listens at the address of the server.
        ConnectionRefused = "refused",
        /// The connection broke, also in the middle of a reply. The cost may have been charged.
        ConnectionLost = "connection",
        /// The server is out of memory (`OOM`).
        OutOfMemory = "oom",
        /// The server has too few replicas to accept writes (`NOREPLICAS`).
        TooFewReplicas = "noreplicas",
        /// The server runs a script that does not end (`BUSY`).
        Busy = "busy",
        /// The server refuses writes because it cannot save its data (`MISCONF`).
        WritesDisabled = "misconf",
        /// The server is a replica (`READONLY`).
        ReadOnly = "readonly",
        /// The server is a replica that lost its master (`MASTERDOWN`).
        MasterDown = "masterdown",
        /// The server is loading its data (`LOADING`).
        Loading = "loading",
        /// The cluster does not serve the slot (`CLUSTERDOWN`).
        ClusterDown = "clusterdown",
        /// The server accepts no more clients.
        TooManyClients = "maxclients",
        /// The limits of a tenant cannot be fetched: see
        /// [`TenantLimiters`].
        ///
        /// [`TenantLimiters`]: https://docs.rs/tollgate/latest/tollgate/tenants/struct.TenantLimiters.html
        SourceUnavailable = "source",
        /// The store has no room for another exception. None was granted: withdraw one, or wait for the
        /// end of one.
        Full = "full",
    }
}

impl ErrorKind {
    /// Returns the kind with this number, and `None` for 0.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::KINDS.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Returns whether somebody has to change something: a value, a password, a right, the kind of
    /// server, the runtime. A retry does not help.
    #[must_use]
    pub const fn is_config(self) -> bool {
        matches!(
            self,
            Self::Config
                | Self::Authentication
                | Self::PermissionDenied
                | Self::WrongType
                | Self::CrossSlot
                | Self::ClusterMismatch
                | Self::Tls
                | Self::KeyLevels
                | Self::NoRuntime
                | Self::Full
        )
    }

    /// Returns whether the store cannot be reached or cannot serve now. A later retry may succeed.
    #[must_use]
    pub const fn is_unavailable(self) -> bool {
        matches!(
            self,
            Self::Unavailable
                | Self::CircuitOpen
                | Self::Distant
                | Self::Overloaded
                | Self::ConnectionRefused
                | Self::ConnectionLost
                | Self::OutOfMemory
                | Self::TooFewReplicas
                | Self::Busy
                | Self::WritesDisabled
                | Self::ReadOnly
                | Self::MasterDown
                | Self::Loading
                | Self::ClusterDown
                | Self::TooManyClients
                | Self::SourceUnavailable
        )
    }
}

/// Numbers the kinds of errors.
pub trait ErrorKindParts: Sized + 'static {
    /// Lists all kinds, in the order of their codes.
    const ALL: &'static [Self];

    /// Returns a number for this kind, from 1 on.
    fn code(self) -> u8;
}

impl ErrorKindParts for ErrorKind {
    const ALL: &'static [Self] = Self::KINDS;

    #[inline]
    fn code(self) -> u8 {
        self as u8 + 1
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_and_a_word_of_its_own() {
        for (at, kind) in ErrorKind::ALL.iter().copied().enumerate() {
            assert_eq!(ErrorKind::from_code(kind.code()), Some(kind));
            assert!(
                ErrorKind::ALL[..at]
                    .iter()
                    .all(|other| other.as_str() != kind.as_str()),
                "{kind}"
            );
            assert!(!(kind.is_config() && kind.is_unavailable()), "{kind}");
        }
        assert_eq!(ErrorKind::from_code(0), None);
    }
}
