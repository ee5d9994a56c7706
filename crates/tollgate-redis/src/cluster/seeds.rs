//! The addresses that a user gives for a cluster, and that they agree in all else.
//! Which servers there really are is found in `topology.rs`.

use redis::{ConnectionAddr, ConnectionInfo};

use crate::connect::Address;
use tollgate_core::Error;

/// Returns the addresses of the first servers. All seeds must have the same settings except for
/// host and port.
pub(crate) fn addresses(seeds: &[ConnectionInfo]) -> Result<Vec<Address>, Error> {
    let Some(first) = seeds.first() else {
        return Err(Error::config("cluster URLs must be at least 1, got 0"));
    };
    let addresses = seeds.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    for info in seeds {
        let db = info.redis_settings().db();
        if db != 0 {
            return Err(Error::config(format!(
                "a redis cluster has only database 0, got {db}"
            )));
        }
        if !is_alike(first, info) {
            return Err(Error::config(
                "cluster URLs must differ in host and port only",
            ));
        }
    }
    Ok(addresses)
}

fn address(info: &ConnectionInfo) -> Result<Address, Error> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Ok((host.clone(), *port))
        }
        _ => Err(Error::config(
            "cluster URLs must name a host and a port, got a socket path",
        )),
    }
}

fn is_alike(one: &ConnectionInfo, other: &ConnectionInfo) -> bool {
    let settings = |info: &ConnectionInfo| {
        let redis = info.redis_settings();
        let tls = match info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => Some(*insecure),
            _ => None,
        };
        (
            redis.username().map(str::to_owned),
            redis.password().map(str::to_owned),
            redis.protocol(),
            tls,
        )
    };
    settings(one) == settings(other)
}
