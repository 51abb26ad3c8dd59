//! The protobuf messages. Their data is shared, not copied, wherever protobuf allows that.

use prost::bytes::Bytes;

use towpath_fastpath::slice::ChunkId;

/// The method of a write over our rpc; the numbers of the fast path are far below.
pub const WRITE: u16 = 0x8002;

/// The method of a read over our rpc.
pub const READ: u16 = 0x8003;

/// The name of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Name {
    /// Its first eight bytes.
    #[prost(fixed64, tag = "1")]
    pub high: u64,
    /// Its last eight bytes.
    #[prost(fixed64, tag = "2")]
    pub low: u64,
}

impl From<ChunkId> for Name {
    fn from(ChunkId(id): ChunkId) -> Self {
        Self { high: (id >> 64) as u64, low: id as u64 }
    }
}

impl From<Name> for ChunkId {
    fn from(Name { high, low }: Name) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }
}

/// A write.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WriteRequest {
    /// The chunk.
    #[prost(message, optional, tag = "1")]
    pub chunk: Option<Name>,
    /// First byte in the chunk.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// CRC32C of the data.
    #[prost(fixed32, tag = "3")]
    pub crc: u32,
    /// The data.
    #[prost(bytes = "bytes", tag = "4")]
    pub data: Bytes,
}

/// The reply to a write.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct WriteReply {
    /// How it went.
    #[prost(enumeration = "Verdict", tag = "1")]
    pub verdict: i32,
}

/// A read.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ReadRequest {
    /// The chunk.
    #[prost(message, optional, tag = "1")]
    pub chunk: Option<Name>,
    /// First byte in the chunk.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Bytes.
    #[prost(uint32, tag = "3")]
    pub length: u32,
}

/// The reply to a read.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReadReply {
    /// How it went; there is data only where it went well.
    #[prost(enumeration = "Verdict", tag = "1")]
    pub verdict: i32,
    /// CRC32C of the data.
    #[prost(fixed32, tag = "2")]
    pub crc: u32,
    /// The data.
    #[prost(bytes = "bytes", tag = "3")]
    pub data: Bytes,
}

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Verdict {
    /// A peer that does not say.
    Unknown = 0,
    /// It was done: a write is where the store keeps it.
    Done = 1,
    /// It is no message, or asks for what cannot be.
    Malformed = 2,
    /// The data is not what its checksum is of.
    Corrupt = 3,
    /// The store has no room for it now.
    Busy = 4,
    /// The store did not do it.
    Failed = 5,
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    /// Protobuf's own encoding, by hand: tag, then value.
    #[test]
    fn messages_are_the_bytes_that_protobuf_has_for_them() {
        let chunk = Some(Name::from(ChunkId(1 << 64 | 2)));
        let name = [0x09, 1, 0, 0, 0, 0, 0, 0, 0, 0x11, 2, 0, 0, 0, 0, 0, 0, 0];
        let write = WriteRequest { chunk, offset: 300, crc: 5, data: vec![7, 8].into() };
        let expected =
            [&[0x0a, 18][..], &name, &[0x10, 0xac, 2, 0x1d, 5, 0, 0, 0, 0x22, 2, 7, 8]].concat();
        assert_eq!(write.encode_to_vec(), expected);
        let read = ReadRequest { chunk, offset: 1, length: 4096 };
        let expected = [&[0x0a, 18][..], &name, &[0x10, 1, 0x18, 0x80, 0x20]].concat();
        assert_eq!(read.encode_to_vec(), expected);
        assert_eq!(WriteReply { verdict: Verdict::Done.into() }.encode_to_vec(), [8, 1]);
        let reply = ReadReply { verdict: 3, crc: 9, data: vec![1].into() };
        assert_eq!(reply.encode_to_vec(), [8, 3, 0x15, 9, 0, 0, 0, 0x1a, 1, 1]);
        assert_eq!(ChunkId::from(Name::from(ChunkId(u128::MAX - 5))), ChunkId(u128::MAX - 5));
    }
}
