//! What both ends tell each other over TCP before they use queue pairs: one message each way.
//!
//! ```text
//!  0 "TKVR"  4 version (u16)  6 kind (1 RC, 2 UC, 3 UD)  7 MTU (1: 256 to 5: 4,096 bytes)
//!  8 refusal (u32, 0: none)  12 queue pair (u32)  16 first PSN (u32)  20 queue key (u32)
//! 24 longest message (u32, bytes)  28 requests under way (u16)  30 UDP port (u16)
//! 32 IP address (16 bytes, IPv4 mapped into IPv6)
//! 48 number of the client (u32)  52 rkey of granted memory (u32)
//! 56 its address (u64)  64 its length (u64, bytes, 0: none)
//! ```
//!
//! All little-endian but the IP address. The client speaks first. Its number comes from the server,
//! and goes as immediate data with each datagram, which says whose it is. The connection stays for
//! as long as the queue pairs are used: its end says that the other side is gone.

use super::RawKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use towpath_base::serial::Psn;
use towpath_verbs::{Mtu, QpNum};

/// Bytes of what an end tells.
pub const HELLO_BYTES: usize = 72;

const MAGIC: [u8; 4] = *b"TKVR";
const VERSION: u16 = 1;

/// Why a server does not serve a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum Refusal {
    /// It speaks another version.
    #[error("the server speaks another version: update the older side")]
    Version = 1,
    /// It serves queue pairs of another type.
    #[error("the server has queue pairs of another type: ask for its --raw-transport")]
    Kind = 2,
    /// It has as many clients as it may.
    #[error("the server has as many clients as it may")]
    TooManyClients = 3,
    /// Its device or its memory has no room.
    #[error("the server's device or memory has no room")]
    NoRoom = 4,
    /// What it was told has no meaning, or an address that its device does not reach.
    #[error("the server cannot use what it was told")]
    Malformed = 5,
}

/// What is wrong with what an end was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// More bytes have to come, up to this many in all.
    #[error("more bytes are needed: {0} in all")]
    Short(usize),
    /// It is not of this protocol.
    #[error("this is no end of the key-value store's raw transports")]
    NotOurs,
    /// Another version.
    #[error("version {0}, and this side speaks {VERSION}: update the older side")]
    Version(u16),
    /// A field has no meaning.
    #[error("the {0} has no meaning")]
    Field(&'static str),
    /// The server said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Memory that a server lets its clients read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its key.
    pub rkey: u32,
    /// Where it begins.
    pub addr: u64,
    /// Its length.
    pub bytes: u64,
}

/// One end: its queue pair, and what may be sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The type of its queue pair.
    pub kind: RawKind,
    /// The longest packet that goes its way.
    pub mtu: Mtu,
    /// Its queue pair.
    pub qp_num: QpNum,
    /// The first PSN that it sends.
    pub psn: Psn,
    /// What datagrams to it need.
    pub qkey: u32,
    /// The longest message that it takes; the server's is what both keep to.
    pub message_bytes_max: u32,
    /// Requests that may be under way at a time; the server's is what both keep to.
    pub under_way: u16,
    /// Where its device takes packets.
    pub addr: SocketAddr,
    /// The client's number at the server; what a client tells is not looked at.
    pub number: u32,
    /// What the server lets the client read.
    pub grant: Option<Grant>,
}

impl End {
    /// Appends its bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let grant = self.grant.unwrap_or(Grant { rkey: 0, addr: 0, bytes: 0 });
        let ip = match self.addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mtu = Mtu::ALL.iter().position(|&mtu| mtu == self.mtu).unwrap_or_default() + 1;
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, mtu as u8]);
        for word in [0, self.qp_num.0, self.psn.value(), self.qkey, self.message_bytes_max] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.under_way.to_le_bytes());
        out.extend_from_slice(&self.addr.port().to_le_bytes());
        out.extend_from_slice(&ip.octets());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&grant.rkey.to_le_bytes());
        out.extend_from_slice(&grant.addr.to_le_bytes());
        out.extend_from_slice(&grant.bytes.to_le_bytes());
    }

    /// The end that these bytes tell of.
    ///
    /// # Errors
    /// [`HelloError`]; what is of another version, or not ours, is known by the first six bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, HelloError> {
        let ours = bytes.len().min(MAGIC.len());
        if bytes[..ours] != MAGIC[..ours] {
            return Err(HelloError::NotOurs);
        }
        let version = u16::from_le_bytes(array(bytes, 4)?);
        if version != VERSION {
            return Err(HelloError::Version(version));
        }
        if bytes.len() < HELLO_BYTES {
            return Err(HelloError::Short(HELLO_BYTES));
        }
        let [kind, mtu] = array(bytes, 6)?;
        let word = |at| array(bytes, at).map(u32::from_le_bytes);
        let long = |at| array(bytes, at).map(u64::from_le_bytes);
        if let code @ 1.. = word(8)? {
            return Err(Refusal::of(code).map_or(HelloError::Field("refusal"), Into::into));
        }
        let kind = RawKind::ALL.into_iter().find(|&known| known as u8 == kind);
        let mtu = usize::from(mtu).checked_sub(1).and_then(|at| Mtu::ALL.get(at).copied());
        let (qp_num, psn) = (word(12)?, word(16)?);
        if qp_num > QpNum::MAX.0 {
            return Err(HelloError::Field("queue pair"));
        }
        if psn > QpNum::MAX.0 {
            return Err(HelloError::Field("PSN"));
        }
        let under_way = u16::from_le_bytes(array(bytes, 28)?);
        if under_way == 0 {
            return Err(HelloError::Field("number of requests under way"));
        }
        let ip = IpAddr::from(Ipv6Addr::from(array::<16>(bytes, 32)?)).to_canonical();
        let port = u16::from_le_bytes(array(bytes, 30)?);
        if ip.is_unspecified() || ip.is_multicast() || port == 0 {
            return Err(HelloError::Field("address"));
        }
        let grant = Grant { rkey: word(52)?, addr: long(56)?, bytes: long(64)? };
        if grant.addr.checked_add(grant.bytes).is_none() {
            return Err(HelloError::Field("granted memory"));
        }
        Ok(Self {
            kind: kind.ok_or(HelloError::Field("kind"))?,
            mtu: mtu.ok_or(HelloError::Field("MTU"))?,
            qp_num: QpNum(qp_num),
            psn: Psn::new(psn),
            qkey: word(20)?,
            message_bytes_max: word(24)?,
            under_way,
            addr: SocketAddr::new(ip, port),
            number: word(48)?,
            grant: (grant.bytes > 0).then_some(grant),
        })
    }
}

impl Refusal {
    fn of(code: u32) -> Option<Self> {
        let all = [Self::Version, Self::Kind, Self::TooManyClients, Self::NoRoom, Self::Malformed];
        all.into_iter().find(|&refusal| refusal as u32 == code)
    }

    /// What is answered to a hello with this error.
    pub(super) fn to(error: HelloError) -> Self {
        match error {
            HelloError::Version(_) => Self::Version,
            _ => Self::Malformed,
        }
    }

    /// Appends its bytes.
    pub fn emit(self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(self as u32).to_le_bytes());
        out.resize(begin + HELLO_BYTES, 0);
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], HelloError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().ok_or(HelloError::Short(at + N))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> End {
        End {
            kind: RawKind::Uc,
            mtu: Mtu::Mtu1024,
            qp_num: QpNum(0x01_0203),
            psn: Psn::new(0x04_0506),
            qkey: 0x0708_090a,
            message_bytes_max: 0x0b0c_0d0e,
            under_way: 0x0f10,
            addr: "10.0.0.2:4791".parse().expect("an address"),
            number: 0x1112_1314,
            grant: Some(Grant { rkey: 0x1516_1718, addr: 0x191a, bytes: 0x1b1c }),
        }
    }

    #[rustfmt::skip]
    const GOLDEN: [u8; HELLO_BYTES] = [
        b'T', b'K', b'V', b'R', 1, 0, 2, 3, 0, 0, 0, 0, 3, 2, 1, 0, 6, 5, 4, 0,
        0x0a, 9, 8, 7, 0x0e, 0x0d, 0x0c, 0x0b, 0x10, 0x0f, 0xb7, 0x12,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2,
        0x14, 0x13, 0x12, 0x11, 0x18, 0x17, 0x16, 0x15,
        0x1a, 0x19, 0, 0, 0, 0, 0, 0, 0x1c, 0x1b, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn the_golden_bytes_are_emitted_and_parsed() {
        let mut bytes = Vec::new();
        end().emit(&mut bytes);
        assert_eq!(bytes, GOLDEN);
        assert_eq!(End::parse(&GOLDEN), Ok(end()));
        for len in 0..HELLO_BYTES {
            assert!(matches!(End::parse(&GOLDEN[..len]), Err(HelloError::Short(_))), "{len}");
        }
    }

    #[test]
    fn each_wrong_field_is_named() {
        let with = |at: usize, bytes: &[u8]| {
            let mut all = GOLDEN;
            all[at..at + bytes.len()].copy_from_slice(bytes);
            End::parse(&all).map(|_| ())
        };
        assert_eq!(with(0, b"GET "), Err(HelloError::NotOurs));
        assert_eq!(with(4, &[2]), Err(HelloError::Version(2)));
        assert_eq!(with(6, &[4]), Err(HelloError::Field("kind")));
        assert_eq!(with(7, &[0]), Err(HelloError::Field("MTU")));
        assert_eq!(with(7, &[6]), Err(HelloError::Field("MTU")));
        assert_eq!(with(8, &[9]), Err(HelloError::Field("refusal")));
        assert_eq!(with(15, &[1]), Err(HelloError::Field("queue pair")));
        assert_eq!(with(19, &[1]), Err(HelloError::Field("PSN")));
        assert_eq!(with(28, &[0, 0]), Err(HelloError::Field("number of requests under way")));
        assert_eq!(with(30, &[0, 0]), Err(HelloError::Field("address")));
        assert_eq!(with(44, &[0; 4]), Err(HelloError::Field("address")));
        assert_eq!(with(56, &[0xff; 8]), Err(HelloError::Field("granted memory")));
    }

    #[test]
    fn each_refusal_comes_back_as_it_went() {
        for code in 1..=5 {
            let (refusal, mut bytes) = (Refusal::of(code).expect("one of them"), Vec::new());
            refusal.emit(&mut bytes);
            assert_eq!(End::parse(&bytes), Err(HelloError::Refused(refusal)));
        }
    }
}
