//! Files of a store as far as they can be read, and the copies of a log in its file.

use std::fmt;
use std::io;

use super::damage::{Damage, DamageKind};
use super::error::OpenError;
use super::header::{
    FILE_HEADER_BYTES, FORMAT_VERSION_PLAIN, FileHeader, FileKind, HeaderError, log_name,
};
use super::limits::{LOG_BYTES_MAX, LOG_BYTES_MIN};
use super::log::key_of;
use super::media::{Media, MediaError, MediaOp};
use super::record::{RECORD_ALIGN, RECORD_HEADER_BYTES, parse_frame};
use super::scan::{Differing, Scan};

/// Bytes that are given up together when they cannot be read.
const PAGE_BYTES: u64 = 4096;

/// A file as it was read.
pub(super) struct Image<F> {
    pub(super) file: F,
    /// What cannot be read is zeros here.
    pub(super) bytes: Vec<u8>,
    /// Offsets of the pages that cannot be read.
    pub(super) unreadable: Vec<u64>,
}

/// Reads file `name`, page by page where it cannot be read at once.
///
/// # Errors
/// Any that does not look like a bad place of the medium.
pub(super) fn read_image<M: Media>(media: &M, name: &str) -> Result<Image<M::File>, MediaError> {
    let file = media.open(name).map_err(MediaError::at(MediaOp::Open, name, 0))?;
    let len = media.len(&file).map_err(MediaError::at(MediaOp::Read, name, 0))?;
    let mut bytes = vec![0; len as usize];
    let mut unreadable = Vec::new();
    if let Err(error) = media.read_at(&file, 0, &mut bytes) {
        if !is_bad_place(&error) {
            return Err(MediaError::at(MediaOp::Read, name, 0)(error));
        }
        for (offset, page) in (0..).step_by(PAGE_BYTES as usize).zip(bytes.chunks_mut(4096)) {
            // A bad read is not yet a bad medium.
            let mut read = media.read_at(&file, offset, page);
            if read.is_err() {
                read = media.read_at(&file, offset, page);
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
    Ok(Image { file, bytes, unreadable })
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
    Foreign(HeaderError),
    /// None of its headers can be read.
    Damaged(HeaderError),
}

impl fmt::Display for NoLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the file is missing"),
            Self::Unused => f.write_str("the file holds nothing but zeros"),
            Self::Foreign(error) | Self::Damaged(error) => error.fmt(f),
        }
    }
}

/// A log as it was read.
pub(super) struct LogImage<F> {
    pub(super) file: F,
    /// Its header, as it is in one copy or should be.
    pub(super) header: FileHeader,
    /// Bytes of one copy.
    pub(super) size_bytes: u64,
    copies: Vec<Vec<u8>>,
    /// The file ends before its copies do.
    pub(super) is_short: bool,
    /// Bytes of the file.
    file_bytes: u64,
    unreadable: Vec<u64>,
    bad_headers: Vec<u64>,
}

/// Reads the log of `generation`. `map` is the header of its map, where that is known: then the
/// log needs no header of its own.
///
/// # Errors
/// A newer version, and a medium that fails.
pub(super) fn read_log<M: Media>(
    media: &M,
    names: &[String],
    generation: u64,
    map: Option<&FileHeader>,
) -> Result<Result<LogImage<M::File>, NoLog>, OpenError> {
    let name = log_name(generation);
    if !names.contains(&name) {
        return Ok(Err(NoLog::Missing));
    }
    let Image { file, bytes, unreadable } = read_image(media, &name)?;
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
    let header = match found.clone().find(|header| ours(header).is_ok()) {
        Some(header) => header,
        None => match (found.clone().next(), map) {
            (Some(other), _) => {
                let why = ours(&other).err().unwrap_or(HeaderError::Crc);
                return Ok(Err(NoLog::Foreign(why)));
            }
            // It has nothing of the log that was here, so what that had is not known.
            (None, Some(map)) if !has_records_of(&bytes, size, map) => {
                return Ok(Err(NoLog::Damaged(first.err().unwrap_or(HeaderError::Crc))));
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
            (None, None) => {
                return Ok(Err(NoLog::Damaged(first.err().unwrap_or(HeaderError::Crc))));
            }
        },
    };
    Ok(Ok(LogImage::new(file, bytes, unreadable, header)))
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

impl<F> LogImage<F> {
    fn new(file: F, mut bytes: Vec<u8>, unreadable: Vec<u64>, header: FileHeader) -> Self {
        let len = bytes.len();
        let is_plain = header.version == FORMAT_VERSION_PLAIN;
        let (copies, size) = match is_plain {
            true => (1, len.max(LOG_BYTES_MIN as usize)),
            false => (2, header.body_len as usize),
        };
        bytes.resize(copies * size, 0);
        let copies: Vec<_> = bytes.chunks_exact(size).map(<[u8]>::to_vec).collect();
        let bad_headers = copies
            .iter()
            .enumerate()
            .filter(|(_, copy)| FileHeader::parse(FileKind::Log, copy) != Ok(header))
            .map(|(number, _)| (number * size) as u64)
            .collect();
        let is_short = len < copies.len() * size;
        let size_bytes = size as u64;
        Self {
            file,
            header,
            size_bytes,
            copies,
            is_short,
            file_bytes: len as u64,
            unreadable,
            bad_headers,
        }
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

    /// What is damaged in it and whole in the other copy; `differing` is what a scan found.
    pub(super) fn damage(&self, differing: &[Differing]) -> Vec<Damage> {
        let file = log_name(self.header.number);
        let header = |offset: &u64| Damage {
            file: file.clone(),
            offset: *offset,
            kind: DamageKind::LogHeader,
        };
        let mut found: Vec<_> = self.bad_headers.iter().map(header).collect();
        let mut ranges: Vec<(u64, u64, u64)> = Vec::new();
        let mut sorted = differing.to_vec();
        sorted.sort_by_key(|part| (part.copy, part.offset));
        for part in sorted {
            let offset = part.copy as u64 * self.size_bytes + part.offset;
            match ranges.last_mut() {
                Some((start, end, records)) if *end == offset && offset > *start => {
                    *end += part.byte_len;
                    *records += 1;
                }
                _ => ranges.push((offset, offset + part.byte_len, 1)),
            }
        }
        let is_known = |page: u64| {
            self.bad_headers.contains(&page)
                || ranges.iter().any(|(start, end, _)| page < *end && page + PAGE_BYTES > *start)
        };
        let unused: Vec<_> = self.unreadable.iter().filter(|page| !is_known(**page)).collect();
        ranges.extend(unused.into_iter().map(|page| (*page, page + PAGE_BYTES, 0)));
        found.extend(ranges.into_iter().map(|(start, end, records)| Damage {
            file: file.clone(),
            offset: start,
            kind: DamageKind::LogCopy { byte_len: end - start, records },
        }));
        found
    }
}
