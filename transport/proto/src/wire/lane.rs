//! One-sided operations as messages (docs/protocol.md section 11).
//!
//! On the channel of its lane an end sends requests, and its peer answers each, in their order.

use super::{field, put};
use crate::lane::{GrantId, OpKind};
use crate::limits::LANE_MESSAGE_BYTES_MAX;

/// Bytes of a request before those that it writes.
pub const LANE_REQUEST_BYTES: usize = 40;

/// Bytes of an answer before those that were read.
pub const LANE_ANSWER_BYTES: usize = 24;

/// Bytes that one request reads or writes, at most.
pub const LANE_PIECE_BYTES: u32 = LANE_MESSAGE_BYTES_MAX - LANE_REQUEST_BYTES as u32;

const READ: u8 = 1;
const WRITE: u8 = 2;
const WRITE_WORD: u8 = 3;
const FETCH_ADD: u8 = 4;
const CMP_SWAP: u8 = 5;

/// Bytes of a word.
const WORD_BYTES: u32 = 8;

/// Asks the owner of memory to carry an operation out, or a part of a long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneRequest {
    /// What its answer names it by.
    pub number: u64,
    /// What it does.
    pub kind: OpKind,
    /// On which memory of the owner.
    pub grant: GrantId,
    /// Where in it, in bytes.
    pub offset: u32,
    /// How many bytes: 1 to [`LANE_PIECE_BYTES`], 8 for words. Those that are written follow the
    /// request.
    pub length: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneAnswer {
    /// Of which.
    pub number: u64,
    /// It was carried out; if not, the owner does not allow it, and nothing of it was.
    pub is_done: bool,
    /// What a word was, of atomics; 0 otherwise.
    pub word: u64,
    /// How many bytes were read, which follow the answer.
    pub length: u32,
}

/// Why bytes are no request, or no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LaneMessageError {
    /// It ends too soon, or later than it says.
    #[error("it is not as long as it says")]
    Length,
    /// An unknown kind, or outcome.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// It names more bytes than one message may, none, or a word that has not eight.
    #[error("not 1 to {LANE_PIECE_BYTES} bytes, or a word of not 8")]
    Range,
}

impl LaneRequest {
    /// Bytes that follow it.
    #[must_use]
    pub fn written(&self) -> u32 {
        if self.kind == OpKind::Write { self.length } else { 0 }
    }

    /// The request as bytes. Words that are written go in the byte order of the host that has them,
    /// as its device would send them; numbers that are added or compared go as numbers.
    #[must_use]
    pub fn emit(&self) -> [u8; LANE_REQUEST_BYTES] {
        let (kind, first, second) = match self.kind {
            OpKind::Read => (READ, 0, 0),
            OpKind::Write => (WRITE, 0, 0),
            OpKind::WriteWord { value } => (WRITE_WORD, u64::from_le_bytes(value.to_ne_bytes()), 0),
            OpKind::FetchAdd { add } => (FETCH_ADD, add, 0),
            OpKind::CmpSwap { compare, swap } => (CMP_SWAP, compare, swap),
        };
        let mut out = [0; LANE_REQUEST_BYTES];
        out[0] = kind;
        put!(out, 4, self.grant.0);
        put!(out, 8, self.number);
        put!(out, 16, self.offset);
        put!(out, 20, self.length);
        put!(out, 24, first);
        put!(out, 32, second);
        out
    }

    /// Reads a request of a message that has `message_len` bytes and begins with `bytes`.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn parse(
        bytes: &[u8; LANE_REQUEST_BYTES],
        message_len: usize,
    ) -> Result<Self, LaneMessageError> {
        let (first, second) = (field!(bytes, 24, u64), field!(bytes, 32, u64));
        let kind = match bytes[0] {
            READ => OpKind::Read,
            WRITE => OpKind::Write,
            WRITE_WORD => OpKind::WriteWord { value: u64::from_ne_bytes(first.to_le_bytes()) },
            FETCH_ADD => OpKind::FetchAdd { add: first },
            CMP_SWAP => OpKind::CmpSwap { compare: first, swap: second },
            kind => return Err(LaneMessageError::Kind(kind)),
        };
        let request = Self {
            number: field!(bytes, 8, u64),
            kind,
            grant: GrantId(field!(bytes, 4, u32)),
            offset: field!(bytes, 16, u32),
            length: field!(bytes, 20, u32),
        };
        let is_range = matches!(kind, OpKind::Read | OpKind::Write);
        let fits = match is_range {
            true => (1..=LANE_PIECE_BYTES).contains(&request.length),
            false => request.length == WORD_BYTES,
        };
        if !fits {
            return Err(LaneMessageError::Range);
        }
        if message_len != LANE_REQUEST_BYTES + request.written() as usize {
            return Err(LaneMessageError::Length);
        }
        Ok(request)
    }
}

impl LaneAnswer {
    /// The answer as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; LANE_ANSWER_BYTES] {
        let mut out = [0; LANE_ANSWER_BYTES];
        out[0] = u8::from(!self.is_done);
        put!(out, 4, self.length);
        put!(out, 8, self.number);
        put!(out, 16, self.word);
        out
    }

    /// Reads an answer of a message that has `message_len` bytes and begins with `bytes`.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn parse(
        bytes: &[u8; LANE_ANSWER_BYTES],
        message_len: usize,
    ) -> Result<Self, LaneMessageError> {
        let is_done = match bytes[0] {
            0 => true,
            1 => false,
            kind => return Err(LaneMessageError::Kind(kind)),
        };
        let length = field!(bytes, 4, u32);
        let answer =
            Self { number: field!(bytes, 8, u64), is_done, word: field!(bytes, 16, u64), length };
        if length > LANE_PIECE_BYTES {
            return Err(LaneMessageError::Range);
        }
        if message_len != LANE_ANSWER_BYTES + length as usize {
            return Err(LaneMessageError::Length);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        let kinds = [
            OpKind::Read,
            OpKind::Write,
            OpKind::WriteWord { value: 0x0102_0304_0506_0708 },
            OpKind::FetchAdd { add: u64::MAX },
            OpKind::CmpSwap { compare: 3, swap: 4 },
        ];
        for kind in kinds {
            let is_range = matches!(kind, OpKind::Read | OpKind::Write);
            let length = if is_range { LANE_PIECE_BYTES } else { 8 };
            let number = u64::MAX - 1;
            let request = LaneRequest { number, kind, grant: GrantId(7), offset: 9, length };
            let bytes = request.emit();
            let message_len = bytes.len() + request.written() as usize;
            assert_eq!(LaneRequest::parse(&bytes, message_len), Ok(request));
            assert_eq!(LaneRequest::parse(&bytes, message_len + 1), Err(LaneMessageError::Length));
            let other = LaneRequest { length: length + 1, ..request };
            let message_len = bytes.len() + other.written() as usize;
            assert_eq!(
                LaneRequest::parse(&other.emit(), message_len),
                Err(LaneMessageError::Range)
            );
        }
        for (is_done, length) in [(true, 0), (true, 100), (false, 0)] {
            let answer = LaneAnswer { number: 5, is_done, word: 6, length };
            let bytes = answer.emit();
            let message_len = bytes.len() + length as usize;
            assert_eq!(LaneAnswer::parse(&bytes, message_len), Ok(answer));
            assert_eq!(LaneAnswer::parse(&bytes, message_len + 1), Err(LaneMessageError::Length));
        }
    }

    #[test]
    fn what_names_no_operation_is_no_request() {
        let kind = OpKind::Read;
        let request = LaneRequest { number: 1, kind, grant: GrantId(1), offset: 0, length: 8 };
        let mut bytes = request.emit();
        bytes[0] = 6;
        assert_eq!(LaneRequest::parse(&bytes, bytes.len()), Err(LaneMessageError::Kind(6)));
        let none = LaneRequest { length: 0, ..request }.emit();
        assert_eq!(LaneRequest::parse(&none, none.len()), Err(LaneMessageError::Range));
        let mut answer = LaneAnswer { number: 1, is_done: true, word: 0, length: 0 }.emit();
        answer[0] = 2;
        assert_eq!(LaneAnswer::parse(&answer, answer.len()), Err(LaneMessageError::Kind(2)));
    }
}
