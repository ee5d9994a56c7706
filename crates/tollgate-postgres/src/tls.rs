//! TLS to the server where it is used, by rustls with the platform's certificates, and the stream
//! that is bounded whether it is TLS or not. What is bounded is in `replies.rs`.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{
    Config, Socket,
    config::{SslMode, SslNegotiation},
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream},
};
use tollgate_core::{Error, ErrorKind};

use crate::{
    replies::ReplyBound,
    stream::{Bounded, Process},
};

/// What is done before the first message of a connection.
#[derive(Clone)]
pub(crate) struct Tls {
    #[cfg(feature = "tls")]
    asks: Option<asks::Asks>,
}

impl Tls {
    /// Takes the settings of a URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when they contradict each other or need the feature `tls`, and
    /// [`ErrorKind::Tls`] when TLS cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let mode = config.get_ssl_mode();
        if mode == SslMode::Prefer && config.get_ssl_negotiation() == SslNegotiation::Direct {
            return Err(Error::new(
                ErrorKind::Config,
                "sslnegotiation=direct needs sslmode=require",
            ));
        }
        #[cfg(not(feature = "tls"))]
        if mode == SslMode::Require {
            return Err(Error::new(
                ErrorKind::Config,
                "sslmode=require needs the feature `tls` of the crate tollgate-postgres",
            ));
        }
        Ok(Self {
            #[cfg(feature = "tls")]
            asks: match mode {
                SslMode::Disable => None,
                _ => Some(asks::Asks::new(config)?),
            },
        })
    }

    #[cfg(feature = "tls")]
    async fn begin(self, socket: Socket, host: &str) -> io::Result<Box<dyn Link>> {
        match self.asks {
            Some(asks) => asks.begin(socket, host).await,
            None => Ok(Box::new(Plain(socket))),
        }
    }

    #[cfg(not(feature = "tls"))]
    async fn begin(self, socket: Socket, _: &str) -> io::Result<Box<dyn Link>> {
        Ok(Box::new(Plain(socket)))
    }
}

#[cfg(feature = "tls")]
mod asks {
    use std::{io, sync::Arc};

    use rustls::{ClientConfig, RootCertStore, crypto::ring};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_postgres::{
        Config, Socket,
        config::{SslMode, SslNegotiation},
        tls::{MakeTlsConnect, TlsConnect},
    };
    use tokio_postgres_rustls::MakeRustlsConnect;
    use tollgate_core::{Error, ErrorKind};

    use super::{Link, Plain};
    use crate::{error::Known, replies::NOT_VALID};

    /// The request for TLS, and its answers.
    const REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    const YES: u8 = b'S';
    const NO: u8 = b'N';

    const NONE: Known = Known {
        kind: ErrorKind::Tls,
        words: "postgres does not use TLS",
    };

    const NO_NAME: Known = Known {
        kind: ErrorKind::Tls,
        words: "the host of postgres has no name that a certificate could have",
    };

    /// Asks the server for TLS, and begins it.
    #[derive(Clone)]
    pub(super) struct Asks {
        is_required: bool,
        /// TLS begins without a request.
        is_direct: bool,
        connector: MakeRustlsConnect,
    }

    impl Asks {
        pub(super) fn new(config: &Config) -> Result<Self, Error> {
            let mut roots = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| Error::with_source(ErrorKind::Tls, "TLS cannot be used", error))?
                .with_root_certificates(roots)
                .with_no_client_auth();
            Ok(Self {
                is_required: config.get_ssl_mode() == SslMode::Require,
                is_direct: config.get_ssl_negotiation() == SslNegotiation::Direct,
                connector: MakeRustlsConnect::new(tls),
            })
        }

        pub(super) async fn begin(
            mut self,
            mut socket: Socket,
            host: &str,
        ) -> io::Result<Box<dyn Link>> {
            if !self.is_direct {
                socket.write_all(&REQUEST).await?;
                match socket.read_u8().await? {
                    YES => {}
                    NO if !self.is_required => return Ok(Box::new(Plain(socket))),
                    NO => return Err(NONE.into_io()),
                    _ => return Err(NOT_VALID.into_io()),
                }
            }
            let connect = MakeTlsConnect::<Socket>::make_tls_connect(&mut self.connector, host)
                .map_err(|_| NO_NAME.into_io())?;
            Ok(Box::new(connect.connect(socket).await?))
        }
    }
}

/// A stream that is TLS or is not.
pub(crate) trait Link: TlsStream + Unpin + Send {}

impl<S: TlsStream + Unpin + Send> Link for S {}

impl TlsStream for Box<dyn Link> {
    fn channel_binding(&self) -> ChannelBinding {
        self.as_ref().channel_binding()
    }
}

/// Begins TLS where it is used, and bounds what comes then.
#[derive(Clone)]
pub(crate) struct Begin {
    tls: Tls,
    bound: ReplyBound,
    process: Process,
    host: String,
}

impl Begin {
    pub(crate) fn new(tls: &Tls, bound: &ReplyBound, process: &Process) -> Self {
        Self {
            tls: tls.clone(),
            bound: bound.clone(),
            process: process.clone(),
            host: String::new(),
        }
    }
}

impl MakeTlsConnect<Socket> for Begin {
    type Stream = Bounded<Box<dyn Link>>;
    type TlsConnect = Self;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self, io::Error> {
        let host = host.to_owned();
        Ok(Self {
            host,
            ..self.clone()
        })
    }
}

impl TlsConnect<Socket> for Begin {
    type Stream = Bounded<Box<dyn Link>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let link = self.tls.begin(socket, &self.host).await?;
            Ok(Bounded::new(link, &self.bound, &self.process))
        })
    }
}

/// A stream without TLS.
struct Plain(Socket);

impl TlsStream for Plain {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
