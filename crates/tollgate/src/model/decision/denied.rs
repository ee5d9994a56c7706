use std::{fmt, time::Duration};

use super::Decision;

/// Reports a denied request as an error, from [`Decision::into_result`].
///
/// The message names the policy that denies and the wait. It does not contain the key.
#[derive(Clone, Debug)]
pub struct Denied(Box<Decision>);

impl Decision {
    /// Turns a denial into an error, so that `?` ends the work on a denied request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// async fn send(limiter: &Limiter) -> Result<&'static str, Box<dyn std::error::Error>> {
    ///     limiter.check("acme").await?.into_result()?;
    ///     Ok("sent")
    /// }
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("mail", Quota::per_day(1)));
    /// assert_eq!(send(&limiter).await.unwrap(), "sent");
    /// let denied = send(&limiter).await.unwrap_err();
    /// assert!(denied.to_string().starts_with("rate limit mail exceeded, retry after"));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Denied`], which holds the decision, when the request is denied.
    pub fn into_result(self) -> Result<(), Denied> {
        if self.is_allowed() { Ok(()) } else { Err(Denied(Box::new(self))) }
    }
}

impl Denied {
    /// Returns the decision that denied the request.
    #[must_use = "this only returns the decision"]
    pub fn decision(&self) -> &Decision {
        &self.0
    }

    /// Returns how long until the same request would pass, if no other request spends from this key.
    ///
    /// `None` when a policy [blocks](Decision::is_blocked). Any other denial has a wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_blocked() {
            let name = self.0.binding().map_or("", |state| state.policy().name());
            return write!(f, "rate limit {name} blocks all requests");
        }
        f.write_str("rate limit")?;
        if let Some(state) = self.0.binding() {
            write!(f, " {}", state.policy().name())?;
        }
        f.write_str(" exceeded")?;
        match self.retry_after() {
            Some(wait) => write!(f, ", retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Denied {}
