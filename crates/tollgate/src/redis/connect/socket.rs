use tokio::net::TcpStream;

/// A socket that knows whether its peer has closed it.
pub(super) trait Socket {
    /// Returns whether the peer has closed the socket, also while bytes that it sent before are not read yet.
    fn is_closed_by_peer(&self) -> bool;
}

impl Socket for TcpStream {
    fn is_closed_by_peer(&self) -> bool {
        has_hung_up(self)
    }
}

#[cfg(unix)]
impl Socket for tokio::net::UnixStream {
    fn is_closed_by_peer(&self) -> bool {
        has_hung_up(self)
    }
}

#[cfg(test)]
impl Socket for tokio::io::DuplexStream {
    fn is_closed_by_peer(&self) -> bool {
        false
    }
}

#[cfg(target_os = "linux")]
fn has_hung_up(socket: &impl std::os::fd::AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut sockets = [PollFd::new(socket, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut sockets, Some(&at_once)).is_ok()
        && sockets[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Returns `false`: other systems do not tell. A read finds out there.
#[cfg(not(target_os = "linux"))]
fn has_hung_up<S>(_: &S) -> bool {
    false
}
