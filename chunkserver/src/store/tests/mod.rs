//! Tests of the store, and the model that they compare it with.

mod by_askers;
mod check;
mod crash;
mod damage;
mod faults;
mod format;
mod kill;
mod model;
mod reserve;
mod residence;
mod room;
mod sweep;
mod worker;

use std::collections::BTreeMap;

use towpath_base::Prng;

use super::sim::SimMedia;
use super::{
    ChunkId, CreateError, DeleteError, FinishError, Media, ReadError, Refused, SLICE_BYTES, Span,
    Store, StoreConfig, Ticket, Write, WriteError, fragment_crc, slice_crc, writer_crcs,
};

/// Small enough that segments fill, extents scatter and logs wrap within a test.
pub(super) fn small_config() -> StoreConfig {
    StoreConfig::default().segment_bytes(32 * 4096).log_bytes(64 << 10).capacity_bytes(90 * 4096)
}

pub(super) fn open(media: &SimMedia) -> Store<SimMedia> {
    Store::open(media.clone(), small_config()).expect("the store opens")
}

pub(super) fn random_bytes(prng: &mut Prng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    prng.fill(&mut bytes);
    bytes
}

/// Bytes of the pages that can be written to at once.
pub(super) fn free_bytes<M: Media>(store: &Store<M>) -> u64 {
    store.space.free_pages() * SLICE_BYTES as u64
}

/// Stages a write of `bytes` cut into two pieces at `cut`.
pub(super) fn stage_cut<M: Media>(
    store: &mut Store<M>,
    chunk: ChunkId,
    offset: u64,
    bytes: &[u8],
    cut: usize,
) -> Result<Ticket, WriteError> {
    let crcs = writer_crcs(chunk, offset, bytes);
    let (head, tail) = bytes.split_at(cut);
    let data = [head, tail];
    store.stage_write(&Write { chunk, offset, data: &data, crcs: &crcs, verified: false })
}

/// Stages and commits a write.
pub(super) fn write<M: Media>(store: &mut Store<M>, chunk: ChunkId, offset: u64, bytes: &[u8]) {
    stage_cut(store, chunk, offset, bytes, 0).expect("the write is sound");
    store.commit().expect("the medium flushes");
}

/// Stages and commits a create.
pub(super) fn create<M: Media>(store: &mut Store<M>, chunk: ChunkId) {
    store.stage_create(chunk, None).expect("the chunk is new");
    store.commit().expect("the medium flushes");
}

/// Stages a finish, whatever length the staged changes give the chunk.
fn finish<M: Media>(store: &mut Store<M>, chunk: ChunkId) -> Result<Ticket, FinishError> {
    match store.stage_finish(chunk, u64::MAX) {
        Err(FinishError::Length { byte_len }) => store.stage_finish(chunk, byte_len),
        done => done,
    }
}

/// Reads, and checks that each checksum is the one that the data and its place have.
pub(super) fn read<M: Media>(
    store: &mut Store<M>,
    chunk: ChunkId,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, ReadError> {
    let mut buf = vec![0xa5; len];
    let mut crcs = vec![1, 2, 3];
    let done = store.read(chunk, offset, &mut buf, &mut crcs)?;
    let span = Span::new(offset, len as u64);
    assert_eq!(crcs.len() as u64, span.count());
    let mut rest = &buf[..];
    for (slice, crc) in (span.first()..).zip(crcs) {
        let (from, len) = span.part(slice);
        let (part, after) = rest.split_at(len);
        rest = after;
        let stored = len == SLICE_BYTES || (from == 0 && span.end() == done.chunk_bytes);
        let expected = if stored {
            slice_crc(chunk, slice, part)
        } else {
            fragment_crc(chunk, slice, from as u32, part)
        };
        assert_eq!(crc, expected, "slice {slice} of chunk {chunk}");
    }
    Ok(buf)
}

/// One change, as tests make them up.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Create(ChunkId),
    CreateUnfinished(ChunkId),
    Finish(ChunkId),
    Write(ChunkId, u64, Vec<u8>),
    Delete(ChunkId),
}

/// What the store should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) chunks: BTreeMap<ChunkId, Vec<u8>>,
}

impl Model {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Create(chunk) | Change::CreateUnfinished(chunk) => {
                self.chunks.insert(*chunk, Vec::new());
            }
            Change::Finish(_) => {}
            Change::Write(chunk, offset, bytes) => {
                let content = self.chunks.get_mut(chunk).expect("the store took the write");
                let end = *offset as usize + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset as usize..end].copy_from_slice(bytes);
            }
            Change::Delete(chunk) => {
                self.chunks.remove(chunk);
            }
        }
    }

    /// Everything in the store.
    pub(super) fn of<M: Media>(store: &mut Store<M>) -> Result<Self, ReadError> {
        let mut chunks = BTreeMap::new();
        for stat in store.list(None, usize::MAX) {
            let content = match stat.byte_len {
                0 => Vec::new(),
                len => read(store, stat.chunk, 0, len as usize)?,
            };
            chunks.insert(stat.chunk, content);
        }
        Ok(Self { chunks })
    }
}

impl Change {
    /// A change of one of four chunks, which may or may not make sense just now.
    pub(super) fn random(prng: &mut Prng) -> Self {
        let chunk = ChunkId(u128::from(prng.below(4)) << 64 | 7);
        match prng.below(12) {
            0 | 1 => Self::Create(chunk),
            2 => Self::Delete(chunk),
            3 => Self::CreateUnfinished(chunk),
            4 => Self::Finish(chunk),
            _ => {
                let offset = prng.below(40 << 10);
                let len = 1 + prng.below(20 << 10) as usize;
                let aligned = prng.chance(0.4);
                let (offset, len) = if aligned {
                    (offset & !4095, len.next_multiple_of(SLICE_BYTES))
                } else {
                    (offset, len)
                };
                Self::Write(chunk, offset, random_bytes(prng, len))
            }
        }
    }

    /// Stages the change; true when the store took it, false when it was refused for a reason
    /// that a sound store may have.
    pub(super) fn stage<M: Media>(&self, store: &mut Store<M>, cut: u64) -> Result<bool, Refused> {
        let refused = match self {
            Self::Create(chunk) => match store.stage_create(*chunk, None) {
                Ok(_) => return Ok(true),
                Err(CreateError::Refused(refused)) => Some(refused),
                Err(_) => None,
            },
            Self::CreateUnfinished(chunk) => match store.stage_unfinished(*chunk, None) {
                Ok(_) => return Ok(true),
                Err(CreateError::Refused(refused)) => Some(refused),
                Err(_) => None,
            },
            Self::Finish(chunk) => match finish(store, *chunk) {
                Ok(_) => return Ok(true),
                Err(FinishError::Refused(refused)) => Some(refused),
                Err(_) => None,
            },
            Self::Write(chunk, offset, bytes) => {
                let cut = cut as usize % (bytes.len() + 1);
                match stage_cut(store, *chunk, *offset, bytes, cut) {
                    Ok(_) => return Ok(true),
                    Err(WriteError::Refused(refused)) => Some(refused),
                    Err(WriteError::NoSuchChunk(_)) => None,
                    Err(WriteError::Media(_)) => Some(Refused::BatchFull),
                    Err(other) => panic!("a sound write was refused: {other}"),
                }
            }
            Self::Delete(chunk) => match store.stage_delete(*chunk) {
                Ok(_) => return Ok(true),
                Err(DeleteError::Refused(refused)) => Some(refused),
                Err(_) => None,
            },
        };
        match refused {
            None | Some(Refused::NoSpace) => Ok(false),
            Some(other) => Err(other),
        }
    }
}
