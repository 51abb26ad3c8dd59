//! What a host reads of strangers: `authorized_peers`, keys, flights of a handshake, packets.

use crate::class;
use crate::input::coarse;
use std::sync::{Arc, OnceLock};
use towpath_base::Time;
use towpath_secure::{
    Handshake, Host, HostKey, PairSecret, Peers, Refusal, Role, RollOver, SealedLink, Sealing,
    Stream, Trust, WallTime, system_random,
};

const NOW: Time = Time(0);
const BODY: usize = 24;

/// RFC 8410 section 10.3.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
    -----END PRIVATE KEY-----\n";

/// One byte that says what follows: `authorized_peers`, a key file, a client's first flight, or a
/// stream and changes of a right packet (a place and a byte each).
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((&selector, rest)) = input.split_first() else { return 0 };
    let outcome = match selector % 4 {
        0 => peers(&String::from_utf8_lossy(rest)),
        1 => match HostKey::from_pem(rest) {
            Ok(key) => {
                let again = HostKey::from_pem(key.to_pem().as_bytes()).expect("its own text");
                assert_eq!(again.public(), key.public());
                1
            }
            Err(error) => class(&[2, error.to_string().len() as u64]),
        },
        2 => flight(rest),
        _ => packet(rest),
    };
    class(&[u64::from(selector % 4), outcome])
}

fn peers(text: &str) -> u64 {
    match Peers::parse(text) {
        Ok(peers) => {
            for peer in peers.iter() {
                let line = Peers::parse(&peer.to_string()).expect("its own line");
                assert_eq!(line.find(&peer.key), Some(peer));
            }
            class(&[1, coarse(peers.len() as u64)])
        }
        Err(error) => class(&[2, error.to_string().len() as u64]),
    }
}

fn flight(bytes: &[u8]) -> u64 {
    static HOST: OnceLock<Host> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        let key = HostKey::from_pem(KEY.as_bytes()).expect("a key");
        let trust = Trust::Keys(Arc::new(Peers::default()));
        Host::new(&key, trust, Sealing::Encrypt, system_random()).expect("a host")
    });
    let mut server = Handshake::server(host, WallTime(0), NOW).expect("begun");
    let taken = server.receive(NOW, bytes);
    assert!(!server.is_done(), "nobody is trusted");
    match taken {
        Ok(taken) => {
            assert_eq!(taken, bytes.len());
            let mut answer = Vec::new();
            server.transmit(&mut answer);
            class(&[1, u64::from(!answer.is_empty())])
        }
        Err(error) => class(&[2, error.to_string().len() as u64]),
    }
}

/// A packet that was changed is refused, and one that was not is opened once.
fn packet(input: &[u8]) -> u64 {
    let (stream, changes) = input.split_first().unwrap_or((&0, &[]));
    let sealing = if stream & 0x80 == 0 { Sealing::Encrypt } else { Sealing::Authenticate };
    let path = stream & 0x1f;
    let stream = if stream & 0x40 == 0 { Stream::Chunks(path) } else { Stream::Acks(path) };
    let link = PairSecret::new([7; 32]).link(b"client", b"server");
    let end = |side| SealedLink::new(&link, side, sealing, 16, RollOver::default(), NOW);
    let (mut client, mut server) = (end(Role::Client), end(Role::Server));
    let (mut header, mut body) = ([0; 64], [5; BODY + 16]);
    let (text, tag) = body.split_at_mut(BODY);
    tag.copy_from_slice(&client.seal(NOW, stream, &mut header, text).expect("sealed"));
    let right = (header, body);
    let mut len = body.len();
    for change in changes.chunks_exact(2) {
        let (place, byte) = (usize::from(change[0]), change[1]);
        match place {
            0..64 => header[place] = byte,
            64..104 => body[place - 64] = byte,
            _ => len = len.min(usize::from(byte)),
        }
    }
    let is_right = (header, body) == right && len == body.len();
    let mut came = body;
    let opened = server.open(NOW, &header, &mut came[..len]).map(|_| ());
    assert_eq!(opened.is_ok(), is_right && path < 16, "{opened:?}");
    if opened.is_ok() {
        let again = server.open(NOW, &header, &mut body).map(|_| ());
        assert_eq!(again, Err(Refusal::Replay));
    }
    assert_eq!(server.refusals().sum(), 1);
    opened.map_or_else(|refusal| 2 + refusal as u64, |()| 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_those_committed() {
        let with = |selector: u8, bytes: &[u8]| [&[selector], bytes].concat();
        let key = HostKey::from_pem(KEY.as_bytes()).expect("a key").public();
        let lines = format!(
            "# ours\n{key} rack4-a\n\
             ed25519:{} b expires=2027-01-31 roles=client # the third\n",
            "A".repeat(43)
        );
        crate::seeds::check(
            "secure",
            &[
                ("peers", with(0, lines.as_bytes())),
                ("peers-twice", with(0, format!("{key} a\n{key} b\n").as_bytes())),
                ("peers-return-in-comment", with(0, format!("{key} a # b\rc").as_bytes())),
                ("key", with(1, KEY.as_bytes())),
                ("record", with(2, &[22, 3, 1, 0, 4, 1, 0, 0, 0])),
                ("no-tls", with(2, b"TOWPATH")),
                ("chunk", with(3, &[3])),
                ("ack-signed", with(3, &[0xc3])),
                ("chunk-changed", with(3, &[3, 70, 1])),
                ("chunk-cut", with(3, &[3, 104, 15])),
                ("chunk-reflected", with(3, &[3, 56, 0x83])),
                ("chunk-open", with(3, &[3, 57, 0])),
                ("chunk-stale", with(3, &[3, 58, 9])),
            ],
        );
    }
}
