//! The 32-byte header in front of every message of this layer, as bytes.

use crate::fate::Fate;
use crate::limits::{BODY_BYTES_MAX, HEADER_BYTES, PUSH_BODY_BYTES_MAX};
use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};

/// The version of this layout.
pub const VERSION: u8 = 1;

const FLAG_INLINE: u16 = 1;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Asks for something.
    Request = 1,
    /// Answers a request.
    Response = 2,
    /// Says that the answer to a request is not wanted any more, and asks what became of it.
    Cancel = 3,
    /// Says what became of a request that was cancelled.
    Fate = 4,
    /// Tells a client something that it did not ask for, and that nobody answers.
    Push = 5,
}

/// How a request ended, as the rpc layer sees it.
///
/// Codes from [`APPLICATION`](Self::APPLICATION) on belong to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// Done: the body is the method's own.
    pub const OK: Self = Self(0);
    /// No such method.
    pub const UNSUPPORTED: Self = Self(1);
    /// The request breaks the layout.
    pub const MALFORMED: Self = Self(2);
    /// As many requests as the server takes from one link are under way.
    pub const BUSY: Self = Self(3);
    /// The request is longer than the server holds whole.
    pub const TOO_LONG: Self = Self(4);
    /// The header has a version that the server does not speak.
    pub const VERSION: Self = Self(5);
    /// The service refused or failed: the body says how.
    pub const APPLICATION: Self = Self(64);

    /// What a status says of the operation by itself.
    #[must_use]
    pub fn fate(self) -> Fate {
        match self {
            Self::OK => Fate::Happened,
            Self(code) if code < Self::APPLICATION.0 => Fate::DidNotHappen,
            _ => Fate::Unknown,
        }
    }
}

/// The header, checked (docs/storage-protocol.md section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the message is.
    pub kind: Kind,
    /// What is asked for, or told of; a response repeats it.
    pub method: u16,
    /// How it ended; zero but in responses, and in a [`Kind::Fate`] the code of the fate.
    pub status: Status,
    /// The data follows the body in the first segment.
    pub inline: bool,
    /// The request's number, chosen by the client; a response repeats it. Zero in pushes.
    pub request: u64,
    /// Bytes of the body behind the header.
    pub body_len: u32,
    /// Bytes of the data.
    pub data_len: u32,
    /// What is left of the caller's time, in microseconds; 0: no limit. Zero but in requests.
    pub timeout_us: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Raw {
    version: u8,
    kind: u8,
    method: u16,
    status: u16,
    flags: u16,
    request: u64,
    body_len: u32,
    data_len: u32,
    timeout_us: u32,
    reserved: u32,
}

const _: () = {
    assert!(size_of::<Raw>() == HEADER_BYTES);
    assert!(offset_of!(Raw, method) == 2);
    assert!(offset_of!(Raw, status) == 4);
    assert!(offset_of!(Raw, flags) == 6);
    assert!(offset_of!(Raw, request) == 8);
    assert!(offset_of!(Raw, body_len) == 16);
    assert!(offset_of!(Raw, data_len) == 20);
    assert!(offset_of!(Raw, timeout_us) == 24);
    assert!(offset_of!(Raw, reserved) == 28);
};

/// Which field of a message is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer bytes than a header.
    #[error("{0} bytes are no rpc header, which has 32")]
    Short(usize),
    /// Another version of the layout.
    #[error("rpc version {0}, and this side speaks 1: update the older side")]
    Version(u8),
    /// A kind that there is not.
    #[error("no rpc message is of kind {0}")]
    Kind(u8),
    /// Flags that have no meaning yet.
    #[error("rpc flags {0:#06x} have no meaning in this version")]
    Flags(u16),
    /// Bytes that must be zero.
    #[error("the reserved bytes of an rpc header are not zero")]
    Reserved,
    /// A field that this kind has no use for.
    #[error("the rpc header of a {kind:?} sets its {field}")]
    Unexpected {
        /// The kind.
        kind: Kind,
        /// The field.
        field: &'static str,
    },
    /// A body beyond the limit.
    #[error("a body of {0} bytes is longer than any")]
    BodyLen(u32),
    /// Header, body and data do not add up to the message.
    #[error("the header describes {described} bytes, the message has {message}")]
    Length {
        /// What the header adds up to.
        described: u64,
        /// What arrived.
        message: u64,
    },
}

impl Header {
    /// Bytes of the whole message.
    #[must_use]
    pub fn message_len(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.body_len) + u64::from(self.data_len)
    }

    /// The header as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        bytemuck::cast(Raw {
            version: VERSION,
            kind: self.kind as u8,
            method: self.method.to_le(),
            status: self.status.0.to_le(),
            flags: (if self.inline { FLAG_INLINE } else { 0 }).to_le(),
            request: self.request.to_le(),
            body_len: self.body_len.to_le(),
            data_len: self.data_len.to_le(),
            timeout_us: self.timeout_us.to_le(),
            reserved: 0,
        })
    }

    /// The header at the start of `bytes`; what follows it is not looked at.
    ///
    /// # Errors
    /// [`HeaderError`] with the field that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let first = bytes.first_chunk::<HEADER_BYTES>().ok_or(HeaderError::Short(bytes.len()))?;
        let raw: Raw = bytemuck::pod_read_unaligned(first);
        if raw.version != VERSION {
            return Err(HeaderError::Version(raw.version));
        }
        let kind = match raw.kind {
            1 => Kind::Request,
            2 => Kind::Response,
            3 => Kind::Cancel,
            4 => Kind::Fate,
            5 => Kind::Push,
            other => return Err(HeaderError::Kind(other)),
        };
        let flags = u16::from_le(raw.flags);
        if flags & !FLAG_INLINE != 0 {
            return Err(HeaderError::Flags(flags));
        }
        if raw.reserved != 0 {
            return Err(HeaderError::Reserved);
        }
        let header = Self {
            kind,
            method: u16::from_le(raw.method),
            status: Status(u16::from_le(raw.status)),
            inline: flags & FLAG_INLINE != 0,
            request: u64::from_le(raw.request),
            body_len: u32::from_le(raw.body_len),
            data_len: u32::from_le(raw.data_len),
            timeout_us: u32::from_le(raw.timeout_us),
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), HeaderError> {
        let kind = self.kind;
        let unexpected = |field| Err(HeaderError::Unexpected { kind, field });
        let status_fits = match kind {
            Kind::Request | Kind::Cancel | Kind::Push => self.status == Status::OK,
            Kind::Response => true,
            Kind::Fate => Fate::of_code(self.status.0).is_some(),
        };
        if !status_fits {
            return unexpected("status");
        }
        if self.timeout_us != 0 && kind != Kind::Request {
            return unexpected("timeout");
        }
        if self.request != 0 && kind == Kind::Push {
            return unexpected("request number");
        }
        if self.data_len != 0 && kind == Kind::Push {
            return unexpected("data");
        }
        let bare = matches!(kind, Kind::Cancel | Kind::Fate);
        if bare && (self.body_len, self.data_len) != (0, 0) {
            return unexpected("lengths");
        }
        if self.inline && self.data_len == 0 {
            return unexpected("inline flag without data");
        }
        let body_max = if kind == Kind::Push { PUSH_BODY_BYTES_MAX } else { BODY_BYTES_MAX };
        if self.body_len as usize > body_max {
            return Err(HeaderError::BodyLen(self.body_len));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    const HEADER: Header = Header {
        kind: Kind::Request,
        method: 0x0203,
        status: Status::OK,
        inline: true,
        request: 0x1112_1314_1516_1718,
        body_len: 0x2122,
        data_len: 0x3132_3334,
        timeout_us: 0x4142_4344,
    };

    #[rustfmt::skip]
    const GOLDEN: [u8; HEADER_BYTES] = [
        0x01, 0x01, 0x03, 0x02, 0x00, 0x00, 0x01, 0x00,
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
        0x22, 0x21, 0x00, 0x00, 0x34, 0x33, 0x32, 0x31,
        0x44, 0x43, 0x42, 0x41, 0x00, 0x00, 0x00, 0x00,
    ];

    const PUSH: Header = Header {
        kind: Kind::Push,
        method: 0x0203,
        status: Status::OK,
        inline: false,
        request: 0,
        body_len: PUSH_BODY_BYTES_MAX as u32,
        data_len: 0,
        timeout_us: 0,
    };

    #[rustfmt::skip]
    const GOLDEN_PUSH: [u8; HEADER_BYTES] = [
        0x01, 0x05, 0x03, 0x02, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn the_golden_bytes_are_emitted_and_parsed() {
        for (header, golden) in [(HEADER, GOLDEN), (PUSH, GOLDEN_PUSH)] {
            assert_eq!(header.emit(), golden);
            assert_eq!(Header::parse(&golden), Ok(header));
        }
    }

    #[test]
    fn a_push_with_a_field_that_it_has_no_use_for_is_refused() {
        let with = |at: usize, byte: u8| {
            let mut bytes = GOLDEN_PUSH;
            bytes[at] = byte;
            Header::parse(&bytes)
        };
        let unexpected = |field| Err(HeaderError::Unexpected { kind: Kind::Push, field });
        assert_eq!(with(4, 1), unexpected("status"));
        assert_eq!(with(8, 1), unexpected("request number"));
        assert_eq!(with(15, 1), unexpected("request number"));
        assert_eq!(with(16, 1), Err(HeaderError::BodyLen(1025)));
        assert_eq!(with(20, 1), unexpected("data"));
        assert_eq!(with(24, 1), unexpected("timeout"));
        assert_eq!(with(6, 1), unexpected("inline flag without data"));
        assert_eq!(with(28, 1), Err(HeaderError::Reserved));
    }

    #[test]
    fn each_wrong_field_is_named() {
        let with = |at: usize, byte: u8| {
            let mut bytes = GOLDEN;
            bytes[at] = byte;
            Header::parse(&bytes)
        };
        assert_eq!(with(0, 2), Err(HeaderError::Version(2)));
        assert_eq!(with(1, 6), Err(HeaderError::Kind(6)));
        assert_eq!(with(1, 0), Err(HeaderError::Kind(0)));
        assert_eq!(with(6, 3), Err(HeaderError::Flags(3)));
        assert_eq!(with(28, 1), Err(HeaderError::Reserved));
        assert_eq!(with(31, 1), Err(HeaderError::Reserved));
        let unexpected = |kind, field| Err(HeaderError::Unexpected { kind, field });
        assert_eq!(with(4, 1), unexpected(Kind::Request, "status"));
        assert_eq!(with(1, 2), unexpected(Kind::Response, "timeout"));
        assert_eq!(with(18, 1), Err(HeaderError::BodyLen(0x0001_2122)));
        assert_eq!(Header::parse(&GOLDEN[..31]), Err(HeaderError::Short(31)));
        // A fate without a meaning.
        for code in [0, 4] {
            let fate = Header { kind: Kind::Fate, status: Status(code), timeout_us: 0, ..HEADER };
            assert_eq!(Header::parse(&fate.emit()), unexpected(Kind::Fate, "status"));
        }
        let cancel = Header { kind: Kind::Cancel, timeout_us: 0, inline: false, ..HEADER };
        assert_eq!(Header::parse(&cancel.emit()), unexpected(Kind::Cancel, "lengths"));
    }

    #[test]
    fn whatever_parses_is_emitted_as_it_came() {
        let seed = 11;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut parsed = 0;
        for _ in 0..200_000 {
            let mut bytes = if prng.below(2) == 0 { GOLDEN } else { GOLDEN_PUSH };
            for _ in 0..prng.below(4) {
                bytes[prng.below(HEADER_BYTES as u64) as usize] = prng.next_u32() as u8;
            }
            if let Ok(header) = Header::parse(&bytes) {
                assert_eq!(header.emit(), bytes);
                parsed += 1;
            }
        }
        assert!(parsed > 1000, "only {parsed} mutants parsed: the test proves little");
    }
}
