//! Stores, services and recorders that the tests share.

pub(crate) use tollgate_tests::http::{
    header, hello, in_one_tenth, listen, request, second, serve,
};

#[path = "../../../../tests/stores.rs"]
mod stores;

pub(crate) use stores::{Late, still, tokio_clock_store, unavailable};
