//! Resident chunks: their slices are kept in memory as well, as the commits leave them.

use super::followers::Watch;
use super::read::stored_crc;
use super::state::StoreCore;
use crate::store::error::LookError;
use crate::store::place::slices_in;
use crate::store::residence::{Located, Residence, SlicePlace};
use crate::store::slice::{ChunkId, slice_crc};

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Keeps the slices of resident chunks in `residence` from now on, and fills it with those
    /// that are there, chunk by chunk in the order of their names; it waits for the disk. Those
    /// that do not fit are left out whole, and served from the disk alone. Gives how many chunks
    /// were taken in, and how many left out. To be called before the first request.
    ///
    /// # Errors
    /// The system does not speak of the disk any more.
    pub fn keep_in(&mut self, mut residence: Box<dyn Residence>) -> std::io::Result<(u64, u64)> {
        let (mut taken, mut left_out) = (0, 0);
        let mut disk = self.io.blocking();
        let chunks = self.map.chunks.iter();
        for (&id, chunk) in chunks.filter(|(_, c)| c.head.resident && !c.head.suspect) {
            residence.place(id);
            if !residence.grow(id, slices_in(chunk.head.byte_len), chunk.head.version) {
                residence.remove(id);
                left_out += 1;
                continue;
            }
            taken += 1;
            for (slice, found) in chunk.slices_from(0) {
                let place = SlicePlace { chunk: id, slice };
                let logged = self.away.get(found.page).and_then(|bytes| {
                    Some(Box::new(<super::page::PageBytes>::try_from(&bytes[..]).ok()?))
                });
                let page = match self.layout.has(found.page) && logged.is_none() {
                    true => disk.page(self.layout.data_page(found.page))?,
                    false => logged,
                };
                let sound = page.filter(|page| slice_crc(id, slice, &page[..]) == found.crc);
                if sound.is_none() {
                    tracing::error!(chunk = %id, slice, "a slice of a resident chunk is damaged");
                }
                let crc = stored_crc(id, slice, found);
                let content = sound.as_ref().map(|page| (crc, &page[..]));
                residence.put(place, chunk.head.version, content);
            }
        }
        self.followers.keep_in(residence);
        Ok((taken, left_out))
    }

    /// Where the slices of a chunk lie in memory, from slice `first_slice` on.
    ///
    /// # Errors
    /// See [`LookError`].
    pub fn locate(
        &self,
        chunk: ChunkId,
        first_slice: u64,
        runs_max: usize,
    ) -> Result<Located, LookError> {
        let head = self.told(chunk)?.head;
        let slots = self.followers.runs(chunk, first_slice, runs_max);
        Ok(Located { version: head.version, byte_len: head.byte_len, slots })
    }

    /// Has `watch` told of all chunks that come and go from now on.
    pub fn watch(&mut self, watch: Box<dyn Watch>) {
        self.followers.watch(watch);
    }
}
