//! Replies as bytes: RESP2, or RESP3 where a client asked for it.

use crate::store::Refused;
use std::fmt::Display;
use std::io::Write as _;

/// Which of the two forms replies have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// What each connection begins with.
    #[default]
    Resp2,
    /// Since HELLO 3: maps, sets and a null of their own.
    Resp3,
}

/// Where the replies to a connection are written.
pub(super) struct Replies<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) form: Form,
}

impl Replies<'_> {
    /// A Vec takes everything.
    fn line(&mut self, kind: char, rest: impl Display) {
        let _ = write!(self.out, "{kind}{rest}\r\n");
    }

    pub(super) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    pub(super) fn word(&mut self, word: &str) {
        self.line('+', word);
    }

    pub(super) fn error(&mut self, error: &dyn Display) {
        self.line('-', error);
    }

    pub(super) fn refused(&mut self, refused: &Refused) {
        match refused {
            Refused::Full => {
                self.error(&"OOM command not allowed when used memory > 'maxmemory'.");
            }
            other => self.error(&format_args!("ERR {other}")),
        }
    }

    pub(super) fn number(&mut self, number: i64) {
        self.line(':', number);
    }

    /// No value.
    pub(super) fn null(&mut self) {
        self.out.extend_from_slice(match self.form {
            Form::Resp2 => b"$-1\r\n",
            Form::Resp3 => b"_\r\n",
        });
    }

    /// No list.
    pub(super) fn null_list(&mut self) {
        self.out.extend_from_slice(match self.form {
            Form::Resp2 => b"*-1\r\n",
            Form::Resp3 => b"_\r\n",
        });
    }

    pub(super) fn list(&mut self, len: usize) {
        self.line('*', len);
    }

    /// Each of so many has a name and something behind it.
    pub(super) fn map(&mut self, len: usize) {
        match self.form {
            Form::Resp2 => self.line('*', 2 * len),
            Form::Resp3 => self.line('%', len),
        }
    }

    /// Some without an order.
    pub(super) fn set(&mut self, len: usize) {
        match self.form {
            Form::Resp2 => self.line('*', len),
            Form::Resp3 => self.line('~', len),
        }
    }

    /// Text for people.
    pub(super) fn text(&mut self, text: &str) {
        match self.form {
            Form::Resp2 => self.bulk(text.as_bytes()),
            Form::Resp3 => {
                let _ = write!(self.out, "={}\r\ntxt:{text}\r\n", text.len() + 4);
            }
        }
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        let (out, len) = (&mut *self.out, bytes.len());
        out.push(b'$');
        // Most values have lengths of few digits, which `write!` takes several times as long for.
        match u8::try_from(len) {
            Ok(short @ 0..10) => out.push(b'0' + short),
            Ok(short @ 10..100) => out.extend_from_slice(&[b'0' + short / 10, b'0' + short % 10]),
            _ => drop(write!(out, "{len}")),
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}
