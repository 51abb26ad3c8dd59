//! A page of the map: seven blocks, each of 64 slices of a chunk (docs/store-core.md section 5).

use super::page::{HEAD_BYTES, Kind, PAGE_BYTES, PageBytes, PageError, PageHead, open, put, seal};
use crate::store::bytes::{array, u32_at, u64_at};
use crate::store::limits::{CHAIN_MAX, CHUNK_BYTES_MAX};
use crate::store::place::SliceRef;
use crate::store::slice::{ChunkId, SLICE_BYTES};

/// Slices of a block: a sparse chunk pays for 256 KiB around each byte it has.
pub(crate) const BLOCK_SLICES: usize = 64;

/// Blocks of a page.
pub(crate) const BLOCKS: usize = 7;

const BLOCK_BYTES: usize = field::SLICES + BLOCK_SLICES * 8;

const _: () = assert!(HEAD_BYTES + BLOCKS * BLOCK_BYTES <= PAGE_BYTES);

mod field {
    pub(super) const CHUNK: usize = 0;
    pub(super) const INDEX: usize = 16;
    pub(super) const FLAGS: usize = 20;
    pub(super) const BYTE_LEN: usize = 24;
    pub(super) const LIMIT: usize = 32;
    pub(super) const VERSION: usize = 40;
    pub(super) const STAMP: usize = 48;
    pub(super) const SLICES: usize = 56;
}

const UNFINISHED: u32 = 1;
const RESIDENT: u32 = 2;
const SUSPECT: u32 = 4;
/// In the flags as well, from this bit on, so that a chunk without one is as it ever was.
const CHAIN_SHIFT: u32 = 8;
const _: () = assert!(CHAIN_MAX == u32::MAX >> CHAIN_SHIFT);

/// What is known of a chunk beside its slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkHead {
    pub(crate) byte_len: u64,
    pub(crate) limit_bytes: u64,
    /// Number of the record that changed it last; never zero.
    pub(crate) version: u64,
    /// What that record's change is told by from others; zero for nothing.
    pub(crate) stamp: u64,
    pub(crate) unfinished: bool,
    /// Its slices are to be kept in memory as well.
    pub(crate) resident: bool,
    /// A change of it is lost: what the map says of it may be old, or too short.
    pub(crate) suspect: bool,
    /// The chain version that changes of it must name; 0 where it has none.
    pub(crate) chain: u32,
}

/// Slices of one block.
pub(crate) type Slices = [SliceRef; BLOCK_SLICES];

/// A block, with the chunk as it was when the block was changed last: of all blocks of a chunk, the
/// one with the highest version says how the chunk is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockView<'a> {
    pub(crate) chunk: ChunkId,
    /// Which 64 slices of the chunk.
    pub(crate) index: u32,
    pub(crate) head: ChunkHead,
    pub(crate) slices: &'a Slices,
}

/// As [`BlockView`], read from a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockImage {
    pub(crate) chunk: ChunkId,
    pub(crate) index: u32,
    pub(crate) head: ChunkHead,
    pub(crate) slices: Box<Slices>,
}

/// The bytes of a page and their checksum.
pub(crate) fn encode<'a>(
    head: PageHead,
    blocks: impl Iterator<Item = Option<BlockView<'a>>>,
) -> (Box<PageBytes>, u32) {
    let mut page = Box::new([0; PAGE_BYTES]);
    for (number, block) in blocks.take(BLOCKS).enumerate() {
        let Some(block) = block else { continue };
        let at = HEAD_BYTES + number * BLOCK_BYTES;
        let bytes = &mut page[at..at + BLOCK_BYTES];
        let BlockView { chunk, index, head, slices } = block;
        let flag = |is: bool, bit: u32| if is { bit } else { 0 };
        let flags = flag(head.unfinished, UNFINISHED)
            | flag(head.resident, RESIDENT)
            | flag(head.suspect, SUSPECT)
            | (head.chain << CHAIN_SHIFT);
        put(bytes, field::CHUNK, &chunk.0.to_le_bytes());
        put(bytes, field::INDEX, &index.to_le_bytes());
        put(bytes, field::FLAGS, &flags.to_le_bytes());
        put(bytes, field::BYTE_LEN, &head.byte_len.to_le_bytes());
        put(bytes, field::LIMIT, &head.limit_bytes.to_le_bytes());
        put(bytes, field::VERSION, &head.version.to_le_bytes());
        put(bytes, field::STAMP, &head.stamp.to_le_bytes());
        for (at, slice) in slices.iter().enumerate() {
            put(bytes, field::SLICES + 8 * at, &slice.page.to_le_bytes());
            put(bytes, field::SLICES + 8 * at + 4, &slice.crc.to_le_bytes());
        }
    }
    let crc = seal(&mut page, Kind::Map, head);
    (page, crc)
}

/// What a page says, and its checksum. Never panics, whatever the bytes are.
pub(crate) fn decode(
    page: &PageBytes,
) -> Result<(PageHead, u32, [Option<BlockImage>; BLOCKS]), PageError> {
    let (head, crc) = open(page, Kind::Map)?;
    let mut blocks = [const { None }; BLOCKS];
    for (number, block) in blocks.iter_mut().enumerate() {
        let at = HEAD_BYTES + number * BLOCK_BYTES;
        *block = decode_block(&page[at..at + BLOCK_BYTES])?;
    }
    Ok((head, crc, blocks))
}

fn decode_block(bytes: &[u8]) -> Result<Option<BlockImage>, PageError> {
    let version = u64_at(bytes, field::VERSION);
    if version == 0 {
        return Ok(None);
    }
    let flags = u32_at(bytes, field::FLAGS);
    let head = ChunkHead {
        byte_len: u64_at(bytes, field::BYTE_LEN),
        limit_bytes: u64_at(bytes, field::LIMIT),
        version,
        stamp: u64_at(bytes, field::STAMP),
        unfinished: flags & UNFINISHED != 0,
        resident: flags & RESIDENT != 0,
        suspect: flags & SUSPECT != 0,
        chain: flags >> CHAIN_SHIFT,
    };
    let index = u32_at(bytes, field::INDEX);
    let blocks_max = CHUNK_BYTES_MAX / (SLICE_BYTES * BLOCK_SLICES) as u64;
    if head.byte_len > head.limit_bytes
        || head.limit_bytes > CHUNK_BYTES_MAX
        || u64::from(index) >= blocks_max
        || flags & !(UNFINISHED | RESIDENT | SUSPECT | (CHAIN_MAX << CHAIN_SHIFT)) != 0
    {
        return Err(PageError::Impossible);
    }
    let (pairs, _) = bytes[field::SLICES..].as_chunks::<8>();
    let slice = |at: usize| {
        let [a, b, c, d, e, f, g, h] = pairs[at];
        SliceRef { page: u32::from_le_bytes([a, b, c, d]), crc: u32::from_le_bytes([e, f, g, h]) }
    };
    Ok(Some(BlockImage {
        chunk: ChunkId(u128::from_le_bytes(array(bytes, field::CHUNK))),
        index,
        head,
        slices: Box::new(std::array::from_fn(slice)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    #[test]
    fn blocks_survive_their_bytes_and_arbitrary_ones_never_panic() {
        let mut prng = Prng::new(5);
        let blocks: [Option<BlockImage>; BLOCKS] = std::array::from_fn(|number| {
            let head = ChunkHead {
                stamp: prng.next_u64(),
                byte_len: prng.below(1 << 30),
                limit_bytes: 1 << 31,
                version: 1 + prng.below(1 << 40),
                unfinished: prng.chance(0.5),
                resident: prng.chance(0.5),
                suspect: prng.chance(0.5),
                chain: prng.below(1 + u64::from(CHAIN_MAX)) as u32,
            };
            let slice = |_| SliceRef { page: prng.next_u32(), crc: prng.next_u32() };
            let slices = Box::new(std::array::from_fn(slice));
            let chunk = ChunkId(number as u128 + 9);
            (number != 3).then_some(BlockImage { chunk, index: number as u32, head, slices })
        });
        let head = PageHead { store_id: 7, generation: 8, index: 9 };
        let views = blocks.iter().map(|block| {
            block.as_ref().map(|block| {
                let BlockImage { chunk, index, head, slices } = block;
                BlockView { chunk: *chunk, index: *index, head: *head, slices }
            })
        });
        let (page, crc) = encode(head, views);
        assert_eq!(decode(&page), Ok((head, crc, blocks)));
        for _ in 0..2_000 {
            let mut other = page.clone();
            let at = HEAD_BYTES + prng.below((PAGE_BYTES - HEAD_BYTES) as u64) as usize;
            prng.fill(&mut other[at..]);
            seal(&mut other, Kind::Map, head);
            let _ = decode(&other);
        }
    }
}
