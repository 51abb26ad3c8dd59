//! A request as bytes.

use super::{Method, REQUEST_HEADER_BYTES, VERSION, WireError, bytes_at};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::store::When;

const FLAG_ABSENT: u16 = 1;
const FLAG_PRESENT: u16 = 2;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// Put a value.
    Set {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// On which condition.
        when: When,
        /// After how many milliseconds it is there no more; 0: never.
        expire_ms: u32,
    },
    /// Read a value.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Remove a key.
    Del {
        /// The key.
        key: &'a [u8],
    },
    /// An answer, and to be known from now on.
    Ping,
    /// List entries.
    Dump,
    /// Remove all.
    Reset,
    /// End the connection.
    Exit,
    /// Set an option of the store.
    SetOpt {
        /// Its name.
        name: &'a [u8],
        /// Its value, as text.
        value: &'a [u8],
    },
    /// Add to a number.
    Incr {
        /// The key.
        key: &'a [u8],
        /// What is added.
        by: i64,
    },
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Who asks; 0: nobody whose repetitions are known.
    pub client: u64,
    /// The client's number of it, from 1 on.
    pub sequence: u64,
    /// What is asked for.
    pub ask: Ask<'a>,
}

impl Ask<'_> {
    /// Its method.
    #[must_use]
    pub fn method(&self) -> Method {
        match self {
            Self::Set { .. } => Method::Set,
            Self::Get { .. } => Method::Get,
            Self::Del { .. } => Method::Del,
            Self::Ping => Method::Ping,
            Self::Dump => Method::Dump,
            Self::Reset => Method::Reset,
            Self::Exit => Method::Exit,
            Self::SetOpt { .. } => Method::SetOpt,
            Self::Incr { .. } => Method::Incr,
        }
    }

    /// Whether it changes anything: then a repetition must not be carried out again.
    #[must_use]
    pub fn is_change(&self) -> bool {
        match self.method() {
            Method::Set | Method::Del | Method::Reset | Method::SetOpt | Method::Incr => true,
            Method::Get | Method::Ping | Method::Dump | Method::Exit | Method::Unknown => false,
        }
    }
}

impl<'a> Request<'a> {
    /// Appends its bytes. Key and value are within their limits, or the other side refuses them.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (mut flags, mut expires) = (0, 0);
        let number;
        let (key, value): (&[u8], &[u8]) = match &self.ask {
            Ask::Set { key, value, when, expire_ms } => {
                expires = *expire_ms;
                flags = match when {
                    When::Always => 0,
                    When::Absent => FLAG_ABSENT,
                    When::Present => FLAG_PRESENT,
                };
                (key, value)
            }
            Ask::Get { key } | Ask::Del { key } => (key, &[]),
            Ask::SetOpt { name, value } => (name, value),
            Ask::Incr { key, by } => {
                number = by.to_le_bytes();
                (key, &number)
            }
            Ask::Ping | Ask::Dump | Ask::Reset | Ask::Exit => (&[], &[]),
        };
        out.extend_from_slice(&[VERSION, self.ask.method() as u8]);
        out.extend_from_slice(&u16::to_le_bytes(flags));
        out.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&expires.to_le_bytes());
        out.extend_from_slice(&self.client.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// The request at the start of `bytes`, and how many of them it is.
    ///
    /// # Errors
    /// [`WireError`]; [`WireError::Short`] where more have to come.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), WireError> {
        let [version, method, flags @ .., key_low, key_high, zero_low, zero_high] =
            bytes_at::<8>(bytes, 0)?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        if [zero_low, zero_high] != [0; 2] {
            return Err(WireError::Reserved);
        }
        let key_len = usize::from(u16::from_le_bytes([key_low, key_high]));
        if key_len > KEY_BYTES_MAX {
            return Err(WireError::TooLong("key"));
        }
        let value_len = u32::from_le_bytes(bytes_at(bytes, 8)?);
        let value_len = usize::try_from(value_len).unwrap_or(usize::MAX);
        if value_len > VALUE_BYTES_MAX {
            return Err(WireError::TooLong("value"));
        }
        let expire_ms = u32::from_le_bytes(bytes_at(bytes, 12)?);
        let client = u64::from_le_bytes(bytes_at(bytes, 16)?);
        let sequence = u64::from_le_bytes(bytes_at(bytes, 24)?);
        let head = Head { method, flags: u16::from_le_bytes(flags), expire_ms };
        head.check(key_len, value_len)?;
        let len = REQUEST_HEADER_BYTES + key_len + value_len;
        let body = bytes.get(REQUEST_HEADER_BYTES..len).ok_or(WireError::Short(len))?;
        let (key, value) = body.split_at(key_len);
        Ok((Self { client, sequence, ask: head.ask(key, value)? }, len))
    }
}

/// The fields that say what a method means.
struct Head {
    method: u8,
    flags: u16,
    expire_ms: u32,
}

impl Head {
    /// Refuses what no body makes sound, before the body is waited for.
    fn check(&self, key_len: usize, value_len: usize) -> Result<(), WireError> {
        let method = Method::of(self.method);
        if method == Method::Unknown {
            return Err(WireError::Method(self.method));
        }
        if self.flags > FLAG_PRESENT || (self.flags != 0 && method != Method::Set) {
            return Err(WireError::Flags(self.flags));
        }
        if self.expire_ms != 0 && method != Method::Set {
            return Err(WireError::Unexpected("time"));
        }
        let is_bare = matches!(method, Method::Ping | Method::Dump | Method::Reset | Method::Exit);
        if is_bare && key_len != 0 {
            return Err(WireError::Unexpected("key"));
        }
        let value_fits = match method {
            Method::Set | Method::SetOpt => true,
            Method::Incr => value_len == 8,
            _ => value_len == 0,
        };
        if value_fits { Ok(()) } else { Err(WireError::Unexpected("value")) }
    }

    fn ask<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<Ask<'a>, WireError> {
        let when = match self.flags {
            0 => When::Always,
            FLAG_ABSENT => When::Absent,
            _ => When::Present,
        };
        Ok(match Method::of(self.method) {
            Method::Unknown => return Err(WireError::Method(self.method)),
            Method::Set => Ask::Set { key, value, when, expire_ms: self.expire_ms },
            Method::Get => Ask::Get { key },
            Method::Del => Ask::Del { key },
            Method::Ping => Ask::Ping,
            Method::Dump => Ask::Dump,
            Method::Reset => Ask::Reset,
            Method::Exit => Ask::Exit,
            Method::SetOpt => Ask::SetOpt { name: key, value },
            Method::Incr => Ask::Incr { key, by: i64::from_le_bytes(bytes_at(value, 0)?) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const GOLDEN: [u8; 37] = [
        1, 1, 2, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0x14, 0x13, 0x12, 0x11,
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,
        b'k', b'e', b'y', b'v', b'1',
    ];

    const SET: Request<'_> = Request {
        client: 0x2122_2324_2526_2728,
        sequence: 0x3132_3334_3536_3738,
        ask: Ask::Set { key: b"key", value: b"v1", when: When::Present, expire_ms: 0x1112_1314 },
    };

    #[test]
    fn the_golden_bytes_are_emitted_and_parsed() {
        let mut bytes = Vec::new();
        SET.emit(&mut bytes);
        assert_eq!(bytes, GOLDEN);
        assert_eq!(Request::parse(&[&GOLDEN[..], b"more"].concat()), Ok((SET, GOLDEN.len())));
        for len in 0..GOLDEN.len() {
            let short = Request::parse(&GOLDEN[..len]);
            let Err(WireError::Short(needed)) = short else { panic!("{len}: {short:?}") };
            assert!(needed > len && needed <= GOLDEN.len(), "{len}: {needed}");
        }
    }

    #[test]
    fn each_wrong_field_is_named_before_the_body_is_there() {
        let with = |at: usize, byte: u8| {
            let mut bytes = GOLDEN;
            bytes[at] = byte;
            Request::parse(&bytes[..REQUEST_HEADER_BYTES]).map(|_| ())
        };
        assert_eq!(with(0, 2), Err(WireError::Version(2)));
        assert_eq!(with(1, 0), Err(WireError::Method(0)));
        assert_eq!(with(1, 10), Err(WireError::Method(10)));
        assert_eq!(with(2, 3), Err(WireError::Flags(3)));
        assert_eq!(with(3, 1), Err(WireError::Flags(0x102)));
        assert_eq!(with(5, 3), Err(WireError::TooLong("key")));
        assert_eq!(with(6, 1), Err(WireError::Reserved));
        assert_eq!(with(11, 1), Err(WireError::TooLong("value")));
        assert_eq!(with(1, Method::Get as u8), Err(WireError::Flags(2)));
        let get = |at: usize, byte: u8| {
            let mut bytes = Vec::new();
            Request { ask: Ask::Get { key: b"key" }, ..SET }.emit(&mut bytes);
            bytes[at] = byte;
            Request::parse(&bytes).map(|_| ())
        };
        assert_eq!(get(12, 1), Err(WireError::Unexpected("time")));
        assert_eq!(get(8, 1), Err(WireError::Unexpected("value")));
        assert_eq!(get(1, Method::Incr as u8), Err(WireError::Unexpected("value")));
        assert_eq!(get(1, Method::Ping as u8), Err(WireError::Unexpected("key")));
    }
}
