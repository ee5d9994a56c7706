//! The source of the page: the store of all replicas, or limiters of this process.
//! Both answer with the same fields, so that the page does not know the difference.

use serde_json::{Value, json};
use tollgate::Key;
use tollgate_operator::Operator;

use crate::{
    input::{Grant, Keys, Withdrawal},
    local::LocalLimiters,
    problem::Problem,
};

/// The source of a [`Console`](crate::Console). An [`Operator`] and [`LocalLimiters`] make one.
#[derive(Clone, Debug)]
pub struct Source(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Store(Operator),
    Local(LocalLimiters),
}

impl From<Operator> for Source {
    fn from(operator: Operator) -> Self {
        Self(Kind::Store(operator))
    }
}

impl From<LocalLimiters> for Source {
    fn from(limiters: LocalLimiters) -> Self {
        Self(Kind::Local(limiters))
    }
}

impl Source {
    /// Describes the source.
    pub(crate) fn describe(&self) -> Value {
        match &self.0 {
            Kind::Store(operator) => json!({
                "kind": "store",
                "address": operator.address(),
                "prefix": operator.prefix(),
                "shows_keys": operator.shows_keys(),
            }),
            Kind::Local(_) => json!({ "kind": "process", "shows_keys": false }),
        }
    }

    pub(crate) async fn limiters(&self) -> Result<Value, Problem> {
        match &self.0 {
            Kind::Store(operator) => Ok(json!(operator.limiters().await?)),
            Kind::Local(limiters) => Ok(limiters.limiters()),
        }
    }

    /// Lists the replicas. `None` for a process that counts for itself.
    pub(crate) async fn replicas(&self) -> Result<Option<Value>, Problem> {
        match &self.0 {
            Kind::Store(operator) => Ok(Some(json!(operator.replicas().await?))),
            Kind::Local(_) => Ok(None),
        }
    }

    pub(crate) async fn keys(&self, keys: Keys) -> Result<Value, Problem> {
        match &self.0 {
            Kind::Store(operator) => Ok(json!(operator.heaviest(keys.number, keys.by).await?)),
            Kind::Local(_) => Err(Problem::new(
                http::StatusCode::NOT_IMPLEMENTED,
                "the memory of a process lists no keys: look at one by its name",
            )),
        }
    }

    pub(crate) async fn peek(&self, key: &str, cost: Option<u64>) -> Result<Value, Problem> {
        match &self.0 {
            Kind::Store(operator) => Ok(json!(operator.peek(key, cost).await?)),
            Kind::Local(limiters) => limiters.peek(key, cost).await,
        }
    }

    pub(crate) async fn reset(&self, key: &str) -> Result<Value, Problem> {
        match &self.0 {
            Kind::Store(operator) => Ok(json!(operator.reset(key).await?)),
            Kind::Local(limiters) => limiters.reset(key).await,
        }
    }

    pub(crate) async fn set_share(&self, name: &str, share: Option<&str>) -> Result<(), Problem> {
        match &self.0 {
            Kind::Store(operator) => Ok(operator.set_share(name, share).await?),
            Kind::Local(limiters) => limiters.set_share(name, share),
        }
    }

    /// Lists the exceptions.
    pub(crate) async fn exceptions(&self) -> Result<Value, Problem> {
        match &self.0 {
            Kind::Store(operator) => Ok(json!(operator.exceptions().await?)),
            Kind::Local(limiters) => limiters.exceptions().await,
        }
    }

    /// Grants an exception, or changes one.
    pub(crate) async fn grant(&self, grant: &Grant, author: &str) -> Result<Value, Problem> {
        match &self.0 {
            Kind::Store(operator) => {
                let request = grant.request(author, &grant.key);
                Ok(json!(operator.grant_exception(&request).await?))
            }
            Kind::Local(limiters) => limiters.grant(grant, author).await,
        }
    }

    /// Withdraws an exception.
    pub(crate) async fn withdraw(&self, withdrawal: &Withdrawal) -> Result<Value, Problem> {
        let Withdrawal {
            limiter,
            policy,
            key,
        } = withdrawal;
        let policy = policy.as_deref();
        match &self.0 {
            Kind::Store(operator) => Ok(json!(
                operator.withdraw_exception(limiter, policy, key).await?
            )),
            Kind::Local(limiters) => limiters.withdraw(limiter, policy, key).await,
        }
    }

    /// Returns the name under which an action on a key is listed: a digest, unless keys are shown.
    pub(crate) fn name_of(&self, key: &str) -> String {
        match &self.0 {
            Kind::Store(operator) => operator.name_of(key),
            Kind::Local(limiters) => limiters.name_of(Key::new(key).encoded()),
        }
    }
}
