//! URLs of stores in other crates.
//! URLs of this crate's own stores are read in `url.rs` beside the root.

use std::sync::Arc;

use tollgate_core::{Error, Store, raw::Lock, store::StoreFuture};

/// A kind of URL whose store stands in another crate.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{MemoryStore, Store, store::{Scheme, StoreFuture}};
///
/// // A crate with a store has such a function, which a program calls once.
/// tollgate::store::register(Scheme {
///     names: &["mine"],
///     open: |_| Ok(Arc::new(MemoryStore::new())),
///     connect: |_| StoreFuture::ready(Ok(Arc::new(MemoryStore::new()))),
/// });
/// assert!(tollgate::open("mine://host")?.is_in_process());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// The names before the colon.
    pub names: &'static [&'static str],
    /// Makes a store without waiting for a server, for `open`.
    pub open: fn(&str) -> Result<Arc<dyn Store>, Error>,
    /// Makes a store, and waits until the server answers, for `connect`.
    pub connect: fn(&str) -> StoreFuture<Arc<dyn Store>>,
}

static SCHEMES: Lock<Vec<Scheme>> = Lock::new(Vec::new());

/// Lets `open` and `connect` make the stores of another crate. Of
/// two schemes with the same name the later one counts.
pub fn register(scheme: Scheme) {
    let mut schemes = SCHEMES.lock();
    schemes.retain(|known| known.names != scheme.names);
    schemes.push(scheme);
}

/// Returns the scheme with this name.
pub fn find(name: &str) -> Option<Scheme> {
    let schemes = SCHEMES.lock();
    schemes
        .iter()
        .rev()
        .find(|scheme| scheme.names.contains(&name))
        .copied()
}
