//! Warns of variables that have no effect.
//! Variables that have one are in `arguments/`.

use std::env;

use clap::CommandFactory;

use super::arguments::Arguments;

/// The variables of Envoy's service that have no effect here, and why.
const WITHOUT_EFFECT: &str = "\
EXPIRATION_JITTER_MAX_SECONDS: names in Redis expire when their limit is fresh
LOCAL_CACHE_SIZE_IN_BYTES: denials are remembered without it
NEAR_LIMIT_RATIO: it is always 0.8
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: denied requests are free in the mode native
REDIS_POOL_SIZE: all decisions share few connections
REDIS_POOL_ON_EMPTY_BEHAVIOR: there is no pool
REDIS_PIPELINE_WINDOW: decisions are sent together as they come
REDIS_PIPELINE_LIMIT: decisions are sent together as they come
REDIS_CLUSTER_PIPELINE_PARALLELISM: decisions are sent together as they come
REDIS_TIMEOUT: use TOLLGATE_DEADLINE
REDIS_STARTUP_INITIAL_INTERVAL: the service starts without Redis
REDIS_STARTUP_MAX_INTERVAL: the service starts without Redis
REDIS_STARTUP_MAX_ELAPSED_TIME: the service starts without Redis
REDIS_TLS_CLIENT_CERT: client certificates for Redis are not supported
REDIS_TLS_CLIENT_KEY: client certificates for Redis are not supported
REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: the name of a server is always verified
RUNTIME_IGNOREDOTFILES: files whose name starts with a dot are never read
RUNTIME_WATCH_ROOT: links and files are always watched
CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL: use XDS_CLIENT_BACKOFF_INITIAL_INTERVAL
USE_DOG_STATSD: use USE_STATSD with STATSD_PROTOCOL=udp
USE_DOG_STATSD_MOGRIFIERS: use Prometheus for labels
PROMETHEUS_MAPPER_YAML: the names are those of the default mapper
PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS: times are in seconds
TRACING_ENABLED: traces are not exported
";

/// The families of variables of Envoy's service, in which a misspelled name is found.
const FAMILIES: [&str; 12] = [
    "TOLLGATE_",
    "GRPC_",
    "CONFIG_GRPC_XDS_",
    "XDS_CLIENT_",
    "STATSD_",
    "PROMETHEUS_",
    "RUNTIME_",
    "REDIS_",
    "LIMIT_",
    "MEMCACHE_",
    "TRACING_",
    "USE_",
];

/// Logs a warning for each variable that has no effect.
pub(crate) fn warn() {
    let names = env::vars_os()
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, _)| name.into_string().ok());
    for warning in warnings(names) {
        tracing::warn!("{warning}");
    }
}

fn warnings(names: impl Iterator<Item = String>) -> Vec<String> {
    let command = Arguments::command();
    let known: Vec<_> = command
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str())
        .collect();
    let mut warnings: Vec<_> = names
        .filter(|name| !known.contains(&name.as_str()))
        .filter_map(|name| {
            let reason = WITHOUT_EFFECT
                .lines()
                .find_map(|line| line.strip_prefix(&*name)?.strip_prefix(": "));
            if let Some(reason) = reason {
                return Some(format!("the variable {name} has no effect: {reason}"));
            }
            if name.starts_with("REDIS_PERSECOND") {
                return Some(format!(
                    "the variable {name} has no effect: all limits have one store"
                ));
            }
            let is_of_family = FAMILIES.iter().any(|family| name.starts_with(family));
            if !is_of_family || is_of_kubernetes(&name) {
                return None;
            }
            let hint = similar(&name, known.iter().copied());
            // Libraries of gRPC have variables of their own.
            if name.starts_with("GRPC_") && hint.is_none() {
                return None;
            }
            let hint = hint
                .map(|name| format!("; did you mean {name}?"))
                .unwrap_or_default();
            Some(format!(
                "the variable {name} is unknown and has no effect{hint}"
            ))
        })
        .collect();
    warnings.sort();
    warnings
}

/// Returns whether Kubernetes sets such a variable for each service: `REDIS_SERVICE_HOST`,
/// `REDIS_PORT_6379_TCP`.
fn is_of_kubernetes(name: &str) -> bool {
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name
            .split("_PORT_")
            .nth(1)
            .is_some_and(|rest| rest.starts_with(|sign: char| sign.is_ascii_digit()))
}

/// Returns the name that is most like a text, if one is.
pub(crate) fn similar<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let distances = names.map(|name| (strsim::damerau_levenshtein(text, name), name));
    distances
        .filter(|(distance, name)| *distance <= 1 + name.len() / 6)
        .min()
        .map(|(_, name)| name)
}
