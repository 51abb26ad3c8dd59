//! Servers for others' clients, and what such clients send.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use towpath_base::Time;
use towpath_clock::Clock;
use towpath_kv::resp::{RespDialogue, TOO_MANY_CONNECTIONS};
use towpath_kv::serve::{Counters, Dialogue, Front, Server, ServerConfig};
use towpath_kv::{Evict, Store, Table};

pub fn table(bytes_max: u64) -> Arc<dyn Store> {
    Arc::new(Table::new(bytes_max, Evict::Never))
}

pub fn dialogue(store: &Arc<dyn Store>) -> RespDialogue {
    RespDialogue::new(Arc::clone(store), Arc::new(Counters::new(7)))
}

/// A server on a port of its own, and where it is.
pub fn serve(config: ServerConfig, connections_max: usize, bytes_max: u64) -> (Server, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (store, counters) = (table(bytes_max), Arc::new(Counters::new(connections_max)));
    let of_dialogue = Arc::clone(&counters);
    let make = move || {
        let dialogue = RespDialogue::new(Arc::clone(&store), Arc::clone(&of_dialogue));
        Box::new(dialogue) as Box<dyn Dialogue>
    };
    let front =
        Front { listener, dialogue: Box::new(make), turned_away: TOO_MANY_CONNECTIONS, tls: None };
    let server = Server::start(vec![front], config, counters, &Clock::start()).expect("it starts");
    (server, address)
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    // A server that does not answer fails a test, and does not hang it.
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream
}

/// What is answered to these bytes until the connection ends.
pub fn all_of(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("a socket");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends");
    answer
}

/// A command as clients send it.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

pub fn ask(dialogue: &mut RespDialogue, line: &str, now: Time) -> String {
    let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
    let (bytes, mut out) = (command(&words), Vec::new());
    let taken = dialogue.take(&bytes, now, &mut out);
    assert_eq!((taken.used, taken.requests), (bytes.len(), 1));
    String::from_utf8(out).expect("text")
}
