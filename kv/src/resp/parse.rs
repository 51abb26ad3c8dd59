//! Bytes into the words of a command; it does no I/O and keeps no state.

use super::inline;
use crate::limits::{INLINE_BYTES_MAX, REQUEST_BYTES_MAX, VALUE_BYTES_MAX, WORDS_MAX};
use smallvec::SmallVec;
use std::borrow::Cow;

/// The words of a command, the first of which is its name.
pub type Words<'a> = SmallVec<[Cow<'a, [u8]>; 4]>;

/// What the start of some bytes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A command; none where there are no words, which is no mistake.
    Words {
        /// Its words.
        words: Words<'a>,
        /// How many bytes it is.
        len: usize,
    },
    /// Not all of one yet.
    More {
        /// With fewer bytes than this in all it is not.
        needed: usize,
    },
}

/// Why bytes are no command. The connection ends then: nobody knows where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A count of words that is no number, or too many.
    #[error("invalid multibulk length")]
    Count,
    /// A length that is no number, or beyond the longest value.
    #[error("invalid bulk length")]
    Length,
    /// A word that does not begin with `$`.
    #[error("expected '$', got '{}'", char::from(*.0).escape_default())]
    Dollar(u8),
    /// A word that does not end where its length says.
    #[error("a word is longer than its length")]
    End,
    /// A command of more bytes than any.
    #[error("too big request")]
    TooLong,
    /// A line without an end.
    #[error("too big inline request")]
    LineTooLong,
    /// A line with a quote that is not closed.
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// The longest line with a number: nothing that is sound is longer.
const NUMBER_LINE_MAX: usize = 32;

/// A number in a line from `at` on, and where the next line begins.
enum Number {
    Is(u64, usize),
    More,
    Wrong,
}

fn number(bytes: &[u8], at: usize) -> Number {
    let mut number = 0u64;
    let mut digits = 0;
    for (index, &byte) in bytes[at..].iter().enumerate().take(NUMBER_LINE_MAX) {
        match byte {
            b'0'..=b'9' if digits < 12 => {
                number = number * 10 + u64::from(byte - b'0');
                digits += 1;
            }
            b'\r' if digits > 0 => {
                return match bytes.get(at + index + 1) {
                    Some(b'\n') => Number::Is(number, at + index + 2),
                    Some(_) => Number::Wrong,
                    None => Number::More,
                };
            }
            _ => return Number::Wrong,
        }
    }
    if bytes.len() - at < NUMBER_LINE_MAX { Number::More } else { Number::Wrong }
}

/// The command at the start of `bytes`.
///
/// # Errors
/// [`ProtocolError`]
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, ProtocolError> {
    match bytes.first() {
        None => Ok(Parsed::More { needed: 1 }),
        Some(b'*') => words(bytes),
        Some(_) => line(bytes),
    }
}

fn words(bytes: &[u8]) -> Result<Parsed<'_>, ProtocolError> {
    let one_more = Ok(Parsed::More { needed: bytes.len() + 1 });
    // Other servers take "*-1" for a command without words.
    if b"*-1\r\n".starts_with(&bytes[..bytes.len().min(5)]) && bytes.len() > 1 {
        return match bytes.len() {
            5.. => Ok(Parsed::Words { words: Words::new(), len: 5 }),
            _ => one_more,
        };
    }
    let (count, mut at) = match number(bytes, 1) {
        Number::Is(count, at) if count <= WORDS_MAX as u64 => (count, at),
        Number::More => return one_more,
        Number::Is(..) | Number::Wrong => return Err(ProtocolError::Count),
    };
    let mut words = Words::new();
    for _ in 0..count {
        match bytes.get(at) {
            None => return one_more,
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::Dollar(other)),
        }
        let (len, begin) = match number(bytes, at + 1) {
            Number::Is(len, begin) if len <= VALUE_BYTES_MAX as u64 => (len as usize, begin),
            Number::More => return one_more,
            Number::Is(..) | Number::Wrong => return Err(ProtocolError::Length),
        };
        let end = begin + len;
        if end + 2 > REQUEST_BYTES_MAX {
            return Err(ProtocolError::TooLong);
        }
        match bytes.get(end..end + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::End),
            None => return Ok(Parsed::More { needed: end + 2 }),
        }
        words.push(Cow::Borrowed(&bytes[begin..end]));
        at = end + 2;
    }
    Ok(Parsed::Words { words, len: at })
}

fn line(bytes: &[u8]) -> Result<Parsed<'_>, ProtocolError> {
    let looked = &bytes[..bytes.len().min(INLINE_BYTES_MAX)];
    let Some(end) = looked.iter().position(|&byte| byte == b'\n') else {
        return match bytes.len() {
            INLINE_BYTES_MAX.. => Err(ProtocolError::LineTooLong),
            len => Ok(Parsed::More { needed: len + 1 }),
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let words = inline::words(line).ok_or(ProtocolError::Quotes)?;
    Ok(Parsed::Words { words, len: end + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Vec<u8>> {
        match parse(bytes) {
            Ok(Parsed::Words { words, len }) => {
                assert_eq!(len, bytes.len());
                words.iter().map(|word| word.to_vec()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_command_is_known_when_all_of_it_is_there_and_not_before() {
        let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nva\r\nl\r\n";
        assert_eq!(all(bytes), [&b"SET"[..], b"k", b"va\r\nl"]);
        for len in 0..bytes.len() {
            let found = parse(&bytes[..len]);
            let Ok(Parsed::More { needed }) = found else { panic!("{len}: {found:?}") };
            assert!(needed > len && needed <= bytes.len(), "{len}: {needed}");
        }
        let value = parse(b"*1\r\n$1000\r\nx");
        assert_eq!(value, Ok(Parsed::More { needed: 4 + 7 + 1_002 }));
    }

    #[test]
    fn what_is_no_command_is_refused_by_name() {
        use ProtocolError::{Count, Dollar, End, Length, LineTooLong, Quotes, TooLong};
        let count = format!("*{}\r\n", WORDS_MAX + 1);
        let length = format!("*1\r\n${}\r\n", VALUE_BYTES_MAX + 1);
        let cases: [(&[u8], ProtocolError); 12] = [
            (b"*x\r\n", Count),
            (b"*\r\n", Count),
            (b"*1\rx", Count),
            (b"*99999999999999\r\n", Count),
            (count.as_bytes(), Count),
            (b"*1\r\n:1\r\n", Dollar(b':')),
            (b"*1\r\n$-1\r\n", Length),
            (length.as_bytes(), Length),
            (b"*1\r\n$1\r\nabc", End),
            (b"get \"k\r\n", Quotes),
            (&[b'a'; INLINE_BYTES_MAX], LineTooLong),
            (b"*1\r\n$\n", Length),
        ];
        for (bytes, error) in cases {
            assert_eq!(parse(bytes), Err(error), "{:?}", String::from_utf8_lossy(bytes));
        }
        let long = [&b"*3\r\n"[..], &word(VALUE_BYTES_MAX), &word(VALUE_BYTES_MAX)].concat();
        assert_eq!(parse(&long), Err(TooLong));
    }

    fn word(len: usize) -> Vec<u8> {
        [format!("${len}\r\n").as_bytes(), &vec![b'x'; len], b"\r\n"].concat()
    }

    #[test]
    fn a_line_is_a_command_and_nothing_is_no_mistake() {
        assert_eq!(all(b"ping\r\n"), [b"ping"]);
        assert_eq!(all(b"  set  k 'a b'\n"), [&b"set"[..], b"k", b"a b"]);
        for empty in [&b"\r\n"[..], b"\n", b"  \r\n", b"*0\r\n", b"*-1\r\n"] {
            assert!(all(empty).is_empty());
        }
    }
}
