use redis::{Client, ConnectionAddr, ConnectionInfo};

use super::fault;
use crate::Error;

/// A server, by host and port.
pub(super) type Node = (String, u16);

/// Everything about servers that are named by others but their addresses.
pub(super) struct Servers {
    pub(super) info: ConnectionInfo,
    #[cfg(feature = "tls")]
    pub(super) tls: super::tls::Certificates,
}

impl Servers {
    /// How to speak to the server there.
    pub(super) fn client(&self, (host, port): &Node) -> Result<Client, Error> {
        let (host, port) = (host.clone(), *port);
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let info = self.info.clone().set_addr(addr);
        #[cfg(feature = "tls")]
        if let Some(client) = self.tls.client(&info, false)? {
            return Ok(client);
        }
        Client::open(info).map_err(|error| fault::error(&error))
    }
}
