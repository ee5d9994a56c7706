use redis::{ConnectionAddr, ConnectionInfo};

use crate::{Error, redis::servers::Node};

/// Where the first servers are; they are all spoken to in one way.
pub(in crate::redis) fn nodes(seeds: &[ConnectionInfo]) -> Result<Vec<Node>, Error> {
    let Some(first) = seeds.first() else {
        return Err(Error::config("cluster URLs must be 1 at least, got 0"));
    };
    let nodes = seeds.iter().map(node).collect::<Result<Vec<_>, _>>()?;
    for info in seeds {
        let db = info.redis_settings().db();
        if db != 0 {
            return Err(Error::config(format!("a redis cluster has database 0 alone, got {db}")));
        }
        if !is_alike(first, info) {
            return Err(Error::config(
                "cluster URLs must not differ in anything but host and port: all servers are spoken to as the first",
            ));
        }
    }
    Ok(nodes)
}

fn node(info: &ConnectionInfo) -> Result<Node, Error> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Ok((host.clone(), *port)),
        _ => Err(Error::config("the servers of a redis cluster are named by host and port, got a socket")),
    }
}

fn is_alike(one: &ConnectionInfo, other: &ConnectionInfo) -> bool {
    let manner = |info: &ConnectionInfo| {
        let redis = info.redis_settings();
        let tls = match info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => Some(*insecure),
            _ => None,
        };
        (redis.username().map(str::to_owned), redis.password().map(str::to_owned), redis.protocol(), tls)
    };
    manner(one) == manner(other)
}
