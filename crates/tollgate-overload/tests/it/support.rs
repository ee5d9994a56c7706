//! Policies, stores, services and recorders that the tests share.

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::{MemoryStore, Policy, Quota, store::Clock};
use tower::{Service, service_fn};

pub(crate) const TWO: Policy = Policy::token_bucket("two", Quota::per_minute(2));

/// Creates a store in the process whose clock stands still.
pub(crate) fn still() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build()
}

/// Responds with 200 and a text.
pub(crate) fn hello()
-> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(|_: Request<()>| async { Ok(Response::new("hello".to_owned())) })
}

pub(crate) fn request() -> Request<()> {
    Request::new(())
}

/// Returns a request with one header.
pub(crate) fn request_with(name: &str, value: &str) -> Request<()> {
    Request::builder().header(name, value).body(()).unwrap()
}

/// Returns the value of a header that must not have more than one line.
pub(crate) fn header<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    let mut lines = response.headers().get_all(name).iter();
    let line = lines.next()?;
    assert!(lines.next().is_none(), "{name} has more than one line");
    Some(line.to_str().unwrap())
}

#[cfg(feature = "metrics")]
pub(crate) mod recorder {
    use std::collections::BTreeMap;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    /// Stores all time series of a test by their names and labels.
    pub(crate) struct Series(pub(crate) BTreeMap<String, DebugValue>);

    impl Series {
        /// Runs `work` with a recorder of its own.
        pub(crate) fn of(work: impl Future<Output = ()>) -> Self {
            let recorder = DebuggingRecorder::new();
            let snapshotter = recorder.snapshotter();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            metrics::with_local_recorder(&recorder, || runtime.block_on(work));
            let series = snapshotter
                .snapshot()
                .into_vec()
                .into_iter()
                .map(|(key, _, _, value)| {
                    let labels: Vec<_> = key
                        .key()
                        .labels()
                        .map(|label| format!("{}={}", label.key(), label.value()))
                        .collect();
                    (format!("{} {}", key.key().name(), labels.join(" ")), value)
                });
            Self(series.collect())
        }

        /// Returns the value of a counter.
        pub(crate) fn count(&self, name: &str) -> u64 {
            match self.0.get(name) {
                Some(DebugValue::Counter(count)) => *count,
                other => panic!("{name}: {other:?} in {:?}", self.0.keys()),
            }
        }

        /// Asserts the values of counters: a line for each, with its name, its labels and its value.
        pub(crate) fn assert_counts(&self, expected: &str) {
            for line in expected
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
            {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(self.count(name).to_string(), value, "{name}");
            }
        }
    }
}
