use crate::ErrorKind;

/// Why there is no decision of the store, finer than [`ErrorKind`]: one stable word each, for
/// metrics and alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "most are what a server says"))]
pub(crate) enum Reason {
    Config,
    Auth,
    Acl,
    WrongType,
    CrossSlot,
    Cluster,
    Tls,
    Cost,
    Unsupported,
    Protocol,
    Timeout,
    Unavailable,
    Breaker,
    Overload,
    Refused,
    Connection,
    Oom,
    NoReplicas,
    Busy,
    Misconf,
    ReadOnly,
    MasterDown,
    Loading,
    ClusterDown,
    MaxClients,
}

impl Reason {
    const ALL: [Self; 25] = [
        Self::Config,
        Self::Auth,
        Self::Acl,
        Self::WrongType,
        Self::CrossSlot,
        Self::Cluster,
        Self::Tls,
        Self::Cost,
        Self::Unsupported,
        Self::Protocol,
        Self::Timeout,
        Self::Unavailable,
        Self::Breaker,
        Self::Overload,
        Self::Refused,
        Self::Connection,
        Self::Oom,
        Self::NoReplicas,
        Self::Busy,
        Self::Misconf,
        Self::ReadOnly,
        Self::MasterDown,
        Self::Loading,
        Self::ClusterDown,
        Self::MaxClients,
    ];

    /// A number for it, from 1 on.
    pub(crate) fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The reason of this number; none for 0.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    pub(crate) fn kind(self) -> ErrorKind {
        match self {
            Self::Config | Self::Auth | Self::Acl | Self::WrongType | Self::CrossSlot | Self::Cluster | Self::Tls => {
                ErrorKind::Config
            }
            Self::Cost => ErrorKind::CostExceedsBurst,
            Self::Unsupported => ErrorKind::Unsupported,
            Self::Protocol => ErrorKind::Protocol,
            Self::Timeout => ErrorKind::Timeout,
            Self::Unavailable
            | Self::Breaker
            | Self::Overload
            | Self::Refused
            | Self::Connection
            | Self::Oom
            | Self::NoReplicas
            | Self::Busy
            | Self::Misconf
            | Self::ReadOnly
            | Self::MasterDown
            | Self::Loading
            | Self::ClusterDown
            | Self::MaxClients => ErrorKind::Unavailable,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Auth => "auth",
            Self::Acl => "acl",
            Self::WrongType => "wrongtype",
            Self::CrossSlot => "crossslot",
            Self::Cluster => "cluster",
            Self::Tls => "tls",
            Self::Cost => "cost",
            Self::Unsupported => "unsupported",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Breaker => "breaker",
            Self::Overload => "overload",
            Self::Refused => "refused",
            Self::Connection => "connection",
            Self::Oom => "oom",
            Self::NoReplicas => "noreplicas",
            Self::Busy => "busy",
            Self::Misconf => "misconf",
            Self::ReadOnly => "readonly",
            Self::MasterDown => "masterdown",
            Self::Loading => "loading",
            Self::ClusterDown => "clusterdown",
            Self::MaxClients => "maxclients",
        }
    }
}

impl From<ErrorKind> for Reason {
    /// The word for all of a kind, where nothing finer is known.
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Config => Self::Config,
            ErrorKind::CostExceedsBurst => Self::Cost,
            ErrorKind::Protocol => Self::Protocol,
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::Unsupported => Self::Unsupported,
        }
    }
}

#[cfg(test)]
mod codes {
    use super::*;

    #[test]
    fn every_code_is_that_of_its_reason() {
        for reason in Reason::ALL {
            assert_eq!(Reason::of_code(reason.code()), Some(reason));
        }
        assert_eq!(Reason::of_code(0), None);
    }
}
