//! The page that each file of a store begins with (docs/store-format.md section 3).

use thiserror::Error;
use towpath_base::crc::crc32c;

use crate::store::bytes::{array, u32_at, u64_at};

/// Bytes of a file header: one page, so that what follows is aligned.
pub const FILE_HEADER_BYTES: usize = 4096;

/// Version of the format that new files get; every file carries its own.
pub const FORMAT_VERSION: u32 = 2;

/// The version before: its logs have no nonce. It is still read.
pub(crate) const FORMAT_VERSION_PLAIN: u32 = 1;

mod field {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const CRC: usize = 12;
    pub(super) const STORE_ID: usize = 16;
    pub(super) const NUMBER: usize = 24;
    pub(super) const SEGMENT_PAGES: usize = 32;
    pub(super) const BODY_CRC: usize = 36;
    pub(super) const NEXT_SEQUENCE: usize = 40;
    pub(super) const CHUNK_COUNT: usize = 48;
    pub(super) const BODY_LEN: usize = 56;
    pub(super) const LOG_NONCE: usize = 64;
    pub(super) const END_PLAIN: usize = 64;
    pub(super) const END: usize = 72;
}

/// Which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A segment of data pages.
    Data,
    /// A write-ahead log.
    Log,
    /// A checkpoint of the map.
    Map,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        match self {
            Self::Data => *b"TWPDATA\0",
            Self::Log => *b"TWPLOG\0\0",
            Self::Map => *b"TWPMAP\0\0",
        }
    }
}

/// The values of a file header; those that a kind of file does not use are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// Which file.
    pub kind: FileKind,
    /// Version of the format of this file.
    pub version: u32,
    /// The same in all files of one store.
    pub store_id: u64,
    /// Index of a segment, generation of a log or checkpoint.
    pub number: u64,
    /// Pages of a segment, its header included.
    pub segment_pages: u32,
    /// Checkpoint: checksum of the body.
    pub body_crc: u32,
    /// Log and checkpoint: the first record number that the log of this generation holds.
    pub next_sequence: u64,
    /// Checkpoint: how many chunks.
    pub chunk_count: u64,
    /// Checkpoint: bytes of the body.
    pub body_len: u64,
    /// Log and checkpoint: the random number under which the records of this generation's log
    /// have their checksums; zero in version 1.
    pub log_nonce: u64,
}

/// Why a file header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Its checksum is wrong.
    #[error("the file header is damaged: its checksum is wrong")]
    Crc,
    /// It belongs to another file or another store.
    #[error("the file header belongs elsewhere: field {field} is {found}, not {expected}")]
    Foreign {
        /// Name of the field.
        field: &'static str,
        /// What this file should say.
        expected: u64,
        /// What it says.
        found: u64,
    },
    /// It is not a file of this kind at all.
    #[error("this is no {0:?} file of a chunk store")]
    Magic(FileKind),
    /// Reserved bytes are set.
    #[error("reserved bytes of the file header are set")]
    Reserved,
    /// The file is shorter than a header.
    #[error("the file is shorter than its header")]
    Short,
    /// A format that this program does not read.
    #[error("format version {found} is newer than {FORMAT_VERSION}, the newest supported one")]
    Version {
        /// Version of the file.
        found: u32,
    },
}

impl FileHeader {
    /// A header with only the fields that every kind has.
    #[must_use]
    pub fn new(kind: FileKind, store_id: u64, number: u64, segment_pages: u32) -> Self {
        Self {
            kind,
            version: FORMAT_VERSION,
            store_id,
            number,
            segment_pages,
            body_crc: 0,
            next_sequence: 0,
            chunk_count: 0,
            body_len: 0,
            log_nonce: 0,
        }
    }

    /// The header as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut page = [0; FILE_HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| {
            page[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(field::MAGIC, &self.kind.magic());
        put(field::VERSION, &self.version.to_le_bytes());
        put(field::STORE_ID, &self.store_id.to_le_bytes());
        put(field::NUMBER, &self.number.to_le_bytes());
        put(field::SEGMENT_PAGES, &self.segment_pages.to_le_bytes());
        put(field::BODY_CRC, &self.body_crc.to_le_bytes());
        put(field::NEXT_SEQUENCE, &self.next_sequence.to_le_bytes());
        put(field::CHUNK_COUNT, &self.chunk_count.to_le_bytes());
        put(field::BODY_LEN, &self.body_len.to_le_bytes());
        put(field::LOG_NONCE, &self.log_nonce.to_le_bytes());
        let crc = crc32c(&page);
        page[field::CRC..field::CRC + 4].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// Reads the header of a file of `kind`. Never panics, whatever the bytes are.
    ///
    /// # Errors
    /// See [`HeaderError`]. Magic, checksum and version keep their places in all versions, so
    /// that an unknown version is told apart from damage.
    pub fn parse(kind: FileKind, bytes: &[u8]) -> Result<Self, HeaderError> {
        let page = bytes.get(..FILE_HEADER_BYTES).ok_or(HeaderError::Short)?;
        if page[field::MAGIC..field::VERSION] != kind.magic() {
            return Err(HeaderError::Magic(kind));
        }
        let mut plain: [u8; FILE_HEADER_BYTES] = array(page, 0);
        plain[field::CRC..field::STORE_ID].fill(0);
        if crc32c(&plain) != u32_at(page, field::CRC) {
            return Err(HeaderError::Crc);
        }
        let version = u32_at(page, field::VERSION);
        let end = match version {
            FORMAT_VERSION_PLAIN => field::END_PLAIN,
            FORMAT_VERSION => field::END,
            found => return Err(HeaderError::Version { found }),
        };
        if page[end..].iter().any(|b| *b != 0) {
            return Err(HeaderError::Reserved);
        }
        Ok(Self {
            kind,
            version,
            store_id: u64_at(page, field::STORE_ID),
            number: u64_at(page, field::NUMBER),
            segment_pages: u32_at(page, field::SEGMENT_PAGES),
            body_crc: u32_at(page, field::BODY_CRC),
            next_sequence: u64_at(page, field::NEXT_SEQUENCE),
            chunk_count: u64_at(page, field::CHUNK_COUNT),
            body_len: u64_at(page, field::BODY_LEN),
            log_nonce: u64_at(page, field::LOG_NONCE),
        })
    }

    /// Checks that it is the header of file `number` of the store that `of` belongs to.
    ///
    /// # Errors
    /// [`HeaderError::Foreign`] with the first field that differs.
    pub fn belongs(&self, of: &Self, number: u64) -> Result<(), HeaderError> {
        let fields = [
            ("store_id", of.store_id, self.store_id),
            ("number", number, self.number),
            ("segment_pages", u64::from(of.segment_pages), u64::from(self.segment_pages)),
        ];
        match fields.into_iter().find(|(_, expected, found)| expected != found) {
            Some((field, expected, found)) => Err(HeaderError::Foreign { field, expected, found }),
            None => Ok(()),
        }
    }
}

/// Name of segment `index`.
pub(crate) fn data_name(index: u32) -> String {
    format!("data.{index:04}")
}

/// Name of the log of `generation`.
pub(crate) fn log_name(generation: u64) -> String {
    format!("log.{generation:08}")
}

/// Name of the checkpoint of `generation`.
pub(crate) fn map_name(generation: u64) -> String {
    format!("map.{generation:08}")
}

/// The number in `name`, when it is `prefix` and a number, written as we write it.
pub(crate) fn number_in(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let plain = digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}
