use redis::{Client, ConnectionAddr, ConnectionInfo};

use super::Node;
use crate::{
    Error,
    redis::{fault, link::Source},
};

/// Everything about the servers of a cluster but their addresses.
pub(in crate::redis) struct Servers {
    info: ConnectionInfo,
}

impl Servers {
    /// How to speak to the servers, and where the first ones are.
    pub(in crate::redis) fn of(seeds: &[ConnectionInfo]) -> Result<(Self, Vec<Node>), Error> {
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
        Ok((Self { info: first.clone() }, nodes))
    }

    pub(super) fn source(&self, (host, port): &Node) -> Result<Source, Error> {
        let (host, port) = (host.clone(), *port);
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let client = Client::open(self.info.clone().set_addr(addr)).map_err(|error| fault::error(&error))?;
        Ok(Source::Client(client.into()))
    }
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
