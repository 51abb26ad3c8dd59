//! The header of reads, writes and clears (docs/storage-protocol.md section 4).

use super::head::{Head, HeadRaw, crc_count};
use super::io::crcs;
use super::{WireError, check_chain, check_zero, open, seal};
use crate::change::{Clear, Terms};
use crate::limits::IO_HEADER_BYTES;
use crate::slice::{ChunkId, Span};
use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};
use towpath_base::crc::crc32c;
use towpath_transport::Class;

const KIND_WRITE: u16 = 1;
const KIND_READ: u16 = 2;
const KIND_TRIM: u16 = 4;
const KIND_ZERO: u16 = 5;
const KIND_TRUNCATE: u16 = 6;

/// The chunk must have the version that is named.
const FLAG_VERSION: u32 = 1;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RequestRaw {
    head: HeadRaw,
    epoch: u64,
    tenant: u32,
    class: u8,
    reserved_0: [u8; 3],
    expected: u64,
    stamp: u64,
    chain_version: u64,
    reserved_1: [u64; 5],
    reserved_2: u32,
    header_crc: u32,
}

const _: () = {
    assert!(size_of::<RequestRaw>() == IO_HEADER_BYTES);
    assert!(offset_of!(RequestRaw, epoch) == 40);
    assert!(offset_of!(RequestRaw, tenant) == 48);
    assert!(offset_of!(RequestRaw, class) == 52);
    assert!(offset_of!(RequestRaw, reserved_0) == 53);
    assert!(offset_of!(RequestRaw, expected) == 56);
    assert!(offset_of!(RequestRaw, stamp) == 64);
    assert!(offset_of!(RequestRaw, chain_version) == 72);
    assert!(offset_of!(RequestRaw, reserved_1) == 80);
    assert!(offset_of!(RequestRaw, reserved_2) == 120);
    assert!(offset_of!(RequestRaw, header_crc) == 124);
};

/// Over which link a request was meant to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// The epoch with which the link entered its session; 0 where it entered none.
    pub epoch: u64,
    /// The [number](tenant_number) of the tenant that the link has joined as; 0: not said.
    pub tenant: u32,
    /// The class of the link: 1 Silver, 2 Gold, 3 Copper; 0: not said.
    pub class: u8,
}

/// The number that stands for a tenant in headers.
#[must_use]
pub fn tenant_number(name: &str) -> u32 {
    // Zero says nothing.
    crc32c(name.as_bytes()).max(1)
}

/// The number that stands for a class in headers.
#[must_use]
pub fn class_number(class: Class) -> u8 {
    match class {
        Class::Silver => 1,
        Class::Gold => 2,
        Class::Copper => 3,
    }
}

/// A write: where its data goes. One checksum per touched slice follows
/// (docs/storage-protocol.md section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHeader {
    /// The chunk.
    pub chunk: ChunkId,
    /// First byte in the chunk.
    pub offset: u64,
    /// Bytes, at least one.
    pub length: u32,
    /// Over which link.
    pub sender: Sender,
    /// On what terms.
    pub terms: Terms,
}

/// A read: what is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadHeader {
    /// The chunk.
    pub chunk: ChunkId,
    /// First byte in the chunk.
    pub offset: u64,
    /// Bytes, at least one.
    pub length: u32,
    /// Over which link.
    pub sender: Sender,
}

/// A trim, a zero or a truncate: which bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClearHeader {
    /// The chunk.
    pub chunk: ChunkId,
    /// Which bytes; of a range at most 2^32 - 1.
    pub clear: Clear,
    /// Over which link.
    pub sender: Sender,
    /// On what terms.
    pub terms: Terms,
}

/// What the headers have in common.
#[derive(Clone, Copy)]
struct Common {
    head: Head,
    sender: Sender,
    terms: Terms,
}

impl Common {
    /// Of a kind, with so many checksums behind it.
    fn new(
        (kind, crc_count): (u16, u32),
        (chunk, offset, length): (ChunkId, u64, u32),
        sender: Sender,
        terms: Terms,
    ) -> Self {
        let flags = if terms.version.is_some() { FLAG_VERSION } else { 0 };
        let head = Head { chunk, offset, length, crc_count, kind, flags };
        Self { head, sender, terms }
    }

    fn emit(&self) -> [u8; IO_HEADER_BYTES] {
        let Self { head, sender, terms } = self;
        let mut bytes: [u8; IO_HEADER_BYTES] = bytemuck::cast(RequestRaw {
            head: head.to_raw(),
            epoch: sender.epoch.to_le(),
            tenant: sender.tenant.to_le(),
            class: sender.class,
            expected: terms.version.unwrap_or(0).to_le(),
            stamp: terms.stamp.to_le(),
            chain_version: u64::from(terms.chain).to_le(),
            ..RequestRaw::zeroed()
        });
        seal(&mut bytes);
        bytes
    }

    fn parse(bytes: &[u8], is_expected: impl Fn(u16) -> bool, of: u16) -> Result<Self, WireError> {
        let header = open::<IO_HEADER_BYTES>(bytes)?;
        let raw: RequestRaw = bytemuck::pod_read_unaligned(header);
        let head = Head::of(raw.head)?;
        let Head { kind, flags, .. } = head;
        if !is_expected(kind) {
            return Err(WireError::Kind { found: kind, expected: of });
        }
        check_zero(flags & !FLAG_VERSION, "a flag")?;
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        for (is_zero, what) in [
            (is_zero(&raw.reserved_0) && raw.reserved_1 == [0; 5], "a reserved byte"),
            (raw.reserved_2 == 0, "a reserved byte"),
            (raw.expected == 0 || flags & FLAG_VERSION != 0, "a version without its flag"),
        ] {
            if !is_zero {
                return Err(WireError::Reserved(what));
            }
        }
        let expected = u64::from_le(raw.expected);
        let version = (flags & FLAG_VERSION != 0).then_some(expected);
        let tenant = u32::from_le(raw.tenant);
        let chain = check_chain(u64::from_le(raw.chain_version))?;
        let common = Self {
            head,
            sender: Sender { epoch: u64::from_le(raw.epoch), tenant, class: raw.class },
            terms: Terms { version, stamp: u64::from_le(raw.stamp), chain },
        };
        common.check()?;
        Ok(common)
    }

    fn check(&self) -> Result<(), WireError> {
        let Head { kind, length, .. } = self.head;
        let is_right = match kind {
            KIND_TRUNCATE => length == 0,
            KIND_WRITE | KIND_READ => self.head.is_one_operation(),
            _ => length > 0,
        };
        if !is_right {
            return Err(WireError::Length(length));
        }
        self.head.check_range(kind == KIND_WRITE)?;
        if kind == KIND_READ && self.terms != Terms::default() {
            return Err(WireError::Reserved("a term of a read"));
        }
        Ok(())
    }
}

impl WriteHeader {
    /// The slices that it touches.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.offset, self.length.into())
    }

    /// The header as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; IO_HEADER_BYTES] {
        let &Self { chunk, offset, length, sender, terms } = self;
        let kind = (KIND_WRITE, crc_count(offset, length));
        Common::new(kind, (chunk, offset, length), sender, terms).emit()
    }

    /// The header and the checksums of a write's body.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<(Self, Vec<u32>), WireError> {
        let Common { head, sender, terms } =
            Common::parse(body, |kind| kind == KIND_WRITE, KIND_WRITE)?;
        let Head { chunk, offset, length, crc_count, .. } = head;
        let header = Self { chunk, offset, length, sender, terms };
        Ok((header, crcs::<IO_HEADER_BYTES>(body, crc_count)?))
    }
}

impl ReadHeader {
    /// The slices that it touches.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.offset, self.length.into())
    }

    /// The header as bytes: the whole body of a read.
    #[must_use]
    pub fn emit(&self) -> [u8; IO_HEADER_BYTES] {
        let &Self { chunk, offset, length, sender } = self;
        Common::new((KIND_READ, 0), (chunk, offset, length), sender, Terms::default()).emit()
    }

    /// The body of a read.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let Common { head, sender, .. } = Common::parse(body, |kind| kind == KIND_READ, KIND_READ)?;
        let Head { chunk, offset, length, crc_count, .. } = head;
        crcs::<IO_HEADER_BYTES>(body, crc_count)?;
        Ok(Self { chunk, offset, length, sender })
    }
}

impl ClearHeader {
    /// The header as bytes: the whole body of the request. A range that is too long for it is cut
    /// short: whoever makes one sees to that.
    #[must_use]
    pub fn emit(&self) -> [u8; IO_HEADER_BYTES] {
        let &Self { chunk, clear, sender, terms } = self;
        let short = |byte_len| u32::try_from(byte_len).unwrap_or(u32::MAX);
        let (kind, offset, length) = match clear {
            Clear::Trim { offset, byte_len } => (KIND_TRIM, offset, short(byte_len)),
            Clear::Zero { offset, byte_len } => (KIND_ZERO, offset, short(byte_len)),
            Clear::Truncate { byte_len } => (KIND_TRUNCATE, byte_len, 0),
        };
        Common::new((kind, 0), (chunk, offset, length), sender, terms).emit()
    }

    /// The body of a trim, a zero or a truncate.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let is_clear = |kind| matches!(kind, KIND_TRIM | KIND_ZERO | KIND_TRUNCATE);
        let Common { head, sender, terms } = Common::parse(body, is_clear, KIND_TRIM)?;
        let Head { kind, chunk, offset, length, .. } = head;
        crcs::<IO_HEADER_BYTES>(body, 0)?;
        let byte_len = length.into();
        let clear = match kind {
            KIND_TRIM => Clear::Trim { offset, byte_len },
            KIND_ZERO => Clear::Zero { offset, byte_len },
            _ => Clear::Truncate { byte_len: offset },
        };
        Ok(Self { chunk, clear, sender, terms })
    }
}
