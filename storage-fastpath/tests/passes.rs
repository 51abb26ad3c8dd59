//! How often each byte of a write and of a read is touched (docs/fastpath.md section 1).

mod common;

use std::sync::{Mutex, PoisonError};

use common::{Direct, Server, pattern};
use towpath_base::passes::{Counts, Pass};
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{ChunkId, StorageRequest};
use towpath_transport::{CarrierChoice, EndpointConfig, Icrc};

const CHUNK: ChunkId = ChunkId(0x9a55);

/// Bytes that each test moves: enough that headers and their checksums do not count.
const BYTES: usize = 8 << 20;

/// Rounds of which the one with the fewest passes counts: what is sent again is touched again.
const ROUNDS: usize = 5;

/// Passes more for headers, and for the little that is sent again in any round.
const SPARE: f64 = 0.2;

/// In debug builds a sender holds the checksums that it was given against the bytes.
const HELD_AGAINST: f64 = if cfg!(debug_assertions) { 1.0 } else { 0.0 };

/// Counts are those of the process, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Passes over each byte, of client and server together.
#[derive(Clone, Copy, Debug)]
struct Passes {
    crc: f64,
    icrc: f64,
    copy: f64,
    device: f64,
    socket: f64,
}

impl Passes {
    const KINDS: [Pass; 6] = Pass::ALL;

    /// None of them codes.
    fn in_order(self) -> [f64; 6] {
        [self.crc, self.icrc, self.copy, self.device, self.socket, 0.0]
    }
}

/// Has the server answer once more: what it did for the answers before is counted then.
fn settle(client: &mut Direct) {
    client
        .ask(|client, endpoint| {
            client.start_request(endpoint, &StorageRequest::Stat { chunk: CHUNK })
        })
        .expect("it answers");
}

/// Has `what` move the bytes some times, and says how often each was touched.
fn check(name: &str, expected: Passes, mut what: impl FnMut()) {
    let mut least = [f64::INFINITY; 6];
    for _ in 0..ROUNDS {
        let before = Counts::now();
        what();
        let counted = Counts::now().since(&before);
        for (least, kind) in least.iter_mut().zip(Passes::KINDS) {
            *least = least.min(counted.of(kind) as f64 / BYTES as f64);
        }
    }
    println!("{name}: {:?} {least:.3?}", Passes::KINDS);
    for ((kind, passes), expected) in Passes::KINDS.iter().zip(least).zip(expected.in_order()) {
        let range = expected..expected + SPARE;
        assert!(range.contains(&passes), "{name}, {kind:?}: {passes:.3} and not {expected}");
    }
}

fn config() -> EndpointConfig {
    EndpointConfig::new().app_protocol(PROTOCOL)
}

/// Bytes of one operation.
const OP_BYTES: usize = 128 << 10;

fn connect(server: &Server, config: EndpointConfig) -> Direct {
    Direct::over(config, server.addr, |client| client)
}

/// Writes whole slices from buffers of the endpoint, which the application fills.
fn put(client: &mut Direct, bytes: &[u8]) {
    for (index, part) in bytes.chunks(OP_BYTES).enumerate() {
        let mut data = client.endpoint.alloc(part.len()).expect("a buffer");
        data.set_len(part.len()).expect("it is so long");
        data.copy_from_slice(part);
        let at = (index * OP_BYTES) as u64;
        let put = client.ask(|client, endpoint| client.start_write(endpoint, CHUNK, at, data));
        put.expect("a write");
    }
    settle(client);
}

/// Writes and reads whole slices.
fn put_and_get(name: &str, config: EndpointConfig, [write, read]: [Passes; 2]) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = 51;
    println!("seed {seed}");
    let bytes = pattern(BYTES, seed);
    let server = Server::with(config.clone());
    let mut client = connect(&server, config);
    client.create(CHUNK).expect("a new chunk");
    check(&format!("{name}, put"), write, || put(&mut client, &bytes));
    let mut got = Vec::with_capacity(BYTES);
    check(&format!("{name}, get"), read, || {
        got.clear();
        for at in (0..BYTES).step_by(OP_BYTES) {
            let data = client.read(CHUNK, at as u64, OP_BYTES).expect("a read");
            data.parts().for_each(|part| got.extend_from_slice(part));
        }
        settle(&mut client);
    });
    assert!(got == bytes);
    client.close();
}

#[test]
fn a_byte_is_summed_once_at_each_end_and_copied_by_the_device_alone() {
    let crc = 2.0 + HELD_AGAINST;
    let put = Passes { crc, icrc: 0.0, copy: 0.0, device: 1.0, socket: 2.0 };
    // The server of this test copies what it reads to a send buffer; a disk reads to that.
    put_and_get("UC", config(), [put, Passes { copy: 1.0, ..put }]);
}

#[test]
fn where_icrcs_are_kept_the_device_sums_a_byte_at_each_end_as_well() {
    let crc = 2.0 + HELD_AGAINST;
    let put = Passes { crc, icrc: 2.0, copy: 0.0, device: 1.0, socket: 2.0 };
    let config = config().icrc(Icrc::Always);
    put_and_get("UC with ICRC", config, [put, Passes { copy: 1.0, ..put }]);
}

#[test]
fn over_tcp_too_a_byte_is_summed_once_at_each_end() {
    let crc = 2.0 + HELD_AGAINST;
    let put = Passes { crc, icrc: 0.0, copy: 2.0, device: 0.0, socket: 2.0 };
    let config = config().carrier(CarrierChoice::Tcp);
    put_and_get("TCP", config, [put, Passes { copy: 3.0, ..put }]);
}

#[test]
fn who_verifies_bytes_that_nobody_else_has_summed_makes_the_pass() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let config = config().payload_crc(false);
    let server = Server::with(config.clone());
    let mut client = connect(&server, config);
    client.create(CHUNK).expect("a new chunk");
    let bytes = pattern(BYTES, 52);
    let expected = Passes { crc: 2.0, icrc: 2.0, copy: 0.0, device: 1.0, socket: 2.0 };
    check("no checksum of chunks, write", expected, || put(&mut client, &bytes));
    client.close();
}
