//! What is asked of the kernel about interfaces, over rtnetlink: without root's tools.

use core::net::IpAddr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

// Of linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h and linux/neighbour.h.
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWNEIGH: u16 = 28;
const NLMSG_ERROR: u16 = 2;
const REQUEST_ACK: u16 = 1 | 4;
const CREATE_EXCL: u16 = 0x400 | 0x200;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
const IFF_UP: u32 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

const HEADER_BYTES: usize = 16;

/// An Ethernet address.
pub(super) type Mac = [u8; 6];

/// A socket to the kernel, of the network namespace that it was opened in.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// What changes of an interface; what is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkChange {
    pub(super) mac: Option<Mac>,
    pub(super) mtu: Option<u32>,
    /// Frames that may wait for the device.
    pub(super) queue_frames: Option<u32>,
    /// The bridge that it is put on; 0 takes it off.
    pub(super) bridge: Option<u32>,
    pub(super) is_up: Option<bool>,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // NETLINK_ROUTE is protocol 0, the default.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The number of an interface.
    pub(super) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(name_to_index(&self.socket, name)?)
    }

    pub(super) fn change(&mut self, index: u32, change: LinkChange) -> io::Result<()> {
        let mut body = link(index, change.is_up);
        let number = |body: &mut Vec<u8>, kind, value: Option<u32>| {
            value.iter().for_each(|value| attribute(body, kind, &value.to_ne_bytes()));
        };
        change.mac.iter().for_each(|mac| attribute(&mut body, IFLA_ADDRESS, mac));
        number(&mut body, IFLA_MTU, change.mtu);
        number(&mut body, IFLA_TXQLEN, change.queue_frames);
        number(&mut body, IFLA_MASTER, change.bridge);
        self.request(RTM_NEWLINK, 0, &body)
    }

    pub(super) fn make_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut body = link(0, None);
        attribute(&mut body, IFLA_IFNAME, name.as_bytes());
        let mut info = Vec::new();
        attribute(&mut info, IFLA_INFO_KIND, b"bridge");
        attribute(&mut body, IFLA_LINKINFO, &info);
        self.request(RTM_NEWLINK, CREATE_EXCL, &body)
    }

    pub(super) fn delete(&mut self, index: u32) -> io::Result<()> {
        self.request(RTM_DELLINK, 0, &link(index, None))
    }

    pub(super) fn add_address(&mut self, index: u32, ip: IpAddr, prefix: u8) -> io::Result<()> {
        let (family, bytes) = octets(ip);
        let mut body = vec![family, prefix, IFA_F_NODAD, 0];
        body.extend(index.to_ne_bytes());
        attribute(&mut body, IFA_LOCAL, &bytes);
        attribute(&mut body, IFA_ADDRESS, &bytes);
        self.request(RTM_NEWADDR, CREATE_EXCL, &body)
    }

    /// Says once and for all which Ethernet address an IP address has.
    pub(super) fn add_neighbour(&mut self, index: u32, ip: IpAddr, mac: Mac) -> io::Result<()> {
        let (family, bytes) = octets(ip);
        let mut body = vec![family, 0, 0, 0];
        body.extend(index.to_ne_bytes());
        body.extend(NUD_PERMANENT.to_ne_bytes());
        body.extend([0, 0]);
        attribute(&mut body, NDA_DST, &bytes);
        attribute(&mut body, NDA_LLADDR, &mac);
        self.request(RTM_NEWNEIGH, CREATE_EXCL, &body)
    }

    /// Sends one request and waits for its outcome.
    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST_ACK | flags).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        send(&self.socket, &message, SendFlags::empty())?;
        let mut answer = [0; 4096];
        loop {
            let (len, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            if let Some(outcome) = outcome(&answer[..len], self.sequence) {
                return outcome;
            }
        }
    }
}

/// What an answer says of the request `sequence`, where it is about that.
fn outcome(answer: &[u8], sequence: u32) -> Option<io::Result<()>> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let of = u32::from_ne_bytes(answer.get(8..12)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(HEADER_BYTES..HEADER_BYTES + 4)?.try_into().ok()?);
    if kind != NLMSG_ERROR || of != sequence {
        return None;
    }
    Some(if code == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(-code).into()) })
}

/// An `ifinfomsg`.
fn link(index: u32, is_up: Option<bool>) -> Vec<u8> {
    let flags = if is_up == Some(true) { IFF_UP } else { 0 };
    let changed = if is_up.is_some() { IFF_UP } else { 0 };
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(changed.to_ne_bytes());
    body
}

fn attribute(body: &mut Vec<u8>, kind: u16, data: &[u8]) {
    body.extend((4 + data.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn octets(ip: IpAddr) -> (u8, Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => (AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AF_INET6, ip.octets().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_its_own_request_only() {
        let answer = |kind: u16, sequence: u32, code: i32| {
            let mut bytes = vec![36, 0, 0, 0];
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 2]);
            bytes.extend(sequence.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(code.to_ne_bytes());
            bytes
        };
        assert!(matches!(outcome(&answer(NLMSG_ERROR, 7, 0), 7), Some(Ok(()))));
        let refused = outcome(&answer(NLMSG_ERROR, 7, -1), 7).expect("it is ours").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(outcome(&answer(NLMSG_ERROR, 6, 0), 7).is_none());
        assert!(outcome(&answer(RTM_NEWLINK, 7, 0), 7).is_none());
        assert!(outcome(&answer(NLMSG_ERROR, 7, 0)[..18], 7).is_none(), "cut off");
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_number() {
        let netlink = Netlink::open().expect("anyone may");
        assert!(netlink.index("no-such-if").is_err());
        assert!(netlink.index("lo").is_ok());
    }
}
