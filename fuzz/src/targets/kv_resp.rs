//! The front that others' clients speak: commands in any pieces, and what is answered to them.

use crate::class;
use crate::input::coarse;
use std::mem::discriminant;
use std::sync::Arc;
use towpath_base::Time;
use towpath_kv::limits::{REPLY_BYTES_MAX, STORE_BYTES_MIN};
use towpath_kv::resp::{Command, Parsed, RespDialogue, parse};
use towpath_kv::serve::{Counters, Dialogue, Next};
use towpath_kv::{Evict, Table};

/// How the input is cut (one byte: pieces of so many bytes), then what a client sends.
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((&piece, bytes)) = input.split_first() else { return 0 };
    let (whole, end) = replies(bytes, bytes.len().max(1));
    let (cut, same_end) = replies(bytes, usize::from(piece).max(1));
    assert!(whole == cut && end == same_end, "pieces change the answer");
    assert!(whole.len() <= REPLY_BYTES_MAX);
    class(&[commands(bytes), coarse(whole.len() as u64), end])
}

/// All replies to what comes in pieces, and how it ended.
fn replies(bytes: &[u8], piece: usize) -> (Vec<u8>, u64) {
    let store = Arc::new(Table::new(STORE_BYTES_MIN, Evict::Never));
    let mut dialogue = RespDialogue::new(store, Arc::new(Counters::new(1)));
    let (mut used, mut needed, mut out) = (0, 1, Vec::new());
    for end in (piece..).step_by(piece).map(|end| end.min(bytes.len())) {
        let have = end - used;
        if have >= needed {
            let taken = dialogue.take(&bytes[used..end], Time::ZERO, &mut out);
            used += taken.used;
            assert!(used <= end);
            match taken.next {
                Next::More { needed: more } => {
                    assert!(more > end - used, "it has what it asks for");
                    needed = more;
                }
                // The input is too short for so many replies.
                Next::Paused => return (Vec::new(), 1),
                Next::Close => return (out, 2),
                Next::Malformed => return (out, 3),
            }
        }
        if end == bytes.len() {
            break;
        }
    }
    (out, 0)
}

/// The class of the first commands.
fn commands(mut bytes: &[u8]) -> u64 {
    let mut classes = Vec::new();
    while classes.len() < 3 {
        let (words, len) = match parse(bytes) {
            Ok(Parsed::Words { words, len }) => (words, len),
            Ok(Parsed::More { .. }) => break,
            Err(error) => {
                classes.push(crate::fnv1a(format!("{:?}", discriminant(&error)).into_bytes()));
                break;
            }
        };
        assert!(len > 0 && len <= bytes.len());
        classes.push(match Command::of(&words) {
            Ok(command) => crate::fnv1a(format!("{:?}", discriminant(&command)).into_bytes()),
            Err(error) => {
                let text = error.to_string();
                assert!(!text.contains(['\r', '\n']), "it would be two replies");
                crate::fnv1a(format!("{:?}", discriminant(&error)).into_bytes()) ^ 1
            }
        });
        bytes = &bytes[len..];
    }
    class(&classes)
}

#[cfg(test)]
mod tests {
    use crate::seeds;

    #[test]
    fn seeds_are_those_committed() {
        let lines: [&[u8]; 15] = [
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n41\r\n",
            b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n",
            b"*3\r\n$4\r\nMGET\r\n$1\r\nk\r\n$1\r\nn\r\n",
            b"set k \"a\\x41 b\" EX 5 NX\r\n",
            b"del k\nexists k k\n",
            b"*1\r\n$4\r\nINFO\r\n*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$4\r\nsave\r\n",
            b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\nCLIENT SETINFO LIB-NAME x\r\nGET none\r\n",
            b"WATCH k\r\nMULTI\r\nSET k v\r\nINCR k\r\nGETEX k EX 5\r\nEXEC\r\nUNWATCH\r\n",
            b"MULTI\r\nHGETALL k\r\nEXEC\r\nMULTI\r\nDISCARD\r\nRESET\r\n",
            b"MSET a 1 b 2\r\nINCRBY a 5\r\nAPPEND a x\r\nGETRANGE a 0 -1\r\nSTRLEN a\r\n",
            b"EXPIRE a 5 NX\r\nTTL a\r\nPERSIST a\r\nTYPE a\r\nSET a v KEEPTTL GET\r\n",
            b"hello 3 auth a b setname c\r\ncommand docs get\r\ncommand info get x\r\n",
            b"COMMAND COUNT\r\nSELECT 0\r\nPING 'x'\r\n*-1\r\n*0\r\n",
            b"nothing\r\nEVALSHA x 0\r\nFLUSHALL\r\nDBSIZE\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\n",
        ];
        let all = [&[3][..], &lines.concat()].concat();
        let bad = [&[1][..], b"*1\r\n$4\r\nPING\r\n*1\r\n:4\r\n"].concat();
        let quit = [&[4][..], b"PING\r\nQUIT\r\nPING\r\n"].concat();
        let half = [&[2][..], b"*2\r\n$3\r\nGET\r\n$500\r\nkey"].concat();
        seeds::check("kv_resp", &[("all", all), ("bad", bad), ("half", half), ("quit", quit)]);
    }
}
