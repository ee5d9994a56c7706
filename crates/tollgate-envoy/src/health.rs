//! Whether the service can decide requests, and how it reports that over gRPC and HTTP.
//! Who sets it is in `command/`: the store, the rules and the signals each have a task there.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use tokio::sync::Mutex;
use tonic_health::{ServingStatus, server::HealthReporter};

/// The name under which Envoy and Kubernetes ask for the health.
const SERVICE: &str = "ratelimit";

/// Reports over gRPC and HTTP whether the service can decide requests.
///
/// The service is healthy when the store has answered, rules are loaded, and the program is not
/// about to end. gRPC reports the health under the service names `ratelimit` and the empty one.
///
/// A clone is cheap, and shares the state.
///
/// ```
/// use tollgate_envoy::{Component, Health};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let health = Health::new().await;
/// assert!(!health.is_healthy());
/// health.set(Component::Store, true).await;
/// health.set(Component::Rules, true).await;
/// assert!(health.is_healthy());
/// # }
/// ```
#[derive(Clone)]
pub struct Health(Arc<HealthInner>);

struct HealthInner {
    /// The components that are healthy, a bit for each.
    healthy: AtomicU8,
    /// Locked while the state is reported to gRPC, so that an older state never replaces a newer
    /// one.
    reporter: Mutex<HealthReporter>,
}

/// A part that has to be healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Component {
    /// The store has answered.
    Store = 1,
    /// Rules are loaded.
    Rules = 2,
    /// The program is not about to end.
    Running = 4,
}

const ALL: u8 = Component::Store as u8 | Component::Rules as u8 | Component::Running as u8;

impl Health {
    /// Creates a state in which only [`Component::Running`] is healthy.
    pub async fn new() -> Self {
        let reporter = HealthReporter::new();
        let health = Self(Arc::new(HealthInner {
            healthy: AtomicU8::new(Component::Running as u8),
            reporter: Mutex::new(reporter),
        }));
        health.set(Component::Running, true).await;
        health
    }

    /// Returns whether all components are healthy.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.0.healthy.load(Ordering::Acquire) == ALL
    }

    /// Sets the health of a component.
    pub async fn set(&self, component: Component, is_healthy: bool) {
        let reporter = self.0.reporter.lock().await;
        let bit = component as u8;
        let _ = match is_healthy {
            true => self.0.healthy.fetch_or(bit, Ordering::AcqRel),
            false => self.0.healthy.fetch_and(!bit, Ordering::AcqRel),
        };
        let status = if self.is_healthy() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for service in ["", SERVICE] {
            reporter.set_service_status(service, status).await;
        }
    }

    /// Returns the reporter, for the gRPC service.
    pub(crate) async fn reporter(&self) -> HealthReporter {
        self.0.reporter.lock().await.clone()
    }
}

tollgate::debug_fields! { Health: is_healthy = .is_healthy(), .. }
