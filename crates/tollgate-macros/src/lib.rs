//! The attribute [`macro@limited`]. Use it as `tollgate::limited`, with the feature `macros` of the
//! `tollgate` crate.

mod expand;
mod options;
mod period;

use proc_macro::TokenStream;

/// Limits the calls of an async function.
///
/// Use it for work that is not a request: mails, jobs, calls of somebody else's API. Use the layers
/// of `tollgate-tower` and `tollgate-tonic` for requests. To limit a part of a function, write the
/// line that the attribute stands for: `limiter.check(key).wait(wait).await?.into_result()?`.
///
/// ```
/// use std::{sync::LazyLock, time::Duration};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
///
/// static MAILS: LazyLock<Limiter> =
///     LazyLock::new(|| Limiter::new(MemoryStore::new(), Policy::token_bucket("mails", Quota::per_minute(1))));
///
/// type Failure = Box<dyn std::error::Error + Send + Sync>;
///
/// #[tollgate::limited(limiter = MAILS, key = recipient)]
/// async fn send_mail(recipient: &str, text: &str) -> Result<usize, Failure> {
///     Ok(text.len())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// assert_eq!(send_mail("ann@example.com", "hello").await.unwrap(), 5);
/// let denied = send_mail("ann@example.com", "hello again").await.unwrap_err();
/// assert!(denied.is::<tollgate::Denied>());
/// assert_eq!(send_mail("bob@example.com", "hello").await.unwrap(), 5);
/// # }
/// ```
///
/// # Options
///
/// All values are expressions. They may use the arguments of the function, `self` included, and are
/// evaluated with each call.
///
/// | option | type | meaning |
/// |---|---|---|
/// | `limiter` | `Limiter`, or any type that derefs to it | the limiter; required |
/// | `key` | `Into<Key>` | identifies the client, tenant or resource whose quota is spent; required |
/// | `wait` | text such as `"2s"` or `"1m30s"`, or a `Duration` | waits up to this time instead of denying: see `tollgate::limiter::CheckBuilder::wait` |
/// | `cost` | a number, or `Into<Cost>` | the units that a call spends; 1 by default |
/// | `crate` | a path | the `tollgate` crate under another name |
///
/// A method that waits up to two seconds:
///
/// ```
/// use tollgate::{Denied, Error, Limiter};
///
/// # struct Job { bytes: u64 }
/// enum UploadError {
///     Denied(Denied),
///     NoDecision(Error),
/// }
/// # impl From<Denied> for UploadError { fn from(denied: Denied) -> Self { Self::Denied(denied) } }
/// # impl From<Error> for UploadError { fn from(error: Error) -> Self { Self::NoDecision(error) } }
///
/// struct Uploads {
///     limiter: Limiter,
/// }
///
/// impl Uploads {
///     #[tollgate::limited(limiter = self.limiter, key = ("tenant", tenant), cost = job.bytes, wait = "2s")]
///     async fn upload(&self, tenant: u64, job: &Job) -> Result<(), UploadError> {
///         // …
/// #       let _ = job;
///         Ok(())
///     }
/// }
/// ```
///
/// # Errors
///
/// The function must return a `Result`. Its error type must implement `From<tollgate::Denied>`, for
/// a call that is denied, and `From<tollgate::Error>`, for a call without a decision:
/// `Box<dyn Error + Send + Sync>` and `anyhow::Error` do. The body does not run then.
///
/// # Cancellation
///
/// A dropped future may have spent the units. With `wait`, a future that is dropped while it waits
/// gives them back.
///
/// # Other attributes
///
/// With `#[async_trait]`, place the attribute on the function that contains the work, outside of
/// the trait's block: an `async_trait` method is no longer an `async fn` when the attribute sees
/// it.
#[proc_macro_attribute]
pub fn limited(options: TokenStream, function: TokenStream) -> TokenStream {
    let expanded =
        syn::parse(options).and_then(|options| expand::expand(&options, function.clone().into()));
    match expanded {
        Ok(expanded) => expanded.into(),
        Err(error) => {
            // The function stays, so that its callers cause no errors of their own.
            let mut tokens = TokenStream::from(error.into_compile_error());
            tokens.extend(function);
            tokens
        }
    }
}

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
