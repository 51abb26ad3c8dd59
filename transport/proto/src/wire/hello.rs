//! The set-up messages that endpoints exchange over TCP (docs/protocol.md section 8).

use super::app::{AppProtocol, NAME_BYTES_MAX};
use super::refusal::{REFUSAL_BYTES, REFUSAL_BYTES_MAX, Refusal, parse_refusal};
use super::{field, put};
use crate::carrier::Carrier;
use crate::class::Class;
use crate::limits::{HEADER_BYTES, NICS_MAX, PATHS_MAX};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use towpath_base::crc::crc32c;
use towpath_base::serial::Psn;
use towpath_verbs::{Mtu, QpNum};

/// The version of the set-up messages of this build.
pub const SETUP_VERSION: u16 = 6;

const MAGIC: [u8; 8] = *b"TOWPATH\0";
const FIXED_BYTES: usize = 80;
const PATH_BYTES: usize = 12;
pub(super) const CRC_BYTES: usize = 4;

/// The bytes that never change between versions; they say how long the whole message is.
pub const PREFIX_BYTES: usize = 16;

/// A DSCP has six bits.
const DSCP_MAX: u8 = 0x3f;

/// Bits of `abilities`.
const CUTS_EACH_SEND: u16 = 1;
const OMITS_ICRC: u16 = 1 << 1;
const HAS_NICS: u16 = 1 << 2;
const IS_SEALED: u16 = 1 << 3;

/// Port and IP of a further NIC.
const NIC_BYTES: usize = 18;

/// Secret, salt and tag of a HELLO of sealed links.
const SEAL_BYTES: usize = 16 + 16 + TAG_BYTES;
const TAG_BYTES: usize = 16;

/// The longest HELLO.
const HELLO_BYTES_MAX: usize = FIXED_BYTES
    + PATHS_MAX * PATH_BYTES
    + 1
    + NAME_BYTES_MAX
    + 1
    + (NICS_MAX - 1) * NIC_BYTES
    + SEAL_BYTES
    + CRC_BYTES;

/// One queue pair as its owner describes it to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloPath {
    /// What carries it.
    pub carrier: Carrier,
    /// The queue pair.
    pub qp_num: QpNum,
    /// The first PSN that its owner will send.
    pub psn: Psn,
    /// The generation that the owner wants to see in every header it receives.
    pub generation: u32,
}

/// What a HELLO of sealed links ends with (docs/secure-links.md section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloSeal {
    /// By which both ends know their secret.
    pub secret: [u8; 16],
    /// Random, so that no two links have the same keys.
    pub salt: [u8; 16],
    /// Shows that the sender has the secret: of all that stands in front of it.
    pub tag: [u8; TAG_BYTES],
}

/// What an endpoint tells its peer at set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Random, one life of an endpoint.
    pub instance: u64,
    /// What the link is for.
    pub class: Class,
    /// The DSCP that this side gives its packets on the link, 0 to 63.
    pub dscp: u8,
    /// Where the device receives.
    pub addr: SocketAddr,
    /// And by its further NICs, [`NICS_MAX`] addresses with the first, of one family.
    pub further_addrs: Vec<SocketAddr>,
    /// The largest path MTU that this side can do.
    pub mtu: Mtu,
    /// Its device sends and takes messages that are cut at smaller sizes than the path MTU:
    /// [`DeviceCaps::cuts_each_send`](towpath_verbs::DeviceCaps::cuts_each_send).
    pub cuts_each_send: bool,
    /// It would leave the ICRC out of packets over UC: its device can, and its chunks carry a
    /// checksum of their bodies.
    pub omits_icrc: bool,
    /// Payload bytes of a receive buffer.
    pub chunk_bytes_max: u32,
    /// What the receive side charges a message beside its bytes.
    pub charge_bytes: u32,
    /// What may be in flight to this side at first.
    pub window_bytes: u64,
    /// Receives that this side keeps for each path: the most numbers that may be outstanding on
    /// one.
    pub path_chunks: u16,
    /// The control queue pair.
    pub control: HelloPath,
    /// The paths, 1 to 16.
    pub paths: Vec<HelloPath>,
    /// What its application speaks.
    pub app: AppProtocol,
    /// Where the link is sealed.
    pub seal: Option<HelloSeal>,
}

/// The answer to a HELLO: the peer's own, or a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// The peer's HELLO.
    Hello(Hello),
    /// The peer does not want us.
    Refused(Refusal),
}

/// Why bytes are no set-up message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HelloError {
    /// Not a Towpath endpoint at all.
    #[error("the peer is not a Towpath endpoint (wrong magic)")]
    Magic,
    /// Another protocol version: the peer's.
    #[error("the peer speaks protocol version {0}, this build version {SETUP_VERSION}")]
    Version(u16),
    /// The chunk header has another size there.
    #[error("the peer's chunk header has {0} bytes, not 64")]
    HeaderBytes(u16),
    /// The length is none that a set-up message can have.
    #[error("the set-up message has an invalid length of {0} bytes")]
    Length(u32),
    /// The checksum does not match.
    #[error("the checksum of the set-up message does not match")]
    Crc,
    /// The named field is out of range.
    #[error("{0} is out of range in the set-up message")]
    Field(&'static str),
}

impl Welcome {
    /// How many bytes the whole message has, from its first [`PREFIX_BYTES`].
    ///
    /// # Errors
    /// When the prefix cannot begin a message of this version.
    pub fn byte_len(prefix: &[u8; PREFIX_BYTES]) -> Result<usize, HelloError> {
        if prefix[..8] != MAGIC {
            return Err(HelloError::Magic);
        }
        let version = field!(prefix, 8, u16);
        let header_bytes = field!(prefix, 10, u16);
        let len = field!(prefix, 12, u32);
        // A refusal of another version is still a refusal: it may say why.
        let refusal =
            header_bytes == 0 && (REFUSAL_BYTES..=REFUSAL_BYTES_MAX).contains(&(len as usize));
        if version != SETUP_VERSION && !(refusal && len as usize == REFUSAL_BYTES) {
            return Err(HelloError::Version(version));
        }
        if usize::from(header_bytes) != HEADER_BYTES && !refusal {
            return Err(HelloError::HeaderBytes(header_bytes));
        }
        let shortest =
            if refusal { REFUSAL_BYTES } else { FIXED_BYTES + PATH_BYTES + 1 + CRC_BYTES };
        if (shortest..=HELLO_BYTES_MAX).contains(&(len as usize)) {
            Ok(len as usize)
        } else {
            Err(HelloError::Length(len))
        }
    }

    /// Reads a whole message.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn parse(bytes: &[u8]) -> Result<Self, HelloError> {
        let short = HelloError::Length(bytes.len() as u32);
        let prefix = bytes.first_chunk::<PREFIX_BYTES>().ok_or(short)?;
        if Self::byte_len(prefix)? != bytes.len() {
            return Err(short);
        }
        let (body, crc) = bytes.split_at(bytes.len() - CRC_BYTES);
        if crc32c(body) != field!(crc, 0, u32) {
            return Err(HelloError::Crc);
        }
        if field!(prefix, 10, u16) == 0 {
            return parse_refusal(body).map(Self::Refused);
        }
        Hello::parse_body(body).map(Self::Hello)
    }
}

impl Hello {
    fn parse_body(body: &[u8]) -> Result<Self, HelloError> {
        let family = body[24];
        let ip = parse_ip(family, &body[28..])?;
        let class = Class::from_code(body[25]).ok_or(HelloError::Field("class"))?;
        let (count, dscp) = (usize::from(body[76]), body[77]);
        let holds = |is_so, field| if is_so { Ok(()) } else { Err(HelloError::Field(field)) };
        holds(dscp <= DSCP_MAX, "dscp")?;
        holds((1..=PATHS_MAX).contains(&count), "paths")?;
        let abilities = field!(body, 46, u16);
        holds(abilities & !(CUTS_EACH_SEND | OMITS_ICRC | HAS_NICS | IS_SEALED) == 0, "abilities")?;
        let length = HelloError::Field("length");
        let behind = body.get(FIXED_BYTES + count * PATH_BYTES..).ok_or(length)?;
        let (name, behind) = split_counted(behind, 1).ok_or(length)?;
        let (nics, seal) = split_seal(behind, abilities & IS_SEALED != 0).ok_or(length)?;
        let app = AppProtocol::from_bytes(name);
        let further_addrs = match abilities & HAS_NICS {
            0 if nics.is_empty() => Vec::new(),
            0 => return Err(length),
            _ => parse_nics(family, nics)?,
        };
        let chunk_bytes_max = field!(body, 48, u32);
        holds((64..=1 << 24).contains(&chunk_bytes_max), "chunk_bytes_max")?;
        let charge_bytes = field!(body, 52, u32);
        holds(charge_bytes <= 1 << 16, "charge_bytes")?;
        let path_chunks = field!(body, 78, u16);
        holds(path_chunks > 0, "path_chunks")?;
        let paths = (0..count).map(|i| parse_path(&body[FIXED_BYTES + i * PATH_BYTES..]));
        Ok(Self {
            instance: field!(body, 16, u64),
            class,
            dscp,
            addr: SocketAddr::new(ip, field!(body, 26, u16)),
            further_addrs,
            mtu: Mtu::from_bytes(field!(body, 44, u16).into()).ok_or(HelloError::Field("mtu"))?,
            cuts_each_send: abilities & CUTS_EACH_SEND != 0,
            omits_icrc: abilities & OMITS_ICRC != 0,
            chunk_bytes_max,
            charge_bytes,
            window_bytes: field!(body, 56, u64),
            path_chunks,
            control: parse_path(&body[64..])?,
            paths: paths.collect::<Result<_, _>>()?,
            app: app.ok_or(HelloError::Field("application protocol"))?,
            seal,
        })
    }

    /// The message.
    ///
    /// # Panics
    /// With no path or more than [`PATHS_MAX`], or more NICs than [`NICS_MAX`].
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        assert!((1..=PATHS_MAX).contains(&self.paths.len()), "1 to {PATHS_MAX} paths");
        let further = &self.further_addrs;
        assert!(further.len() < NICS_MAX, "at most {NICS_MAX} NICs");
        let app = self.app.name().as_bytes();
        // An end with one NIC says what it has said before there were several.
        let nics_len = if further.is_empty() { 0 } else { 1 + further.len() * NIC_BYTES };
        let paths_len = self.paths.len() * PATH_BYTES;
        let seal_len = if self.seal.is_some() { SEAL_BYTES } else { 0 };
        let len = FIXED_BYTES + paths_len + 1 + app.len() + nics_len + seal_len + CRC_BYTES;
        let mut out = prefix(HEADER_BYTES as u16, len);
        out.extend(self.instance.to_le_bytes());
        out.extend([if self.addr.is_ipv4() { 4 } else { 6 }, self.class.code()]);
        emit_addr(&mut out, self.addr);
        out.extend((self.mtu.bytes() as u16).to_le_bytes());
        let sizes = if self.cuts_each_send { CUTS_EACH_SEND } else { 0 };
        let icrc = if self.omits_icrc { OMITS_ICRC } else { 0 };
        let nics = if further.is_empty() { 0 } else { HAS_NICS };
        let sealed = if self.seal.is_some() { IS_SEALED } else { 0 };
        out.extend((sizes | icrc | nics | sealed).to_le_bytes());
        out.extend(self.chunk_bytes_max.to_le_bytes());
        out.extend(self.charge_bytes.to_le_bytes());
        out.extend(self.window_bytes.to_le_bytes());
        emit_path(&mut out, &self.control);
        out.extend([self.paths.len() as u8, self.dscp & DSCP_MAX]);
        out.extend(self.path_chunks.to_le_bytes());
        self.paths.iter().for_each(|path| emit_path(&mut out, path));
        out.push(app.len() as u8);
        out.extend(app);
        if !further.is_empty() {
            out.push(further.len() as u8);
            further.iter().for_each(|&addr| emit_addr(&mut out, addr));
        }
        if let Some(HelloSeal { secret, salt, tag }) = &self.seal {
            [secret, salt, tag].into_iter().for_each(|part| out.extend(part));
        }
        seal(out)
    }

    /// What the tag of a sealed HELLO is of: the message up to there.
    ///
    /// # Panics
    /// As [`emit`](Self::emit).
    #[must_use]
    pub fn emit_untagged(&self) -> Vec<u8> {
        let mut out = self.emit();
        out.truncate(out.len() - CRC_BYTES - if self.seal.is_some() { TAG_BYTES } else { 0 });
        out
    }

    /// Where the device receives by a NIC.
    #[must_use]
    pub fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        core::iter::once(&self.addr).chain(&self.further_addrs).nth(nic).copied()
    }

    /// How many NICs it tells of.
    #[must_use]
    pub fn nics(&self) -> usize {
        1 + self.further_addrs.len()
    }
}

/// What a count of entries says lies behind it, and what lies behind that.
fn split_counted(bytes: &[u8], entry_bytes: usize) -> Option<(&[u8], &[u8])> {
    let (&count, behind) = bytes.split_first()?;
    behind.split_at_checked(usize::from(count) * entry_bytes)
}

/// What a HELLO says of its seal, and what stands in front of that.
fn split_seal(bytes: &[u8], is_sealed: bool) -> Option<(&[u8], Option<HelloSeal>)> {
    if !is_sealed {
        return Some((bytes, None));
    }
    let (rest, seal) = bytes.split_last_chunk::<SEAL_BYTES>()?;
    let part = |at: usize| core::array::from_fn(|i| seal[at + i]);
    Some((rest, Some(HelloSeal { secret: part(0), salt: part(16), tag: part(32) })))
}

fn parse_ip(family: u8, bytes: &[u8]) -> Result<IpAddr, HelloError> {
    match family {
        4 => Ok(IpAddr::V4(Ipv4Addr::from(field!(bytes, 0, u32).to_le_bytes()))),
        6 => Ok(IpAddr::V6(Ipv6Addr::from(field!(bytes, 0, u128).to_le_bytes()))),
        _ => Err(HelloError::Field("address family")),
    }
}

fn parse_nics(family: u8, bytes: &[u8]) -> Result<Vec<SocketAddr>, HelloError> {
    match split_counted(bytes, NIC_BYTES) {
        Some((nics, [])) if !nics.is_empty() && nics.len() < NICS_MAX * NIC_BYTES => {
            let addr =
                |nic: &[u8]| Ok(SocketAddr::new(parse_ip(family, &nic[2..])?, field!(nic, 0, u16)));
            nics.chunks_exact(NIC_BYTES).map(addr).collect()
        }
        _ => Err(HelloError::Field("NICs")),
    }
}

fn emit_addr(out: &mut Vec<u8>, addr: SocketAddr) {
    let ip = match addr.ip() {
        IpAddr::V4(ip) => u128::from(u32::from_le_bytes(ip.octets())),
        IpAddr::V6(ip) => u128::from_le_bytes(ip.octets()),
    };
    out.extend(addr.port().to_le_bytes());
    out.extend(ip.to_le_bytes());
}

fn parse_path(bytes: &[u8]) -> Result<HelloPath, HelloError> {
    let (qp_num, psn) = (field!(bytes, 0, u32) & QpNum::MAX.0, field!(bytes, 4, u32));
    if psn >> Psn::BITS != 0 {
        return Err(HelloError::Field("PSN"));
    }
    Ok(HelloPath {
        carrier: Carrier::from_code(bytes[3]).ok_or(HelloError::Field("carrier"))?,
        qp_num: QpNum(qp_num),
        psn: Psn::new(psn),
        generation: field!(bytes, 8, u32),
    })
}

fn emit_path(out: &mut Vec<u8>, path: &HelloPath) {
    let qp_num = path.qp_num.0 & QpNum::MAX.0;
    out.extend((qp_num | (path.carrier as u32) << 24).to_le_bytes());
    out.extend(path.psn.value().to_le_bytes());
    out.extend(path.generation.to_le_bytes());
}

pub(super) fn prefix(header_bytes: u16, len: usize) -> Vec<u8> {
    let mut out = [0; PREFIX_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    put!(out, 8, SETUP_VERSION);
    put!(out, 10, header_bytes);
    put!(out, 12, len as u32);
    let mut message = Vec::with_capacity(len);
    message.extend(out);
    message
}

pub(super) fn seal(mut message: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&message);
    message.extend(crc.to_le_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(addr: &str) -> Hello {
        let path = HelloPath {
            carrier: Carrier::Uc,
            qp_num: QpNum(0x12_3456),
            psn: Psn::new(0xab_cdef),
            generation: 77,
        };
        Hello {
            instance: 0x0102_0304_0506_0708,
            class: Class::Copper,
            dscp: 0x2a,
            addr: addr.parse().unwrap(),
            further_addrs: Vec::new(),
            mtu: Mtu::Mtu4096,
            cuts_each_send: true,
            omits_icrc: true,
            chunk_bytes_max: 57_344,
            charge_bytes: 1_280,
            window_bytes: 1 << 20,
            path_chunks: 4096,
            control: path,
            paths: alloc::vec![path, HelloPath { carrier: Carrier::Rc, qp_num: QpNum(2), ..path }],
            app: AppProtocol::named("app/7"),
            seal: None,
        }
    }

    #[test]
    fn a_seal_ends_a_hello_and_its_tag_is_of_all_in_front_of_it() {
        let seal = Some(HelloSeal { secret: [1; 16], salt: [2; 16], tag: [3; 16] });
        let further_addrs = alloc::vec!["10.1.0.1:4791".parse().unwrap()];
        for further_addrs in [Vec::new(), further_addrs] {
            let open = Hello { further_addrs, ..sample("10.0.0.1:4791") };
            let sealed = Hello { seal, ..open.clone() };
            let (bytes, without) = (sealed.emit(), open.emit());
            assert_eq!(bytes.len(), without.len() + SEAL_BYTES);
            assert_eq!(bytes[46], without[46] | 8);
            assert_eq!(Welcome::byte_len(bytes.first_chunk().unwrap()), Ok(bytes.len()));
            assert_eq!(Welcome::parse(&bytes), Ok(Welcome::Hello(sealed.clone())));
            let tag_at = bytes.len() - CRC_BYTES - TAG_BYTES;
            assert_eq!(sealed.emit_untagged(), bytes[..tag_at]);
            assert_eq!(bytes[tag_at..tag_at + TAG_BYTES], [3; 16]);
            // Without the bit it is too long, and with the bit and nothing there too short.
            for (mut wrong, bit) in [(bytes, false), (without, true)] {
                wrong[46] = if bit { wrong[46] | 8 } else { wrong[46] & !8 };
                wrong.truncate(wrong.len() - CRC_BYTES);
                assert!(Welcome::parse(&super::seal(wrong)).is_err());
            }
        }
    }

    #[test]
    fn what_was_emitted_is_parsed_for_both_address_families() {
        for addr in ["127.0.0.1:4791", "[fd00::1]:65535"] {
            let hello = sample(addr);
            let bytes = hello.emit();
            assert_eq!(Welcome::byte_len(bytes.first_chunk().unwrap()), Ok(bytes.len()));
            assert_eq!(Welcome::parse(&bytes), Ok(Welcome::Hello(hello)));
        }
        for name in ["", "x", "0123456789abcdefghijklmnopqrstuv"] {
            let hello = Hello { app: AppProtocol::named(name), ..sample("10.0.0.1:1") };
            assert_eq!(Welcome::parse(&hello.emit()), Ok(Welcome::Hello(hello)));
            let refusal = Refusal::App { served: AppProtocol::named(name) };
            assert_eq!(Welcome::parse(&refusal.emit()), Ok(Welcome::Refused(refusal)));
        }
        let paths = Refusal::Paths { most: 4 };
        let plain = [Refusal::Version, Refusal::ShuttingDown, Refusal::Class, Refusal::Address];
        let newer = [Refusal::Resources, Refusal::Family, paths];
        let seals = [
            Refusal::Open,
            Refusal::UnknownSecret,
            Refusal::Forged,
            Refusal::Sealed { encrypts: true },
            Refusal::Sealed { encrypts: false },
        ];
        let carriers = Carrier::ALL.map(|wanted| Refusal::Carrier { wanted });
        let bits = [(false, false), (false, true), (true, false), (true, true)];
        let fallbacks = bits.map(|(rc, tcp)| Refusal::Fallback { rc, tcp });
        let all = plain.into_iter().chain(newer).chain(seals).chain(carriers).chain(fallbacks);
        for refusal in all {
            assert_eq!(Welcome::parse(&refusal.emit()), Ok(Welcome::Refused(refusal)));
        }
        for most in [0, PATHS_MAX as u8 + 1] {
            let wrong = Refusal::Paths { most }.emit();
            assert_eq!(Welcome::parse(&wrong), Err(HelloError::Field("refusal code")));
        }
    }

    #[test]
    fn further_nics_stand_behind_the_name_and_are_as_many_as_it_says() {
        for (first, further) in [
            ("10.0.0.1:4791", &["10.1.0.1:4791", "10.2.0.1:9"][..]),
            ("[fd00::1]:1", &["[fd01::1]:2"]),
        ] {
            let further_addrs = further.iter().map(|addr| addr.parse().unwrap()).collect();
            let hello = Hello { further_addrs, ..sample(first) };
            let (bytes, one) = (hello.emit(), sample(first).emit());
            assert_eq!(bytes.len(), one.len() + 1 + 18 * further.len());
            assert_eq!(bytes[46], one[46] | 4);
            assert_eq!(Welcome::parse(&bytes), Ok(Welcome::Hello(hello.clone())));
            assert_eq!(
                (hello.nics(), hello.nic_addr(1)),
                (1 + further.len(), further[0].parse().ok())
            );
            let nics = one.len() - CRC_BYTES;
            for count in [0, further.len() as u8 + 1, 4, 255] {
                let mut wrong = bytes.clone();
                wrong[nics] = count;
                wrong.truncate(wrong.len() - CRC_BYTES);
                assert_eq!(Welcome::parse(&seal(wrong)), Err(HelloError::Field("NICs")));
            }
            let mut unsaid = bytes.clone();
            unsaid[46] &= !4;
            unsaid.truncate(unsaid.len() - CRC_BYTES);
            assert_eq!(Welcome::parse(&seal(unsaid)), Err(HelloError::Field("length")));
        }
    }

    #[test]
    fn a_hello_is_these_bytes() {
        let mut hello = sample("10.1.2.3:4791");
        hello.paths.truncate(1);
        let bytes = hello.emit();
        #[rustfmt::skip]
        let golden: [u8; 98] = [
            b'T', b'O', b'W', b'P', b'A', b'T', b'H', 0, 6, 0, 64, 0, 102, 0, 0, 0,
            8, 7, 6, 5, 4, 3, 2, 1, 4, 2, 0xb7, 0x12, 10, 1, 2, 3,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 3, 0,
            0, 0xe0, 0, 0, 0, 5, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0,
            0x56, 0x34, 0x12, 0, 0xef, 0xcd, 0xab, 0, 77, 0, 0, 0, 1, 0x2a, 0, 0x10,
            0x56, 0x34, 0x12, 0, 0xef, 0xcd, 0xab, 0, 77, 0, 0, 0, 5, b'a', b'p', b'p',
            b'/', b'7',
        ];
        assert_eq!((bytes.len(), &bytes[..98]), (102, &golden[..]));
    }

    #[test]
    fn a_class_or_abilities_or_a_dscp_that_are_none_are_refused() {
        for (at, name) in [(25, "class"), (46, "abilities"), (77, "dscp")] {
            let mut bytes = sample("127.0.0.1:4791").emit();
            bytes[at] = 64;
            bytes.truncate(bytes.len() - CRC_BYTES);
            assert_eq!(Welcome::parse(&seal(bytes)), Err(HelloError::Field(name)));
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let mut bytes = sample("127.0.0.1:4791").emit();
        bytes.truncate(bytes.len() - CRC_BYTES);
        *bytes.last_mut().unwrap() = b'\n';
        let wrong = HelloError::Field("application protocol");
        assert_eq!(Welcome::parse(&seal(bytes)), Err(wrong));
        let served = AppProtocol::named("app/7");
        let mut bytes = Refusal::App { served }.emit();
        bytes.truncate(bytes.len() - CRC_BYTES);
        *bytes.last_mut().unwrap() = 0x7f;
        let wrong = HelloError::Field("refusal code");
        assert_eq!(Welcome::parse(&seal(bytes)), Err(wrong));
    }

    #[test]
    fn a_refusal_of_another_version_is_read_and_ours_can_be_read_by_it() {
        // Version 2 has refusals of these 24 bytes.
        let ours = Refusal::Version.emit();
        assert_eq!((ours.len(), ours[16]), (24, 1));
        let mut theirs = ours;
        put!(theirs, 8, 2u16);
        theirs.truncate(20);
        let theirs = seal(theirs);
        assert_eq!(Welcome::parse(&theirs), Ok(Welcome::Refused(Refusal::Version)));
    }

    #[test]
    fn another_version_is_named_before_anything_else_is_believed() {
        let mut bytes = sample("127.0.0.1:1").emit();
        for peer in [2u16, 3, 4, 5, 7] {
            put!(bytes, 8, peer);
            assert_eq!(Welcome::parse(&bytes), Err(HelloError::Version(peer)));
        }
        bytes[0] = b'X';
        assert_eq!(Welcome::parse(&bytes), Err(HelloError::Magic));
    }

    #[test]
    fn every_flipped_bit_and_every_other_length_is_noticed() {
        let bytes = sample("127.0.0.1:4791").emit();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Welcome::parse(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Welcome::parse(&bytes[..len]).is_err(), "length {len}");
        }
    }
}
