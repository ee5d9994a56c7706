//! The tests that compile a library which nothing else here needs: only `cargo xtask test --full`
//! has them. What a short run tests too is beside the other tests.

#[cfg(test)]
mod generated;
#[cfg(test)]
mod governor;
