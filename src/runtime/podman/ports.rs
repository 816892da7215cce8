//! Whether a host port is free.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use crate::manifest::Protocol;

/// Whether nobody on this machine holds the port. A port that this process may not take
/// itself, but Podman may, counts as free: the start will tell.
pub(super) fn is_free(protocol: Protocol, port: u16) -> bool {
    let address = (Ipv4Addr::UNSPECIFIED, port);
    let taken = match protocol {
        Protocol::Tcp => TcpListener::bind(address).map(drop),
        Protocol::Udp => UdpSocket::bind(address).map(drop),
    };
    !matches!(taken, Err(error) if error.kind() == ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_somebody_listens_on_is_not_free() {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (tcp_port, udp_port) = (
            tcp.local_addr().unwrap().port(),
            udp.local_addr().unwrap().port(),
        );
        assert!(!is_free(Protocol::Tcp, tcp_port));
        assert!(!is_free(Protocol::Udp, udp_port));
        drop((tcp, udp));
        assert!(is_free(Protocol::Tcp, tcp_port));
        assert!(is_free(Protocol::Udp, udp_port));
    }
}
