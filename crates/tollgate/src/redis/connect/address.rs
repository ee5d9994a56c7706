use redis::{Client, ConnectionAddr, ConnectionInfo};

use super::dialer::Dialer;
#[cfg(feature = "tls")]
use super::tls::Certificates;
use crate::{Error, redis::protocol};

/// Names a server: host and port.
pub(in crate::redis) type Address = (String, u16);

/// Holds the settings for servers whose addresses become known at run time, from Sentinels or from a cluster.
pub(in crate::redis) struct ConnectionTemplate {
    pub(in crate::redis) info: ConnectionInfo,
    #[cfg(feature = "tls")]
    pub(in crate::redis) tls: Certificates,
}

impl ConnectionTemplate {
    /// Returns the dialer for the server at this address.
    pub(in crate::redis) fn dialer(&self, (host, port): &Address) -> Result<Dialer, Error> {
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
            return Ok(Dialer::new(client).with_certificates(&self.tls));
        }
        Client::open(info).map(Dialer::new).map_err(|error| protocol::error(&error))
    }
}
