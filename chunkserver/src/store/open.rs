//! Opening: the checkpoint, the replay of the log, and the end of the log made sound again.

use std::collections::HashMap;
use std::io;

use super::checkpoint::{encode_checkpoint, write_map};
use super::config::StoreConfig;
use super::engine::Store;
use super::error::{OpenError, WriteError};
use super::fullness::Said;
use super::header::{FileHeader, FileKind, MAP_TEMPORARY, map_name};
use super::limits::BACK_PAGES_MAX;
use super::load::{Loaded, load, stand_in};
use super::log::make_log;
use super::map::ChunkMap;
use super::mark::{Mark, Marker};
use super::media::{Media, MediaError, MediaOp};
use super::reserve::Reserve;
use super::scrub::ScrubCursor;
use super::segments::{identity_of, open_segments};
use super::settle::put_right;
use super::slice::SLICE_BYTES;
use super::space::Space;
use super::stats::StoreStats;

impl<M: Media> Store<M> {
    /// Opens the store on `media`, and makes one if there is none.
    ///
    /// Takes time in proportion to checkpoint and log, not to the data.
    ///
    /// # Errors
    /// See [`OpenError`]; the files are as they were. Damage is no error as long as any of the maps
    /// and the logs after it can be read: see [`damage`](Self::damage).
    pub fn open(mut media: M, config: StoreConfig) -> Result<Self, OpenError> {
        config.check()?;
        lock(&mut media)?;
        Self::open_locked(media, config)
    }

    /// As [`open`](Self::open), where the caller has the lock.
    pub(super) fn open_locked(media: M, config: StoreConfig) -> Result<Self, OpenError> {
        let segment_pages = config.segment_pages()?;
        let capacity_pages = config.capacity_pages()?;
        let log_bytes = config.checked_log_bytes()?;
        let mut names = list(&media)?;
        let mark = Mark::read(&media, &names)?;
        let loaded = match load(&media, &names, mark.as_ref())? {
            Some(loaded) => loaded,
            None => {
                let identity = FileHeader::new(FileKind::Map, config.store_id, 0, segment_pages);
                format(&media, &identity, log_bytes)?;
                names = list(&media)?;
                load(&media, &names, None)?.ok_or(OpenError::MapMissing)?
            }
        };
        let mut store = Self::of(media, config, &names, loaded, capacity_pages)?;
        if !store.is_lossy {
            store.get_room()?;
        }
        Ok(store)
    }

    /// The store that was read. Where changes that were acknowledged are lost, no file is touched.
    fn of(
        media: M,
        config: StoreConfig,
        names: &[String],
        mut loaded: Loaded<M::File>,
        capacity_pages: u64,
    ) -> Result<Self, OpenError> {
        let is_lossy = loaded.is_lossy();
        let identity = identity_of(&loaded.header);
        let mut segments = open_segments(&media, names, &identity, &loaded.map)?;
        let mut space = Space::new(identity.segment_pages, capacity_pages);
        for (index, file) in (0u32..).zip(&segments.pages.files) {
            space.add_segment();
            if file.is_none() {
                space.shun_segment(index);
            }
        }
        let claimed = space.claim(loaded.map.pages(), is_lossy);
        claimed.map_err(|clash| OpenError::Page { page: clash.0 })?;
        loaded.damage.append(&mut segments.damage);
        let reserve = if is_lossy {
            Reserve::none(stand_in(&media, names, loaded.header.number)?)
        } else {
            put_right(&media, &config, names, &loaded, &segments)?
        };
        let Loaded { map, log, damage, .. } = loaded;
        let marker = Marker::new(log.log.durable_sequence);
        let pages = segments.pages;
        Ok(Self {
            media,
            config,
            identity,
            pages,
            log: log.log,
            reserve,
            map,
            space,
            back_pages: BACK_PAGES_MAX,
            said: Said::default(),
            failed: None,
            damage,
            is_lossy,
            marker,
            staged: Vec::new(),
            pending: HashMap::new(),
            pending_chunks: 0,
            residence: None,
            promised_slots: 0,
            dirty: Vec::new(),
            scratch: Box::new([0; SLICE_BYTES]),
            extents: Vec::new(),
            crcs: Vec::new(),
            spare_slices: Vec::new(),
            scrub: ScrubCursor::default(),
            counts: StoreStats {
                records_replayed: log.records,
                torn_tail_bytes: log.torn_bytes,
                ..StoreStats::default()
            },
            #[cfg(test)]
            bug: None,
        })
    }

    fn get_room(&mut self) -> Result<(), OpenError> {
        match self.adopt() {
            Err(WriteError::Media(error)) => return Err(error.into()),
            // A failed flush: the opened store says so to every change.
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        let segment_bytes = u64::from(self.identity.segment_pages) * SLICE_BYTES as u64;
        let wanted = self.config.preallocate_bytes.div_ceil(segment_bytes);
        while (self.pages.files.len() as u64) < wanted && self.space.may_grow() {
            match self.add_segment(true) {
                Ok(true) => {}
                Ok(false) => break,
                Err(WriteError::Media(error)) => return Err(error.into()),
                // A failed flush: the opened store says so to every change.
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// Keeps all others away.
pub(super) fn lock<M: Media>(media: &mut M) -> Result<(), OpenError> {
    media.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked,
        _ => MediaError::at(MediaOp::Lock, ".", 0)(error).into(),
    })
}

pub(super) fn list<M: Media>(media: &M) -> Result<Vec<String>, MediaError> {
    media.list().map_err(MediaError::at(MediaOp::List, ".", 0))
}

/// Makes an empty store: its log, then its map, whose name says that all is there.
fn format<M: Media>(media: &M, identity: &FileHeader, log_bytes: u64) -> Result<(), MediaError> {
    let header = FileHeader { number: 1, next_sequence: 1, log_nonce: media.random(), ..*identity };
    make_log(media, &FileHeader { kind: FileKind::Log, ..header }, log_bytes)?;
    let name = MAP_TEMPORARY;
    let file = media.create(name).map_err(MediaError::at(MediaOp::Create, name, 0))?;
    write_map(media, name, &file, &encode_checkpoint(header, &ChunkMap::default()))?;
    media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0))?;
    let name = map_name(1);
    media.rename(MAP_TEMPORARY, &name).map_err(MediaError::at(MediaOp::Rename, &name, 0))?;
    media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0))
}
