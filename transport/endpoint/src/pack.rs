//! Packs: short chunks that leave as one SEND, one behind the other (docs/protocol.md section 3).
//! A short message costs a device more than its bytes, so those that are ready at the same time
//! share what a work request and a packet cost. None waits for another.

use crate::held::Held;
use towpath_memory::{MemoryError, Pool};
use towpath_proto::limits::HEADER_BYTES;
use towpath_proto::wire::next_in_pack;
use towpath_verbs::Sge;

/// Memory for packs, each of a packet.
#[derive(Default)]
pub(crate) struct Packs {
    packs: Vec<(Held, Sge)>,
    free: Vec<u16>,
    /// What one may hold, headers included.
    bytes_max: usize,
}

/// A pack that chunks may still join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pack: u16,
    bytes: usize,
}

impl Packs {
    /// So many packs of `bytes`, and their pool, to be registered.
    pub(crate) fn new(count: u16, bytes: usize) -> Result<(Self, Pool), MemoryError> {
        let pool = Pool::with_count(bytes, usize::from(count))?;
        let pack = |_| {
            let mut buf = pool.take()?;
            buf.set_len(bytes).ok()?;
            Some((Held::new(buf), Sge::default()))
        };
        let packs: Vec<_> = (0..count).map_while(pack).collect();
        let free = (0..packs.len() as u16).collect();
        Ok((Self { packs, free, bytes_max: bytes }, pool))
    }

    /// The key of the pool. Nothing is posted yet.
    pub(crate) fn set_lkey(&mut self, lkey: u32) {
        for (held, sge) in &mut self.packs {
            // Lent for as long as it takes to ask for the address.
            held.lend();
            *sge = held.sge(lkey, self.bytes_max);
            held.reclaim();
        }
    }

    /// A packet is no longer than this: both ends have agreed.
    pub(crate) fn limit(&mut self, packet_bytes: usize) {
        self.bytes_max = self.bytes_max.min(packet_bytes);
    }

    /// One that nothing is in, with room for a chunk of so many bytes of payload. None where a
    /// packet is shorter than that, or the device has all.
    pub(crate) fn open(&mut self, payload_bytes: usize) -> Option<Open> {
        if HEADER_BYTES + payload_bytes > self.bytes_max {
            return None;
        }
        self.free.pop().map(|pack| Open { pack, bytes: 0 })
    }

    /// Whether a chunk of so many bytes of payload finds room.
    pub(crate) fn has_room(&self, open: &Open, payload_bytes: usize) -> bool {
        open.bytes + HEADER_BYTES + payload_bytes <= self.bytes_max
    }

    /// Adds a chunk, for which there is room.
    pub(crate) fn add(
        &mut self,
        open: &mut Open,
        payload: &[u8],
        write: impl FnOnce(&mut [u8; HEADER_BYTES]),
    ) {
        let (held, _) = &mut self.packs[usize::from(open.pack)];
        let Some(room) = held.buf_mut().and_then(|buf| buf.get_mut(open.bytes..)) else { return };
        let Some((header, room)) = room.split_first_chunk_mut() else { return };
        write(header);
        room[..payload.len()].copy_from_slice(payload);
        let end = next_in_pack(payload.len());
        room[payload.len()..end].fill(0);
        open.bytes += HEADER_BYTES + end;
    }

    /// What is in it, for the device to read.
    pub(crate) fn lend(&mut self, open: &Open) -> Sge {
        let (held, sge) = &mut self.packs[usize::from(open.pack)];
        held.lend();
        Sge { length: open.bytes as u32, ..*sge }
    }

    /// The device has returned it.
    pub(crate) fn take_home(&mut self, pack: u16) {
        if let Some((held, _)) = self.packs.get_mut(usize::from(pack)) {
            held.reclaim();
            self.free.push(pack);
        }
    }
}

impl Open {
    /// Which it is.
    pub(crate) fn pack(&self) -> u16 {
        self.pack
    }
}
