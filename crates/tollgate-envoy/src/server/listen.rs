//! Sockets: a TCP port or a Unix socket, how one is opened, and what it accepts.
//! Bounds and tasks of connections are in `port.rs` and `connection.rs`.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::ServerError;

/// Selects where gRPC is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcListen {
    /// At a host and a port. Port 0 is any free one.
    Tcp(String, u16),
    /// At a Unix socket. A socket that an earlier process left there is replaced. The file is
    /// removed as soon as the server accepts no connection.
    Unix(PathBuf),
}

/// An open place.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// The connection of a client.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl fmt::Display for GrpcListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl GrpcListen {
    pub(super) async fn open(&self) -> Result<Listener, ServerError> {
        match self {
            Self::Tcp(host, port) => tcp("gRPC", host, *port).await.map(Listener::Tcp),
            Self::Unix(path) => {
                let failure = |error| {
                    ServerError::with(
                        format!("cannot listen for gRPC at {}", path.display()),
                        error,
                    )
                };
                // A socket on which a process listens must not be taken away.
                if tokio::net::UnixStream::connect(path).await.is_ok() {
                    return Err(failure(std::io::ErrorKind::AddrInUse.into()));
                }
                if is_socket(path) {
                    std::fs::remove_file(path).map_err(failure)?;
                }
                Ok(Listener::Unix(
                    UnixListener::bind(path).map_err(failure)?,
                    path.clone(),
                ))
            }
        }
    }
}

impl Listener {
    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Without it, a slow network is all that is lost.
                let _ = stream.set_nodelay(true);
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(listener, _) => listener
                .accept()
                .await
                .map(|(stream, _)| Stream::Unix(stream)),
        }
    }

    /// Returns the place with the port that was chosen.
    pub(super) fn local(&self) -> Result<GrpcListen, ServerError> {
        Ok(match self {
            Self::Tcp(listener) => {
                let address = local(listener)?;
                GrpcListen::Tcp(address.ip().to_string(), address.port())
            }
            Self::Unix(_, path) => GrpcListen::Unix(path.clone()),
        })
    }
}

impl Drop for Listener {
    /// Removes the file of a Unix socket. The socket still listens, so the file is not yet that of
    /// a next process, which replaces one on which nobody listens.
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_socket(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;

    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

pub(super) async fn tcp(what: &str, host: &str, port: u16) -> Result<TcpListener, ServerError> {
    let bound = TcpListener::bind((host, port)).await;
    bound.map_err(|error| {
        ServerError::with(format!("cannot listen for {what} at {host}:{port}"), error)
    })
}

pub(super) fn local(listener: &TcpListener) -> Result<SocketAddr, ServerError> {
    listener
        .local_addr()
        .map_err(|error| ServerError::with("cannot read the address of a listener", error))
}
