//! Maps names of statsd to names of Prometheus, as the default mapper of Envoy's service does.
//! Values and lines are written in `prometheus.rs`.

/// The name and the labels of a series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) labels: Vec<(&'static str, String)>,
}

const RULES: [&str; 5] = [
    "near_limit",
    "over_limit",
    "total_hits",
    "within_limit",
    "shadow_mode",
];

/// Returns the series of a counter.
pub(super) fn series(name: &str) -> Series {
    rule(name)
        .or_else(|| service(name))
        .unwrap_or_else(|| Series {
            name: escaped(name),
            labels: Vec::new(),
        })
}

/// Maps the counter of a rule. The domain and the first two keys become labels, and the rest is
/// added up.
fn rule(name: &str) -> Option<Series> {
    let (path, last) = name
        .strip_prefix("ratelimit.service.rate_limit.")?
        .rsplit_once('.')?;
    let last = RULES.into_iter().find(|rule| *rule == last)?;
    let mut parts = path.split('.');
    let mut labels = vec![
        ("domain", parts.next()?.to_owned()),
        ("key1", parts.next()?.to_owned()),
    ];
    labels.extend(parts.next().map(|key| ("key2", key.to_owned())));
    Some(Series {
        name: format!("ratelimit_service_rate_limit_{last}"),
        labels,
    })
}

fn service(name: &str) -> Option<Series> {
    if let Some(error) = name.strip_prefix("ratelimit.service.call.should_rate_limit.") {
        let labels = vec![("err_type", error.to_owned())];
        return Some(Series {
            name: "ratelimit_service_should_rate_limit_error".to_owned(),
            labels,
        });
    }
    let method = name
        .strip_prefix("ratelimit_server.")?
        .strip_suffix(".total_requests")?;
    let labels = vec![("grpc_method", method.to_owned())];
    Some(Series {
        name: "ratelimit_service_total_requests".to_owned(),
        labels,
    })
}

/// Returns a name with the characters that Prometheus allows.
fn escaped(name: &str) -> String {
    name.chars()
        .map(|sign| {
            if sign.is_ascii_alphanumeric() || sign == ':' {
                sign
            } else {
                '_'
            }
        })
        .collect()
}
