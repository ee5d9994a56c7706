//! The name of a remote procedure call, as the log shows it.
//! Labels of metrics are in `labels.rs`: names that clients choose never become labels.

/// Limits the length of each name in bytes. Clients choose the names, and the log must not grow
/// with them.
const MAX_NAME_BYTES: usize = 128;

/// Stores the names of the service and of the method that a request calls.
#[derive(Clone)]
pub(crate) struct RpcName<T> {
    pub(crate) service: Option<T>,
    pub(crate) method: Option<T>,
}

impl<T> RpcName<T> {
    /// Stands for a request that is not a remote procedure call.
    pub(crate) const NONE: Self = Self {
        service: None,
        method: None,
    };
}

impl<'a> RpcName<&'a str> {
    pub(crate) fn new((service, method): (&'a str, &'a str)) -> Self {
        Self {
            service: Some(truncate(service)),
            method: Some(truncate(method)),
        }
    }

    pub(crate) fn into_owned(self) -> RpcName<Box<str>> {
        RpcName {
            service: self.service.map(Box::from),
            method: self.method.map(Box::from),
        }
    }
}

impl RpcName<Box<str>> {
    pub(crate) fn as_deref(&self) -> RpcName<&str> {
        RpcName {
            service: self.service.as_deref(),
            method: self.method.as_deref(),
        }
    }
}

fn truncate(name: &str) -> &str {
    let end = (0..=MAX_NAME_BYTES.min(name.len()))
        .rev()
        .find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or_default()]
}
