//! Reads pages of running services over HTTP.
//! What stands on a page of metrics is read in `exposition.rs`.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use clap::Args;
use http::Uri;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use tollgate_operator::text::shown;

use super::{
    exposition::{self, Series},
    figures::Figures,
};
use crate::failure::Failure;

/// The options that name pages of the running services.
#[derive(Args, Debug)]
pub(crate) struct EndpointOptions {
    /// Reads the metrics of a running service from this page, such as
    /// http://127.0.0.1:9090/metrics; may be repeated
    #[arg(long, value_name = "URL")]
    metrics: Vec<String>,

    /// Reads the keys that are denied most from this page, whose lines are COUNT NAME; may be
    /// repeated
    #[arg(long, value_name = "URL")]
    denied: Vec<String>,
}

/// The longest page.
const MOST_BYTES: usize = 16 << 20;

/// The beginning of the names of all metrics of Tollgate, in two parts because it is no name of a
/// metric.
const PREFIX: &str = concat!("tollgate", "_");

type Page = BTreeMap<Series, f64>;

/// Reads one page again and again.
#[derive(Debug)]
pub(super) struct Endpoint {
    uri: Uri,
    client: Client<HttpConnector, Empty<Bytes>>,
    timeout: Duration,
}

/// Reads the metrics of one service, and keeps the last ones.
#[derive(Debug)]
pub(super) struct MetricsEndpoint {
    endpoint: Endpoint,
    last: Option<(Instant, Page)>,
}

impl EndpointOptions {
    /// Returns whether no page is named.
    pub(crate) fn is_empty(&self) -> bool {
        self.metrics.is_empty() && self.denied.is_empty()
    }

    pub(super) fn metrics(&self, timeout: Duration) -> Result<Vec<MetricsEndpoint>, Failure> {
        let endpoint = |url: &String| {
            Ok(MetricsEndpoint {
                endpoint: Endpoint::new("--metrics", url, timeout)?,
                last: None,
            })
        };
        self.metrics.iter().map(endpoint).collect()
    }

    pub(super) fn denied(&self, timeout: Duration) -> Result<Vec<Endpoint>, Failure> {
        self.denied
            .iter()
            .map(|url| Endpoint::new("--denied", url, timeout))
            .collect()
    }
}

impl Endpoint {
    /// Reads a URL. No message shows it, because it may hold a password.
    fn new(option: &str, url: &str, timeout: Duration) -> Result<Self, Failure> {
        let wrong = |reason| {
            Failure::new(format_args!(
                "the URL in {option} {reason}, expected http://host:port/path"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| wrong("is not valid"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong("is not of http"));
        }
        let Some(authority) = uri.authority() else {
            return Err(wrong("has no host"));
        };
        if authority.as_str().contains('@') {
            return Err(wrong("has a user or a password, which are not sent"));
        }
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self {
            uri,
            client,
            timeout,
        })
    }

    /// Returns the address as text: host, port and path. A query is left out, because it may hold a
    /// token.
    pub(super) fn address(&self) -> String {
        format!(
            "{}{}",
            self.uri
                .authority()
                .map_or("", |authority| authority.as_str()),
            self.uri.path()
        )
    }

    /// Reads the page.
    ///
    /// # Errors
    ///
    /// Returns the reason when there is no page.
    pub(super) async fn read(&self) -> Result<String, String> {
        match tokio::time::timeout(self.timeout, self.page()).await {
            Ok(page) => page,
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    async fn page(&self) -> Result<String, String> {
        let answer = self.client.get(self.uri.clone()).await;
        let answer = answer.map_err(|error| match error.is_connect() {
            true => "cannot connect".to_owned(),
            false => "the answer is not HTTP".to_owned(),
        })?;
        if !answer.status().is_success() {
            return Err(format!("status {}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
        let body = body.map_err(|_| "the page is cut off, or longer than 16 MiB".to_owned())?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    }
}

impl MetricsEndpoint {
    pub(super) fn address(&self) -> String {
        self.endpoint.address()
    }

    /// Reads the metrics.
    pub(super) async fn read(&self) -> Result<Page, String> {
        let page = exposition::read(&self.endpoint.read().await?, PREFIX);
        if page.is_empty() {
            Err("the page has no metrics of tollgate".to_owned())
        } else {
            Ok(page)
        }
    }

    /// Adds what was read to the figures. After a failure the next page makes no rates.
    pub(super) fn add(&mut self, page: Option<Page>, figures: &mut Figures) {
        let now = Instant::now();
        if let Some(page) = &page {
            figures.add(
                page,
                self.last.as_ref().map(|(at, before)| (before, now - *at)),
            );
        }
        self.last = page.map(|page| (now, page));
    }
}

/// Reads the lines `COUNT NAME` of a page of denied keys.
pub(super) fn denied_keys(page: &str) -> impl Iterator<Item = (String, u64)> {
    page.lines().filter_map(|line| {
        let (count, name) = line.trim().split_once(char::is_whitespace)?;
        let name = name.trim();
        // The first line of such a page is the sum.
        let is_key = !name.contains(char::is_whitespace) && name != "denials";
        Some((shown(name), count.parse().ok()?)).filter(|_| is_key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_denied_keys_have_a_count_and_a_name() {
        let page = "12 denials\n       7  0123abcd\n  5 a\u{1b}b\nnone of it\n3 two words\n";
        let keys: Vec<_> = denied_keys(page).collect();
        assert_eq!(
            keys,
            [("0123abcd".to_owned(), 7), ("a\\u{1b}b".to_owned(), 5)]
        );
    }
}
