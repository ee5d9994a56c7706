//! Connects with the credentials that a provider has now.
//! Where credentials come from is in `credentials` of the core; the pool that asks here is made in
//! `builder.rs`.

use std::{future::Future, pin::Pin};

use deadpool_postgres::Connect;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error};
use tollgate::{
    ErrorKind,
    credentials::{Credentials, Provider},
};

use crate::error::sorted;

/// Asks the provider before each connection, and again when the server refuses its credentials.
pub(crate) struct SignIn {
    pub(crate) connect: Box<dyn Connect>,
    pub(crate) provider: Option<Provider>,
}

type Connected = Result<(Client, JoinHandle<()>), Error>;

impl Connect for SignIn {
    fn connect(&self, config: &Config) -> Pin<Box<dyn Future<Output = Connected> + Send + '_>> {
        let (connect, mut config) = (&self.connect, config.clone());
        let Some(provider) = &self.provider else {
            return Box::pin(async move { connect.connect(&config).await });
        };
        Box::pin(async move {
            let Ok(credentials) = provider.newest().await else {
                // The server refuses this, and the store then reports why there are no credentials.
                return connect.connect(config.password("")).await;
            };
            let first = connect.connect(&with(&config, &credentials)).await;
            if first.as_ref().is_err_and(is_refusal)
                && let Ok(Some(others)) = provider.instead_of(&credentials).await
            {
                return connect.connect(&with(&config, &others)).await;
            }
            first
        })
    }
}

fn with(config: &Config, credentials: &Credentials) -> Config {
    let mut config = config.clone();
    config.password(credentials.password());
    if let Some(user) = credentials.user() {
        config.user(user);
    }
    config
}

fn is_refusal(error: &Error) -> bool {
    sorted(error).kind() == ErrorKind::Authentication
}
