//! A reply as bytes.

use super::{Method, REPLY_HEADER_BYTES, Request, VERSION, WireError, bytes_at};
use crate::limits::VALUE_BYTES_MAX;

/// What a request that was carried out is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It was done, and there is no more to say.
    Done,
    /// The value of a key, or what DUMP lists ([`Listing`](super::Listing)).
    Value(&'a [u8]),
    /// The sum.
    Sum(i64),
}

/// Why a request was not carried out. The first five are those of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Failure {
    /// There is no such key.
    #[error("there is no such key")]
    NoKey = 1,
    /// The request cannot be read.
    #[error("the request cannot be read")]
    Malformed = 2,
    /// The store has no room.
    #[error("the store is full")]
    Full = 3,
    /// There is no such option, or it has no such value.
    #[error("there is no such option, or it has no such value")]
    BadOption = 4,
    /// There is no such method.
    #[error("there is no such method")]
    UnknownMethod = 5,
    /// The condition of a SET did not hold.
    #[error("the condition did not hold")]
    Condition = 6,
    /// The value, or the sum, is no number of 64 bits.
    #[error("the value or the sum is not a whole number of 64 bits")]
    NotANumber = 7,
    /// The request is older than those whose replies are kept, or its client is not known (any
    /// more): nobody knows whether it was carried out, and it was not now.
    #[error("the request is too old to say whether it was carried out before")]
    Stale = 8,
    /// There are as many clients as are kept apart.
    #[error("there are too many clients")]
    TooManyClients = 9,
    /// The reply is longer than the transport carries: the request was carried out.
    #[error("the reply is longer than this transport carries")]
    TooLong = 10,
}

impl Failure {
    fn of(code: u8) -> Option<Self> {
        use Failure::{
            BadOption, Condition, Full, Malformed, NoKey, NotANumber, Stale, TooLong,
            TooManyClients, UnknownMethod,
        };
        let all = [
            NoKey,
            Malformed,
            Full,
            BadOption,
            UnknownMethod,
            Condition,
            NotANumber,
            Stale,
            TooManyClients,
            TooLong,
        ];
        all.into_iter().find(|&failure| failure as u8 == code)
    }
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// To which request.
    pub head: ReplyHead,
    /// What became of it.
    pub answer: Result<Answer<'a>, Failure>,
}

/// Which request a reply is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// Who asked.
    pub client: u64,
    /// The client's number of the request.
    pub sequence: u64,
    /// What was asked for.
    pub method: Method,
}

impl From<&Request<'_>> for ReplyHead {
    fn from(request: &Request<'_>) -> Self {
        let Request { client, sequence, ask } = request;
        Self { client: *client, sequence: *sequence, method: ask.method() }
    }
}

impl ReplyHead {
    fn emit(self, code: u8, value_len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, code, self.method as u8, 0]);
        out.extend_from_slice(&u32::try_from(value_len).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&self.client.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
    }
}

impl<'a> Reply<'a> {
    /// Appends its bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let sum;
        let (code, value): (u8, &[u8]) = match self.answer {
            Ok(Answer::Done) => (0, &[]),
            Ok(Answer::Value(value)) => (0, value),
            Ok(Answer::Sum(number)) => {
                sum = number.to_le_bytes();
                (0, &sum)
            }
            Err(failure) => (failure as u8, &[]),
        };
        self.head.emit(code, value.len(), out);
        out.extend_from_slice(value);
    }

    /// The reply at the start of `bytes`, and how many of them it is.
    ///
    /// # Errors
    /// [`WireError`]; [`WireError::Short`] where more have to come.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), WireError> {
        let [version, code, number, zero] = bytes_at::<4>(bytes, 0)?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        if zero != 0 {
            return Err(WireError::Reserved);
        }
        let method = Method::of(number);
        if method as u8 != number {
            return Err(WireError::Method(number));
        }
        let value_len = usize::try_from(u32::from_le_bytes(bytes_at(bytes, 4)?));
        let value_len = value_len.unwrap_or(usize::MAX);
        if value_len > VALUE_BYTES_MAX {
            return Err(WireError::TooLong("value"));
        }
        let client = u64::from_le_bytes(bytes_at(bytes, 8)?);
        let sequence = u64::from_le_bytes(bytes_at(bytes, 16)?);
        let value_fits = match (code, method) {
            (0, Method::Get | Method::Dump) => true,
            (0, Method::Incr) => value_len == 8,
            _ => value_len == 0,
        };
        if !value_fits || (code == 0 && method == Method::Unknown) {
            return Err(WireError::Unexpected("value"));
        }
        let len = REPLY_HEADER_BYTES + value_len;
        let value = bytes.get(REPLY_HEADER_BYTES..len).ok_or(WireError::Short(len))?;
        let answer = match (code, method) {
            (0, Method::Get | Method::Dump) => Ok(Answer::Value(value)),
            (0, Method::Incr) => Ok(Answer::Sum(i64::from_le_bytes(bytes_at(value, 0)?))),
            (0, _) => Ok(Answer::Done),
            (code, _) => Err(Failure::of(code).ok_or(WireError::Code(code))?),
        };
        Ok((Self { head: ReplyHead { client, sequence, method }, answer }, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: ReplyHead = ReplyHead { client: 0x0102, sequence: 0x0304, method: Method::Get };

    #[rustfmt::skip]
    const GOLDEN: [u8; 26] = [
        1, 0, 2, 0, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, b'v', b'1',
    ];

    #[test]
    fn the_golden_bytes_are_emitted_and_parsed() {
        let reply = Reply { head: HEAD, answer: Ok(Answer::Value(b"v1")) };
        let mut bytes = Vec::new();
        reply.emit(&mut bytes);
        assert_eq!(bytes, GOLDEN);
        assert_eq!(Reply::parse(&[&GOLDEN[..], b"more"].concat()), Ok((reply, GOLDEN.len())));
        for len in 0..GOLDEN.len() {
            assert!(matches!(Reply::parse(&GOLDEN[..len]), Err(WireError::Short(_))), "{len}");
        }
    }

    #[test]
    fn each_answer_comes_back_as_it_went() {
        let incr = ReplyHead { method: Method::Incr, ..HEAD };
        let set = ReplyHead { method: Method::Set, ..HEAD };
        let mut replies = vec![
            Reply { head: incr, answer: Ok(Answer::Sum(-7)) },
            Reply { head: set, answer: Ok(Answer::Done) },
        ];
        let failures = (1..=10).filter_map(Failure::of);
        replies.extend(failures.map(|failure| Reply { head: HEAD, answer: Err(failure) }));
        assert_eq!(replies.len(), 12);
        for reply in replies {
            let mut bytes = Vec::new();
            reply.emit(&mut bytes);
            assert_eq!(Reply::parse(&bytes), Ok((reply, bytes.len())));
        }
    }

    #[test]
    fn each_wrong_field_is_named() {
        let with = |at: usize, byte: u8| {
            let mut bytes = GOLDEN;
            bytes[at] = byte;
            Reply::parse(&bytes).map(|_| ())
        };
        assert_eq!(with(0, 0), Err(WireError::Version(0)));
        assert_eq!(with(1, 1), Err(WireError::Unexpected("value")));
        assert_eq!(with(2, 10), Err(WireError::Method(10)));
        assert_eq!(with(2, 0), Err(WireError::Unexpected("value")));
        assert_eq!(with(3, 1), Err(WireError::Reserved));
        assert_eq!(with(7, 1), Err(WireError::TooLong("value")));
        let mut bytes = Vec::new();
        Reply { head: HEAD, answer: Err(Failure::NoKey) }.emit(&mut bytes);
        bytes[1] = 11;
        assert_eq!(Reply::parse(&bytes), Err(WireError::Code(11)));
    }
}
