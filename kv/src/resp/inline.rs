//! The words of a line, as a person types them: between blanks, or in quotes.

use super::parse::Words;
use crate::limits::WORDS_MAX;
use std::borrow::Cow;

/// The words of a line; none where a quote is not closed, or text follows one, or there are more
/// words than a command has.
pub(super) fn words(line: &[u8]) -> Option<Words<'_>> {
    let (mut words, mut rest) = (Words::new(), line.trim_ascii_start());
    while !rest.is_empty() {
        if words.len() == WORDS_MAX {
            return None;
        }
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

/// The word at the start, and what follows it.
fn word(bytes: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'');
    let plain = bytes.iter().position(is_end).unwrap_or(bytes.len());
    let is_quoted = matches!(bytes.get(plain), Some(b'"' | b'\''));
    if !is_quoted {
        return Some((Cow::Borrowed(&bytes[..plain]), &bytes[plain..]));
    }
    let mut word = bytes[..plain].to_vec();
    let rest = quoted(&bytes[plain..], &mut word)?;
    let is_over = rest.first().is_none_or(u8::is_ascii_whitespace);
    is_over.then_some((Cow::Owned(word), rest))
}

/// Takes what stands between two quotes; what follows them.
fn quoted<'a>(bytes: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (&quote, mut rest) = bytes.split_first()?;
    loop {
        rest = match (rest, quote) {
            ([b'\\', b'x', high, low, after @ ..], b'"') if hex(*high).zip(hex(*low)).is_some() => {
                word.push(hex(*high)? << 4 | hex(*low)?);
                after
            }
            ([b'\\', byte, after @ ..], b'"') => {
                word.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            ([b'\\', b'\'', after @ ..], b'\'') => {
                word.push(b'\'');
                after
            }
            ([byte, after @ ..], _) if *byte == quote => return Some(after),
            ([byte, after @ ..], _) => {
                word.push(*byte);
                after
            }
            ([], _) => return None,
        };
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_blanks_and_escapes() {
        let line = br#"set "a\x41\n\"" 'b\'\n' plain x"y" "#;
        let words = words(line).expect("sound");
        let expected: [&[u8]; 5] = [b"set", b"aA\n\"", b"b'\\n", b"plain", b"xy"];
        assert!(words.iter().map(|word| &**word).eq(expected), "{words:?}");
    }

    #[test]
    fn a_quote_that_is_not_closed_or_followed_by_text_is_none() {
        for line in [&b"\"a"[..], b"'a", b"\"a\"b", b"\"a\\", b"a \"\\x4"] {
            assert_eq!(words(line), None, "{:?}", String::from_utf8_lossy(line));
        }
        assert!(words(&b"a ".repeat(WORDS_MAX + 1)).is_none());
    }
}
