//! What is sent in each case, and what it cost.

/// One kind of traffic, sent raw and reliably.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Payload bytes of a chunk.
    pub(crate) chunk_bytes: u32,
    /// A power of two.
    pub(crate) chunks_of_message: u32,
    /// Messages under way, a power of two.
    pub(crate) depth: usize,
    pub(crate) payload_crc: bool,
    pub(crate) mtu_bytes: u32,
    pub(crate) paths: usize,
    /// How many chunks go in one round: some 10 ms.
    pub(crate) chunks_of_round: u64,
}

pub(crate) const MESSAGE: Case = Case {
    name: "message_64",
    chunk_bytes: 64,
    chunks_of_message: 1,
    depth: 256,
    payload_crc: true,
    mtu_bytes: 4096,
    paths: 1,
    chunks_of_round: 50_000,
};
/// So small that copying it costs nearly nothing: what is left is the work on a chunk itself.
const BARE_CHUNK: Case =
    Case { name: "chunk_192", chunk_bytes: 192, chunks_of_message: 32, mtu_bytes: 256, ..MESSAGE };
/// One packet with its header.
const PACKET_CHUNK: Case = Case {
    name: "chunk_4k",
    chunk_bytes: 4096 - 64,
    chunks_of_message: 16,
    depth: 16,
    chunks_of_round: 20_000,
    ..MESSAGE
};
/// Fourteen packets with their header.
const LARGE_CHUNK: Case = Case {
    name: "chunk_56k",
    chunk_bytes: 14 * 4096 - 64,
    chunks_of_message: 4,
    depth: 4,
    chunks_of_round: 2_000,
    ..MESSAGE
};

/// All of them.
pub(crate) const CASES: [Case; 8] = [
    Case { name: "message_64_no_crc", payload_crc: false, ..MESSAGE },
    MESSAGE,
    Case { name: "chunk_192_no_crc", payload_crc: false, ..BARE_CHUNK },
    BARE_CHUNK,
    Case { name: "chunk_4k_no_crc", payload_crc: false, ..PACKET_CHUNK },
    PACKET_CHUNK,
    Case { name: "chunk_56k_no_crc", payload_crc: false, ..LARGE_CHUNK },
    LARGE_CHUNK,
];

impl Case {
    pub(crate) fn message_bytes(&self) -> usize {
        (self.chunk_bytes * self.chunks_of_message) as usize
    }
}

/// Nanoseconds for each chunk, at either end. Both ends run on one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) sender_ns: f64,
    pub(crate) receiver_ns: f64,
}

impl Cost {
    pub(crate) fn both_ns(&self) -> f64 {
        self.sender_ns + self.receiver_ns
    }
}
