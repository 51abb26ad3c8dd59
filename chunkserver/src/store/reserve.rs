//! The log and the map that are not current: the generation before, and the room of the next.

use super::checkpoint::write_map;
use super::header::{FILE_HEADER_BYTES, FileHeader, MAP_TEMPORARY, log_name, map_name, number_in};
use super::limits::{LOG_BYTES_MIN, LOG_COPIES, MAP_GROWTH_BYTES_MIN};
use super::log::write_log;
use super::media::{Media, MediaError, MediaOp};
use super::slice::SLICE_BYTES;

/// A file that the next checkpoint writes anew.
#[derive(Debug)]
pub(crate) struct Spare<F> {
    pub(crate) name: String,
    pub(crate) file: F,
}

impl<F> Spare<F> {
    fn rename<M: Media<File = F>>(&mut self, media: &M, to: String) -> Result<(), MediaError> {
        if self.name != to {
            media.rename(&self.name, &to).map_err(MediaError::at(MediaOp::Rename, &to, 0))?;
            self.name = to;
        }
        Ok(())
    }
}

/// Two logs and two maps take turns. Those of the generation before stay as they are until the
/// next checkpoint, which writes into their files: it makes and opens none, and needs no room
/// that the medium may not have (docs/store-format.md section 6).
#[derive(Debug)]
pub(crate) struct Reserve<F> {
    /// None where the medium had no room for it yet.
    pub(crate) log: Option<Spare<F>>,
    /// None where the medium had no room for it yet.
    pub(crate) map: Option<Spare<F>>,
    /// The current map; the checkpoint after the next writes into it.
    pub(crate) current_map: F,
    /// Bytes that both maps have room for; zero while anything is missing.
    pub(crate) map_bytes: u64,
}

impl<F> Reserve<F> {
    /// Nothing: for a store that makes no checkpoint.
    pub(crate) fn none(current_map: F) -> Self {
        Self { log: None, map: None, current_map, map_bytes: 0 }
    }

    /// Opens the files of `names` that are not those of `generation`, one log and one map, the ones
    /// of the generation before if they are there; removes all others.
    pub(crate) fn open<M: Media<File = F>>(
        media: &M,
        names: &[String],
        generation: u64,
    ) -> Result<Self, MediaError> {
        let open = |name: &str| media.open(name).map_err(MediaError::at(MediaOp::Open, name, 0));
        let mut reserve =
            Self { log: None, map: None, current_map: open(&map_name(generation))?, map_bytes: 0 };
        let is_log = |n: &&String| number_in(n, "log.").is_some_and(|found| found != generation);
        let is_map = |n: &&String| {
            // What a repair that was interrupted has left as well.
            n.starts_with(MAP_TEMPORARY) || number_in(n, "map.").is_some_and(|g| g != generation)
        };
        let mut logs: Vec<_> = names.iter().filter(is_log).collect();
        let mut maps: Vec<_> = names.iter().filter(is_map).collect();
        for (found, before, slot) in [
            (&mut logs, log_name(generation - 1), &mut reserve.log),
            (&mut maps, map_name(generation - 1), &mut reserve.map),
        ] {
            found.sort_by_key(|name| **name == before);
            if let Some(name) = found.pop() {
                *slot = Some(Spare { name: name.clone(), file: open(name)? });
            }
        }
        for name in logs.into_iter().chain(maps) {
            media.remove(name).map_err(MediaError::at(MediaOp::Rename, name, 0))?;
        }
        Ok(reserve)
    }

    /// Makes what is missing for the checkpoint to `generation`, and makes it last.
    ///
    /// # Errors
    /// A full medium among others.
    pub(crate) fn complete<M: Media<File = F>>(
        &mut self,
        media: &M,
        generation: u64,
        log_bytes: u64,
    ) -> Result<(), MediaError> {
        if self.log.is_none() {
            self.log = Some(make(media, log_name(generation))?);
        }
        if self.map.is_none() {
            self.map = Some(make(media, MAP_TEMPORARY.to_owned())?);
        }
        let Spare { name, file } = self.log_mut();
        let failed = |op| MediaError::at(op, name, 0);
        if media.len(file).map_err(failed(MediaOp::Read))? < LOG_COPIES * LOG_BYTES_MIN {
            media.allocate(file, 0..LOG_COPIES * log_bytes).map_err(failed(MediaOp::Write))?;
            media.fdatasync(file).map_err(failed(MediaOp::Flush))?;
        }
        // Both names are new, or were when nothing could be grown.
        if self.map_bytes == 0 {
            media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0))?;
        }
        let len = |file: &F| media.len(file).map_err(MediaError::at(MediaOp::Read, "map", 0));
        let spare = len(&self.map_mut().file)?;
        self.map_bytes = spare.min(len(&self.current_map)?);
        Ok(())
    }

    /// Gives both maps room for `byte_len` bytes, and more if there is more. It is durable then:
    /// whatever it is for may be so too.
    pub(crate) fn grow_maps<M: Media<File = F>>(
        &mut self,
        media: &M,
        byte_len: u64,
    ) -> Result<(), MediaError> {
        let step = (byte_len / 16).max(MAP_GROWTH_BYTES_MIN);
        let page = FILE_HEADER_BYTES as u64;
        let mut grown = byte_len.next_multiple_of(step).next_multiple_of(page);
        let spare = self.map.as_ref().expect(COMPLETE);
        let files = [&spare.file, &self.current_map];
        let failed = |op| MediaError::at(op, "map", byte_len);
        let allocate = |to: u64| files.iter().try_for_each(|file| media.allocate(file, 0..to));
        if let Err(error) = allocate(grown).map_err(failed(MediaOp::Write)) {
            if !error.is_full() {
                return Err(error);
            }
            grown = byte_len.next_multiple_of(page);
            allocate(grown).map_err(failed(MediaOp::Write))?;
        }
        files.iter().try_for_each(|file| media.fdatasync(file)).map_err(failed(MediaOp::Flush))?;
        self.map_bytes = grown;
        Ok(())
    }

    /// Takes the names of the generation before from the spare files. Once the directory is flushed
    /// they may be written over: under its names lies nothing but what that generation wrote.
    pub(crate) fn rename<M: Media<File = F>>(
        &mut self,
        media: &M,
        generation: u64,
    ) -> Result<(), MediaError> {
        self.log_mut().rename(media, log_name(generation))?;
        self.map_mut().rename(media, MAP_TEMPORARY.to_owned())
    }

    /// Writes an empty log over the spare one, and flushes it; gives the size of one copy in bytes,
    /// which is `log_bytes` unless the medium has no room for that.
    pub(crate) fn write_log<M: Media<File = F>>(
        &mut self,
        media: &M,
        header: &FileHeader,
        log_bytes: u64,
    ) -> Result<u64, MediaError> {
        let Spare { name, file } = self.log_mut();
        let failed = |error| MediaError::at(MediaOp::Write, name, 0)(error);
        let wanted = LOG_COPIES * log_bytes;
        let mut file_bytes = media.len(file).map_err(failed)?;
        if file_bytes > wanted {
            media.set_len(file, wanted).map_err(failed)?;
            file_bytes = wanted;
        }
        if file_bytes < wanted {
            match media.allocate(file, 0..wanted).map_err(failed) {
                Ok(()) => file_bytes = wanted,
                Err(error) if error.is_full() && file_bytes >= LOG_COPIES * LOG_BYTES_MIN => {}
                Err(error) => return Err(error),
            }
        }
        let size_bytes = file_bytes / LOG_COPIES / SLICE_BYTES as u64 * SLICE_BYTES as u64;
        write_log(media, name, file, header, size_bytes)?;
        Ok(size_bytes)
    }

    /// Writes a checkpoint over the spare map, and flushes it.
    pub(crate) fn write_map<M: Media<File = F>>(
        &mut self,
        media: &M,
        bytes: &[u8],
    ) -> Result<(), MediaError> {
        let Spare { name, file } = self.map_mut();
        write_map(media, name, file, bytes)
    }

    /// Gives the spare map the name that makes it and the spare log the current ones.
    pub(crate) fn publish<M: Media<File = F>>(
        &mut self,
        media: &M,
        generation: u64,
    ) -> Result<(), MediaError> {
        self.map_mut().rename(media, map_name(generation))
    }

    /// The spare files, those of `generation` by now, become the current ones and the current ones
    /// spare; `log` is the file of the current log.
    pub(crate) fn take_turns(&mut self, log: &mut F, generation: u64) {
        std::mem::swap(log, &mut self.log_mut().file);
        self.log_mut().name = log_name(generation - 1);
        let map = self.map.as_mut().expect(COMPLETE);
        std::mem::swap(&mut self.current_map, &mut map.file);
        map.name = map_name(generation - 1);
    }

    fn log_mut(&mut self) -> &mut Spare<F> {
        self.log.as_mut().expect(COMPLETE)
    }

    fn map_mut(&mut self) -> &mut Spare<F> {
        self.map.as_mut().expect(COMPLETE)
    }
}

/// Why a checkpoint finds its files.
const COMPLETE: &str = "what was missing is made first";

/// Makes an empty file.
fn make<M: Media>(media: &M, name: String) -> Result<Spare<M::File>, MediaError> {
    let file = media.create(&name).map_err(MediaError::at(MediaOp::Create, &name, 0))?;
    Ok(Spare { name, file })
}
