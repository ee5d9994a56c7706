//! Reads what a request says. Wrong input is refused by the name of its field.
//! See `routes.rs` for what is done with it.

use axum::body::{Body, to_bytes};
use http::StatusCode;
use serde::{Deserialize, de::DeserializeOwned};
use tollgate_operator::{ExceptionRequest, Order};

use crate::problem::Problem;

/// The longest body, in bytes.
const LONGEST: usize = 16_384;

/// The most keys that are listed.
const MOST_KEYS: u32 = 200;

/// The body of `POST api/peek`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peek {
    pub(crate) key: String,
    pub(crate) cost: Option<u64>,
}

/// The body of `POST api/reset`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reset {
    pub(crate) key: String,
}

/// The body of `POST api/share`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    pub(crate) limiter: String,
    /// `null` withdraws the share. A missing field is a mistake.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) share: Option<String>,
}

/// The body of `POST api/exception`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grant {
    pub(crate) limiter: String,
    /// May be missing, when the limiter has one policy.
    pub(crate) policy: Option<String>,
    pub(crate) key: String,
    /// `quota 900/day`, `factor 2.5` or `fresh start`.
    pub(crate) change: String,
    /// A span such as `2h`, or a time such as `2026-12-24T18:00:00Z`. May be missing for a fresh start.
    #[serde(default)]
    pub(crate) ends: String,
    pub(crate) reason: String,
}

/// The body of `POST api/withdraw`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Withdrawal {
    pub(crate) limiter: String,
    pub(crate) policy: Option<String>,
    pub(crate) key: String,
}

/// The query of `GET api/keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) number: u32,
    pub(crate) by: Order,
}

impl Grant {
    /// Returns the request of this author for a key, which the body may name by its digest.
    pub(crate) fn request(&self, author: &str, key: &str) -> ExceptionRequest {
        let request = ExceptionRequest::new(&*self.limiter, key, &*self.change, &*self.ends);
        let request = request.by(author).because(&*self.reason);
        match &self.policy {
            Some(policy) => request.of(&**policy),
            None => request,
        }
    }
}

/// Reads a body.
pub(crate) async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Problem> {
    let body = to_bytes(body, LONGEST).await.map_err(|_| {
        let detail = format!("the body must have at most {LONGEST} bytes, and come whole");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    })?;
    serde_json::from_slice(&body).map_err(|error| Problem::refused(format!("body: {error}")))
}

impl Keys {
    /// Reads a query such as `by=share&number=50`.
    pub(crate) fn parse(query: &str) -> Result<Self, Problem> {
        let mut keys = Self {
            number: 20,
            by: Order::Spent,
        };
        for field in query.split('&').filter(|field| !field.is_empty()) {
            match field.split_once('=').unwrap_or((field, "")) {
                ("by", "spent") => keys.by = Order::Spent,
                ("by", "share") => keys.by = Order::Share,
                ("by", other) => {
                    return Err(Problem::refused(format!(
                        "by must be spent or share, got {other:?}"
                    )));
                }
                ("number", number) => {
                    let number = number.parse().ok();
                    let number = number.filter(|number| (1..=MOST_KEYS).contains(number));
                    keys.number = number.ok_or_else(|| {
                        Problem::refused(format!("number must be 1 to {MOST_KEYS}, got {field:?}"))
                    })?;
                }
                (other, _) => {
                    return Err(Problem::refused(format!(
                        "there is no field {other:?}, expected by or number"
                    )));
                }
            }
        }
        Ok(keys)
    }
}
