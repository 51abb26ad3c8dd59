//! Files of an old store as far as they can be read, and the copies of a log in its file.

use std::io;
use std::os::unix::fs::FileExt as _;

use super::folder::{OldFolder, byte_len};
use super::header::{
    FILE_HEADER_BYTES, FORMAT_VERSION_PLAIN, FileHeader, FileKind, HeaderError, log_name,
};
use super::limits::{LOG_BYTES_MAX, LOG_BYTES_MIN};
use super::scan::Scan;
use crate::store::error::OpenError;
use crate::store::media::{MediaError, MediaOp};
use crate::store::record::{LogKey, RECORD_ALIGN, RECORD_HEADER_BYTES, parse_frame};

/// Bytes that are given up together when they cannot be read.
const PAGE_BYTES: u64 = 4096;

/// A file as it was read.
pub(super) struct Image {
    /// What cannot be read is zeros here.
    pub(super) bytes: Vec<u8>,
    /// Offsets of the pages that cannot be read.
    pub(super) unreadable: Vec<u64>,
}

/// Reads file `name`, page by page where it cannot be read at once.
///
/// # Errors
/// Any that does not look like a bad place of the medium.
pub(super) fn read_image(folder: &OldFolder, name: &str) -> Result<Image, MediaError> {
    let file = folder.open(name)?;
    let mut bytes = vec![0; byte_len(&file, name)? as usize];
    let mut unreadable = Vec::new();
    if let Err(error) = file.read_exact_at(&mut bytes, 0) {
        if !is_bad_place(&error) {
            return Err(MediaError::at(MediaOp::Read, name, 0)(error));
        }
        for (offset, page) in (0..).step_by(PAGE_BYTES as usize).zip(bytes.chunks_mut(4096)) {
            // A bad read is not yet a bad medium.
            let mut read = file.read_exact_at(page, offset);
            if read.is_err() {
                read = file.read_exact_at(page, offset);
            }
            match read {
                Ok(()) => {}
                Err(error) if is_bad_place(&error) => {
                    page.fill(0);
                    unreadable.push(offset);
                }
                Err(error) => return Err(MediaError::at(MediaOp::Read, name, offset)(error)),
            }
        }
    }
    Ok(Image { bytes, unreadable })
}

/// Whether a read failed at this place only, as far as the error says.
pub(super) fn is_bad_place(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let places = [
        Errno::EIO,
        Errno::EBADMSG,
        Errno::EILSEQ,
        Errno::ENODATA,
        Errno::EREMOTEIO,
        Errno::EUCLEAN,
    ];
    match error.raw_os_error() {
        Some(number) => places.iter().any(|place| *place as i32 == number),
        None => error.kind() == io::ErrorKind::Other,
    }
}

/// Why a log cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoLog {
    /// It is not there.
    Missing,
    /// It was never written to.
    Unused,
    /// It is another log.
    Foreign,
    /// None of its headers can be read.
    Damaged,
}

/// A log as it was read.
pub(super) struct LogImage {
    /// Its header, as it is in one copy or should be.
    pub(super) header: FileHeader,
    /// Bytes of one copy.
    size_bytes: u64,
    copies: Vec<Vec<u8>>,
    /// Bytes of the file.
    file_bytes: u64,
    unreadable: Vec<u64>,
}

/// Reads the log of `generation`. `map` is the header of its map, where that is known: then the
/// log needs no header of its own.
///
/// # Errors
/// A newer version, and a medium that fails.
pub(super) fn read_log(
    folder: &OldFolder,
    names: &[String],
    generation: u64,
    map: Option<&FileHeader>,
) -> Result<Result<LogImage, NoLog>, OpenError> {
    let name = log_name(generation);
    if !names.contains(&name) {
        return Ok(Err(NoLog::Missing));
    }
    let Image { bytes, unreadable } = read_image(folder, &name)?;
    let len = bytes.len() as u64;
    let first = FileHeader::parse(FileKind::Log, &bytes);
    let is_size = |size: &u64| (LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(size);
    let said = first.ok().map(|header| header.body_len).filter(is_size);
    let size = said.unwrap_or((len / 2).next_multiple_of(FILE_HEADER_BYTES as u64));
    let second = bytes.get(size as usize..).ok_or(HeaderError::Short);
    let second = second.and_then(|bytes| FileHeader::parse(FileKind::Log, bytes));
    for error in [first, second].into_iter().filter_map(Result::err) {
        if matches!(error, HeaderError::Version { .. }) {
            return Err(OpenError::Header { file: name, source: error });
        }
    }
    let ours = |header: &FileHeader| match map {
        Some(map) => belongs_to_map(header, map),
        None => header.belongs(header, generation),
    };
    let found = [first, second].into_iter().flatten();
    let has_size =
        |header: &FileHeader| header.version == FORMAT_VERSION_PLAIN || is_size(&header.body_len);
    let header = match found.clone().find(|header| ours(header).is_ok()) {
        Some(header) if has_size(&header) => header,
        Some(_) => return Ok(Err(NoLog::Damaged)),
        None => match (found.clone().next(), map) {
            (Some(_), _) => return Ok(Err(NoLog::Foreign)),
            // It has nothing of the log that was here, so what that had is not known.
            (None, Some(map)) if !has_records_of(&bytes, size, map) => {
                return Ok(Err(NoLog::Damaged));
            }
            (None, Some(map)) => FileHeader {
                kind: FileKind::Log,
                body_crc: 0,
                chunk_count: 0,
                body_len: if map.version == FORMAT_VERSION_PLAIN { 0 } else { size },
                ..*map
            },
            (None, None) if unreadable.is_empty() && bytes.iter().all(|b| *b == 0) => {
                return Ok(Err(NoLog::Unused));
            }
            (None, None) => return Ok(Err(NoLog::Damaged)),
        },
    };
    Ok(Ok(LogImage::new(bytes, unreadable, header)))
}

/// The key of the records of the log with this header.
fn key_of(header: &FileHeader) -> LogKey {
    match header.version {
        FORMAT_VERSION_PLAIN => LogKey::PLAIN,
        _ => LogKey::new(header.log_nonce),
    }
}

/// Whether a file without a sound header is the log that follows `map`: it has a sound record
/// header of that log, and room for copies of `size`.
fn has_records_of(bytes: &[u8], size: u64, map: &FileHeader) -> bool {
    let key = key_of(map);
    let is_long = map.version == FORMAT_VERSION_PLAIN || size >= LOG_BYTES_MIN;
    let mut places = bytes.windows(RECORD_HEADER_BYTES).step_by(RECORD_ALIGN);
    is_long
        && places.any(|header| {
            parse_frame(header, key).is_some_and(|frame| frame.generation == map.number)
        })
}

/// Whether a log is the one that follows the map with this header.
fn belongs_to_map(log: &FileHeader, map: &FileHeader) -> Result<(), HeaderError> {
    log.belongs(map, map.number)?;
    let fields = [
        ("next_sequence", map.next_sequence, log.next_sequence),
        ("log_nonce", map.log_nonce, log.log_nonce),
    ];
    match fields.into_iter().find(|(_, expected, found)| expected != found) {
        Some((field, expected, found)) => Err(HeaderError::Foreign { field, expected, found }),
        None => Ok(()),
    }
}

impl LogImage {
    fn new(mut bytes: Vec<u8>, unreadable: Vec<u64>, header: FileHeader) -> Self {
        let len = bytes.len();
        let is_plain = header.version == FORMAT_VERSION_PLAIN;
        let (copies, size) = match is_plain {
            true => (1, len.max(LOG_BYTES_MIN as usize)),
            false => (2, header.body_len as usize),
        };
        bytes.resize(copies * size, 0);
        let copies = bytes.chunks_exact(size).map(<[u8]>::to_vec).collect();
        Self { header, size_bytes: size as u64, copies, file_bytes: len as u64, unreadable }
    }

    /// Reads its records, the first of which is `next_sequence`. `proven` is the last one that is
    /// known to have been on stable media.
    pub(super) fn scan(&self, next_sequence: u64, proven: u64) -> Scan<'_> {
        let key = key_of(&self.header);
        Scan::new(&self.copies, key, self.header.number, FILE_HEADER_BYTES, next_sequence, proven)
    }

    /// Whether it is not known that the records end at `at`: the file is shorter than one copy, or
    /// the page at `at` cannot be read in any.
    pub(super) fn is_gone_at(&self, at: u64) -> bool {
        let is_plain = self.header.version == FORMAT_VERSION_PLAIN;
        // The first version let its logs grow.
        let is_cut = !is_plain && self.file_bytes < self.size_bytes;
        let cannot_read = |copy: u64| {
            let place = copy * self.size_bytes + at;
            let is_past_end = !is_plain && place >= self.file_bytes;
            is_past_end || self.unreadable.contains(&(place / PAGE_BYTES * PAGE_BYTES))
        };
        at < self.size_bytes && (is_cut || (0..self.copies.len() as u64).all(cannot_read))
    }
}
