use std::fmt;

/// Names the cause of an [`Error`](crate::Error), and of a decision that was made without the store.
///
/// Each kind has one stable word, [`as_str`](Self::as_str), for metrics and alerts. The word does not change between
/// versions. [`is_config`](Self::is_config) and [`is_unavailable`](Self::is_unavailable) group the kinds by
/// what can be done about them.
///
/// ```
/// use tollgate::ErrorKind;
///
/// assert_eq!(ErrorKind::OutOfMemory.as_str(), "oom");
/// assert!(ErrorKind::OutOfMemory.is_unavailable());
/// assert!(ErrorKind::Authentication.is_config());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A configured value is wrong: a quota, a policy, an address. A retry does not help. Word: `config`.
    Config,
    /// The server refuses the user or the password. Word: `auth`.
    Authentication,
    /// The user lacks a right on the server (ACL). Word: `acl`.
    PermissionDenied,
    /// A key of the limiter holds data of another program. Word: `wrongtype`.
    WrongType,
    /// The branches of a key lie in different slots of a cluster, so that no server can decide over all of them in one
    /// step. Nothing was charged. Nest the branches in one outermost level ([`Key::child`](crate::Key::child)), or
    /// check each branch with a limiter of its own. Word: `crossslot`.
    CrossSlot,
    /// The server is a cluster and the store was not built for one, or the reverse. Word: `cluster`.
    ClusterMismatch,
    /// TLS failed: a certificate was refused, or one side does not use TLS. Word: `tls`.
    Tls,
    /// The key has fewer levels or branches than a policy meters: see [`Policy::at_level`](crate::Policy::at_level) and
    /// [`Policy::at_branch`](crate::Policy::at_branch). Word: `levels`.
    KeyLevels,
    /// A call that may have to wait was made outside a tokio runtime, or in a runtime without timers. Nothing was sent.
    /// Await the call inside a runtime that is built with `enable_all`, or use
    /// [`Limiter::block_on`](crate::Limiter::block_on). In a runtime without timers the first such call prints tokio's
    /// panic, and a program that is compiled with `panic = "abort"` ends. Word: `runtime`.
    NoRuntime,
    /// The cost is above the burst of a policy, so no wait would ever let the request pass. The state is
    /// unchanged. Split the work, or refuse it for good. Word: `cost`.
    CostExceedsBurst,
    /// The store cannot do this, for example list the entries of a policy that keeps none. Word: `unsupported`.
    Unsupported,
    /// The store sent a reply that is not valid, or longer than any that was asked for. The cost may have been charged.
    /// Word: `protocol`.
    Protocol,
    /// The store did not answer before the deadline. The cost may have been charged. Word: `timeout`.
    Timeout,
    /// The store cannot be used, for a reason without a kind of its own. Word: `unavailable`.
    Unavailable,
    /// The circuit breaker is open: earlier checks got no answer, so the server is not asked until it answers
    /// a probe. Word: `breaker`.
    CircuitOpen,
    /// The round trip to the server leaves no room in the deadline of the check, so the server is not asked until
    /// the round trip is shorter. Set a longer [`deadline`](crate::LimiterBuilder::deadline), or use a nearer server.
    /// Word: `distant`.
    Distant,
    /// The answer would come after the deadline, because too many checks wait in this process. The server was not asked.
    /// Word: `overload`.
    Overloaded,
    /// Nothing listens at the address of the server. Word: `refused`.
    ConnectionRefused,
    /// The connection broke, also in the middle of a reply. The cost may have been charged. Word: `connection`.
    ConnectionLost,
    /// The server is out of memory (`OOM`). Word: `oom`.
    OutOfMemory,
    /// The server has too few replicas to accept writes (`NOREPLICAS`). Word: `noreplicas`.
    TooFewReplicas,
    /// The server runs a script that does not end (`BUSY`). Word: `busy`.
    Busy,
    /// The server refuses writes because it cannot save its data (`MISCONF`). Word: `misconf`.
    WritesDisabled,
    /// The server is a replica (`READONLY`). Word: `readonly`.
    ReadOnly,
    /// The server is a replica that lost its master (`MASTERDOWN`). Word: `masterdown`.
    MasterDown,
    /// The server is loading its data (`LOADING`). Word: `loading`.
    Loading,
    /// The cluster does not serve the slot (`CLUSTERDOWN`). Word: `clusterdown`.
    ClusterDown,
    /// The server accepts no more clients. Word: `maxclients`.
    TooManyClients,
    /// The limits of a tenant cannot be fetched: see [`TenantLimiters`](crate::tenants::TenantLimiters). Word: `source`.
    SourceUnavailable,
}

impl ErrorKind {
    pub(crate) const ALL: [Self; 29] = [
        Self::Config,
        Self::Authentication,
        Self::PermissionDenied,
        Self::WrongType,
        Self::CrossSlot,
        Self::ClusterMismatch,
        Self::Tls,
        Self::KeyLevels,
        Self::NoRuntime,
        Self::CostExceedsBurst,
        Self::Unsupported,
        Self::Protocol,
        Self::Timeout,
        Self::Unavailable,
        Self::CircuitOpen,
        Self::Distant,
        Self::Overloaded,
        Self::ConnectionRefused,
        Self::ConnectionLost,
        Self::OutOfMemory,
        Self::TooFewReplicas,
        Self::Busy,
        Self::WritesDisabled,
        Self::ReadOnly,
        Self::MasterDown,
        Self::Loading,
        Self::ClusterDown,
        Self::TooManyClients,
        Self::SourceUnavailable,
    ];

    /// Returns a number for this kind, from 1 on.
    pub(crate) const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// Returns the kind with this number, and `None` for 0.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Returns the stable word for metrics and alerts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Authentication => "auth",
            Self::PermissionDenied => "acl",
            Self::WrongType => "wrongtype",
            Self::CrossSlot => "crossslot",
            Self::ClusterMismatch => "cluster",
            Self::Tls => "tls",
            Self::KeyLevels => "levels",
            Self::NoRuntime => "runtime",
            Self::CostExceedsBurst => "cost",
            Self::Unsupported => "unsupported",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::CircuitOpen => "breaker",
            Self::Distant => "distant",
            Self::Overloaded => "overload",
            Self::ConnectionRefused => "refused",
            Self::ConnectionLost => "connection",
            Self::OutOfMemory => "oom",
            Self::TooFewReplicas => "noreplicas",
            Self::Busy => "busy",
            Self::WritesDisabled => "misconf",
            Self::ReadOnly => "readonly",
            Self::MasterDown => "masterdown",
            Self::Loading => "loading",
            Self::ClusterDown => "clusterdown",
            Self::TooManyClients => "maxclients",
            Self::SourceUnavailable => "source",
        }
    }

    /// Returns whether somebody has to change something: a value, a password, a right, the kind of server, the runtime.
    /// A retry does not help.
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
        for (at, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(ErrorKind::from_code(kind.code()), Some(kind));
            assert!(ErrorKind::ALL[..at].iter().all(|other| other.as_str() != kind.as_str()), "{kind}");
            assert!(!(kind.is_config() && kind.is_unavailable()), "{kind}");
        }
        assert_eq!(ErrorKind::from_code(0), None);
    }
}
