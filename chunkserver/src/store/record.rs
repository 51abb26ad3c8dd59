//! Log records, one for each change (docs/store-core.md section 4).

use smallvec::SmallVec;
use thiserror::Error;
use towpath_base::crc::crc32c;

use super::bytes::{array, u32_at, u64_at};
use super::clear::{self, ClearBody};
use super::limits::{
    CHAIN_MAX, CHUNK_BYTES_MAX, LOGGED_SLICES_MAX, RECORD_BODY_BYTES_MAX, WRITE_BYTES_MAX,
};
use super::request::NewChunk;
use super::slice::{ChunkId, Span};

/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 64;

/// Records begin at multiples of this, so that a search after damage is cheap.
pub const RECORD_ALIGN: usize = 8;

const MAGIC: u32 = u32::from_le_bytes(*b"TWLR");
/// In the limit of a new chunk: the chunk is unfinished until a finish.
pub(crate) const UNFINISHED: u64 = 1 << 62;
/// In the limit of a chunk: its slices are to be kept in memory as well.
pub(crate) const RESIDENT: u64 = 1 << 61;

const WRITE_FIXED_BYTES: usize = 24;
const EXTENT_BYTES: usize = 8;
const CRC_BYTES: usize = 4;

/// In the flags of a record: its body begins with the stamp of the change.
const STAMPED: u8 = 1;
/// In the flags of the record of a write: its bytes stand in the log, and the body begins, behind
/// the stamp, with their place.
const LOGGED: u8 = 2;
const PLACE_BYTES: usize = 8;
const STAMP_BYTES: usize = 8;

mod field {
    pub(super) const MAGIC: usize = 0;
    pub(super) const HEADER_CRC: usize = 4;
    pub(super) const BODY_CRC: usize = 8;
    pub(super) const BODY_LEN: usize = 12;
    pub(super) const SEQUENCE: usize = 16;
    pub(super) const DURABLE_SEQUENCE: usize = 24;
    pub(super) const CHUNK: usize = 32;
    pub(super) const PREVIOUS_CRC: usize = 48;
    pub(super) const KIND: usize = 52;
    pub(super) const FLAGS: usize = 53;
    pub(super) const RESERVED: core::ops::Range<usize> = 54..56;
    pub(super) const GENERATION: usize = 56;
}

mod kind {
    pub(super) const CREATE: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const SEAL: u8 = 4;
    pub(super) const FINISH: u8 = 5;
    pub(super) const VOID: u8 = 6;
    pub(super) const CLEAR: u8 = 7;
    pub(super) const CHAIN: u8 = 8;
}

/// What the headers of the records of one log are made with, so that nobody who does not know the
/// log's nonce can make bytes that pass for one: a client chooses whole stretches of a record's
/// body, which are its checksums, and what is left of an older log is made with another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogKey {
    magic: u32,
    crc: u32,
}

impl LogKey {
    /// The key of the log with this nonce: half of it is added to the magic of each record, the
    /// other half to its header checksum.
    #[must_use]
    pub fn new(log_nonce: u64) -> Self {
        Self { magic: (log_nonce >> 32) as u32, crc: log_nonce as u32 }
    }
}

/// A run of pages: the 4 KiB units in which a disk is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First page.
    pub page: u32,
    /// How many pages.
    pub count: u32,
}

/// Runs of pages, mostly one.
pub(crate) type Extents = SmallVec<[Extent; 2]>;

/// Where a record stands in its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Number of the record, one more than that of the record before; never used twice.
    pub sequence: u64,
    /// The last record that was on stable media when this one was written.
    pub durable_sequence: u64,
    /// Which log file.
    pub generation: u64,
    /// Header checksum of the record before; zero for the first one of a log.
    pub previous_crc: u32,
}

/// A record, borrowing its lists from the bytes it was read from, or from the change that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it stands.
    pub frame: Frame,
    /// Its own header checksum, which the next record repeats; zero in one that has no bytes yet.
    pub header_crc: u32,
    /// The chunk it changes; zero in a seal.
    pub chunk: ChunkId,
    /// What the change is told by from others; zero for nothing.
    pub stamp: u64,
    /// What it does.
    pub body: Body<'a>,
}

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Makes a chunk that may grow to `limit_bytes`.
    Create {
        /// Longest length that the chunk may reach, in bytes.
        limit_bytes: u64,
        /// Of which kind it is.
        kind: NewChunk,
    },
    /// Raises the chain version of a chunk.
    Chain {
        /// The chain version that it has then, not 0.
        chain: u32,
    },
    /// Says that an unfinished chunk is whole.
    Finish,
    /// Puts slices on fresh pages.
    Write(WriteBody<'a>),
    /// Takes slices away, and says how long the chunk is.
    Clear(ClearBody),
    /// Takes a chunk away.
    Delete,
    /// Changes nothing: it witnesses that all records before it were on stable media.
    Seal,
    /// Changes nothing: it stands where a write was to be whose data the medium did not take.
    Void {
        /// As long as the record in whose place it stands.
        record_bytes: usize,
    },
}

/// A list of a record: its bytes, or what is put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List<'a, T> {
    Bytes(&'a [u8]),
    Values(&'a [T]),
}

impl<'a, T: Copy> List<'a, T> {
    fn len(&self, bytes_each: usize) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len() / bytes_each,
            Self::Values(values) => values.len(),
        }
    }

    /// The values, each of which `parse` reads from its bytes.
    fn iter(self, bytes_each: usize, parse: fn(&[u8]) -> T) -> impl Iterator<Item = T> + 'a {
        let (bytes, values) = match self {
            Self::Bytes(bytes) => (bytes, &[][..]),
            Self::Values(values) => (&[][..], values),
        };
        bytes.chunks_exact(bytes_each).map(parse).chain(values.iter().copied())
    }
}

/// The new pages and checksums of the slices that a write touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBody<'a> {
    /// First byte in the chunk.
    pub offset: u64,
    /// Bytes written, at least one.
    pub byte_len: u64,
    /// Where the bytes of its slices stand in the log, page after page: so many pages behind the
    /// page in which the record begins. None where they were written to their pages at once.
    pub data_page: Option<u32>,
    extents: List<'a, Extent>,
    crcs: List<'a, u32>,
}

impl<'a> WriteBody<'a> {
    /// What is to be put into a record.
    pub(crate) fn new(
        (offset, byte_len): (u64, u64),
        data_page: Option<u32>,
        extents: &'a [Extent],
        crcs: &'a [u32],
    ) -> Self {
        let (extents, crcs) = (List::Values(extents), List::Values(crcs));
        Self { offset, byte_len, data_page, extents, crcs }
    }

    /// How many runs of pages it has.
    #[must_use]
    pub fn extent_count(&self) -> usize {
        self.extents.len(EXTENT_BYTES)
    }

    /// The slices touched.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.offset, self.byte_len)
    }

    /// Where the slices lie, in the order of their index.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + 'a {
        self.extents.iter(EXTENT_BYTES, |e| Extent { page: u32_at(e, 0), count: u32_at(e, 4) })
    }

    /// Page and checksum of each slice, in the order of its index.
    pub fn slices(&self) -> impl Iterator<Item = (u32, u32)> + 'a {
        let pages = self.extents().flat_map(|e| e.page..e.page + e.count);
        pages.zip(self.crcs())
    }

    fn crcs(&self) -> impl Iterator<Item = u32> + 'a {
        self.crcs.iter(CRC_BYTES, |crc| u32_at(crc, 0))
    }

    fn encoded_len(&self) -> usize {
        let lists = self.extent_count() * EXTENT_BYTES + self.crcs.len(CRC_BYTES) * CRC_BYTES;
        self.data_page.map_or(0, |_| PLACE_BYTES) + WRITE_FIXED_BYTES + lists
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(page) = self.data_page {
            out.extend_from_slice(&u64::from(page).to_le_bytes());
        }
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.byte_len.to_le_bytes());
        out.extend_from_slice(&(self.extent_count() as u32).to_le_bytes());
        out.extend_from_slice(&(self.crcs.len(CRC_BYTES) as u32).to_le_bytes());
        for extent in self.extents() {
            out.extend_from_slice(&extent.page.to_le_bytes());
            out.extend_from_slice(&extent.count.to_le_bytes());
        }
        self.crcs().for_each(|crc| out.extend_from_slice(&crc.to_le_bytes()));
    }
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The body does not have its checksum.
    #[error("body checksum of record {sequence} is wrong")]
    BodyCrc {
        /// Number in the (sound) header.
        sequence: u64,
    },
    /// The header does not have its checksum.
    #[error("header checksum is wrong")]
    HeaderCrc,
    /// A checked record says something that no writer writes.
    #[error("field {field} of record {sequence} is impossible")]
    Impossible {
        /// Name of the field.
        field: &'static str,
        /// Number of the record.
        sequence: u64,
    },
    /// The bytes do not begin with a record.
    #[error("no record begins here")]
    Magic,
    /// The bytes end before the record does.
    #[error("the record is cut short: {needed} bytes needed, {present} present")]
    Short {
        /// Bytes that the record takes.
        needed: usize,
        /// Bytes that there are.
        present: usize,
    },
}

/// Checks the header alone: its frame, when magic and header checksum are those of the log that
/// `key` belongs to.
#[must_use]
pub fn parse_frame(bytes: &[u8], key: LogKey) -> Option<Frame> {
    let header = bytes.get(..RECORD_HEADER_BYTES)?;
    check_header(header, key).ok()?;
    Some(frame(header))
}

/// As [`parse_frame`], with the chunk that the record changes.
pub(crate) fn parse_header(bytes: &[u8], key: LogKey) -> Option<(Frame, ChunkId)> {
    let frame = parse_frame(bytes, key)?;
    Some((frame, ChunkId(u128::from_le_bytes(array(bytes, field::CHUNK)))))
}

/// Reads the record of the log of `key` that `bytes` begin with; gives it and the bytes it takes.
///
/// Never panics, whatever the bytes are, and never allocates.
///
/// # Errors
/// Says what is wrong with the bytes; see [`RecordError`].
pub fn parse_record(bytes: &[u8], key: LogKey) -> Result<(Record<'_>, usize), RecordError> {
    let present = bytes.len();
    let Some(header) = bytes.get(..RECORD_HEADER_BYTES) else {
        return Err(RecordError::Short { needed: RECORD_HEADER_BYTES, present });
    };
    check_header(header, key)?;
    let frame = frame(header);
    let sequence = frame.sequence;
    let body_len = u32_at(header, field::BODY_LEN) as usize;
    if body_len > RECORD_BODY_BYTES_MAX || !body_len.is_multiple_of(RECORD_ALIGN) {
        return Err(RecordError::Impossible { field: "body_len", sequence });
    }
    let needed = RECORD_HEADER_BYTES + body_len;
    let Some(body) = bytes.get(RECORD_HEADER_BYTES..needed) else {
        return Err(RecordError::Short { needed, present });
    };
    if crc32c(body) != u32_at(header, field::BODY_CRC) {
        return Err(RecordError::BodyCrc { sequence });
    }
    let impossible = |field| RecordError::Impossible { field, sequence };
    let (stamp, body) = parse_stamp(header, body).map_err(impossible)?;
    let body = parse_body(header, body).map_err(impossible)?;
    let chunk = ChunkId(u128::from_le_bytes(array(header, field::CHUNK)));
    let header_crc = u32_at(header, field::HEADER_CRC);
    Ok((Record { frame, header_crc, chunk, stamp, body }, needed))
}

fn check_header(header: &[u8], key: LogKey) -> Result<(), RecordError> {
    if u32_at(header, field::MAGIC) != MAGIC ^ key.magic {
        return Err(RecordError::Magic);
    }
    if crc32c(&header[field::BODY_CRC..]) ^ key.crc != u32_at(header, field::HEADER_CRC) {
        return Err(RecordError::HeaderCrc);
    }
    Ok(())
}

fn frame(header: &[u8]) -> Frame {
    Frame {
        sequence: u64_at(header, field::SEQUENCE),
        durable_sequence: u64_at(header, field::DURABLE_SEQUENCE),
        generation: u64_at(header, field::GENERATION),
        previous_crc: u32_at(header, field::PREVIOUS_CRC),
    }
}

/// The stamp of a change, and the rest of its body.
fn parse_stamp<'a>(header: &[u8], body: &'a [u8]) -> Result<(u64, &'a [u8]), &'static str> {
    let flags = header[field::FLAGS];
    let is_known = match header[field::KIND] {
        kind::WRITE => flags & !(STAMPED | LOGGED) == 0,
        _ => flags & !STAMPED == 0,
    };
    match (flags & STAMPED, header[field::KIND]) {
        _ if !is_known => Err("flags"),
        (0, _) => Ok((0, body)),
        (STAMPED, kind::CREATE | kind::WRITE | kind::FINISH | kind::CLEAR | kind::CHAIN) => {
            let (stamp, body) = body.split_at_checked(STAMP_BYTES).ok_or("body_len")?;
            match u64_at(stamp, 0) {
                0 => Err("stamp"),
                stamp => Ok((stamp, body)),
            }
        }
        _ => Err("flags"),
    }
}

fn parse_body<'a>(header: &[u8], body: &'a [u8]) -> Result<Body<'a>, &'static str> {
    if header[field::RESERVED] != [0; 2] {
        return Err("reserved");
    }
    match (header[field::KIND], body.len()) {
        (kind::CREATE, 8 | 16) => {
            let limit = u64_at(body, 0);
            let chain = if body.len() > 8 { parse_chain(body, 8)? } else { 0 };
            let (unfinished, resident) = (limit & UNFINISHED != 0, limit & RESIDENT != 0);
            match limit & !(UNFINISHED | RESIDENT) {
                limit_bytes @ 1..=CHUNK_BYTES_MAX => {
                    let kind = NewChunk { unfinished, resident, chain };
                    Ok(Body::Create { limit_bytes, kind })
                }
                _ => Err("limit_bytes"),
            }
        }
        (kind::FINISH, 0) => Ok(Body::Finish),
        (kind::CHAIN, 8) => Ok(Body::Chain { chain: parse_chain(body, 0)? }),
        (kind::WRITE, _) => {
            let (data_page, body) = parse_place(header, body)?;
            parse_write(data_page, body).map(Body::Write)
        }
        (kind::CLEAR, _) => clear::parse(body).map(Body::Clear),
        (kind::DELETE, 0) => Ok(Body::Delete),
        (kind::SEAL, 0) => Ok(Body::Seal),
        (kind::VOID, len) if body.iter().all(|byte| *byte == 0) => {
            Ok(Body::Void { record_bytes: RECORD_HEADER_BYTES + len })
        }
        (kind::CREATE | kind::DELETE | kind::SEAL | kind::FINISH | kind::CHAIN, _) => {
            Err("body_len")
        }
        _ => Err("kind"),
    }
}

/// Most pages between a record and its data: a group is far shorter.
const DATA_PAGE_MAX: u32 = 1 << 16;

/// The chain version that a body has at an offset: one that a chunk can have, and not none.
fn parse_chain(body: &[u8], at: usize) -> Result<u32, &'static str> {
    let chain = u32::try_from(u64_at(body, at)).map_err(|_| "chain")?;
    if (1..=CHAIN_MAX).contains(&chain) { Ok(chain) } else { Err("chain") }
}

/// Where the bytes of a write stand, and the rest of its body.
fn parse_place<'a>(header: &[u8], body: &'a [u8]) -> Result<(Option<u32>, &'a [u8]), &'static str> {
    if header[field::FLAGS] & LOGGED == 0 {
        return Ok((None, body));
    }
    let (place, body) = body.split_at_checked(PLACE_BYTES).ok_or("body_len")?;
    match u32::try_from(u64_at(place, 0)) {
        Ok(pages @ 1..=DATA_PAGE_MAX) => Ok((Some(pages), body)),
        _ => Err("data_page"),
    }
}

fn parse_write(data_page: Option<u32>, body: &[u8]) -> Result<WriteBody<'_>, &'static str> {
    let Some((fixed, lists)) = body.split_at_checked(WRITE_FIXED_BYTES) else {
        return Err("body_len");
    };
    let (offset, byte_len) = (u64_at(fixed, 0), u64_at(fixed, 8));
    if byte_len == 0 || byte_len > WRITE_BYTES_MAX {
        return Err("byte_len");
    }
    if offset > CHUNK_BYTES_MAX - byte_len {
        return Err("offset");
    }
    let (extent_count, slice_count) = (u32_at(fixed, 16), u32_at(fixed, 20));
    if u64::from(slice_count) != Span::new(offset, byte_len).count() {
        return Err("slice_count");
    }
    if extent_count == 0 || extent_count > slice_count {
        return Err("extent_count");
    }
    let extents_len = extent_count as usize * EXTENT_BYTES;
    let crcs_len = slice_count as usize * CRC_BYTES;
    if lists.len() != (extents_len + crcs_len).next_multiple_of(RECORD_ALIGN) {
        return Err("body_len");
    }
    let (extents, rest) = lists.split_at(extents_len);
    let (crcs, padding) = rest.split_at(crcs_len);
    if padding.iter().any(|b| *b != 0) {
        return Err("padding");
    }
    if data_page.is_some() && slice_count > LOGGED_SLICES_MAX {
        return Err("data_page");
    }
    let (extents, crcs) = (List::Bytes(extents), List::Bytes(crcs));
    let write = WriteBody { offset, byte_len, data_page, extents, crcs };
    let mut pages = 0u64;
    for extent in write.extents() {
        if extent.page == 0 || extent.count == 0 || extent.page.checked_add(extent.count).is_none()
        {
            return Err("extent");
        }
        pages += u64::from(extent.count);
    }
    if pages != u64::from(slice_count) {
        return Err("extents");
    }
    Ok(write)
}

impl Body<'_> {
    /// Bytes of the whole record, with this stamp.
    pub(crate) fn record_bytes(&self, stamp: u64) -> usize {
        let body_len = match self {
            Self::Create { kind, .. } => 8 + if kind.chain == 0 { 0 } else { 8 },
            Self::Chain { .. } => 8,
            Self::Write(write) => write.encoded_len().next_multiple_of(RECORD_ALIGN),
            Self::Clear(clear) => clear.encoded_len(),
            Self::Delete | Self::Finish | Self::Seal => 0,
            Self::Void { record_bytes } => return *record_bytes,
        };
        RECORD_HEADER_BYTES + body_len + if stamp == 0 { 0 } else { STAMP_BYTES }
    }
}

impl Record<'_> {
    /// Appends the record to `out`; gives its header checksum.
    pub(crate) fn encode(&self, key: LogKey, out: &mut Vec<u8>) -> u32 {
        let Self { frame, chunk, stamp, body, .. } = *self;
        let start = out.len();
        out.resize(start + RECORD_HEADER_BYTES, 0);
        let mut flags = 0;
        if stamp != 0 {
            flags |= STAMPED;
            out.extend_from_slice(&stamp.to_le_bytes());
        }
        let kind = match body {
            Body::Create { limit_bytes, kind: NewChunk { unfinished, resident, chain } } => {
                let unfinished = if unfinished { UNFINISHED } else { 0 };
                let resident = if resident { RESIDENT } else { 0 };
                out.extend_from_slice(&(limit_bytes | unfinished | resident).to_le_bytes());
                if chain != 0 {
                    out.extend_from_slice(&u64::from(chain).to_le_bytes());
                }
                kind::CREATE
            }
            Body::Chain { chain } => {
                out.extend_from_slice(&u64::from(chain).to_le_bytes());
                kind::CHAIN
            }
            Body::Write(write) => {
                flags |= write.data_page.map_or(0, |_| LOGGED);
                write.encode(out);
                kind::WRITE
            }
            Body::Clear(clear) => {
                clear.encode(out);
                kind::CLEAR
            }
            Body::Delete => kind::DELETE,
            Body::Finish => kind::FINISH,
            Body::Seal => kind::SEAL,
            Body::Void { record_bytes } => {
                out.resize(start + record_bytes, 0);
                kind::VOID
            }
        };
        out.resize(start + (out.len() - start).next_multiple_of(RECORD_ALIGN), 0);
        let (header, body) = out[start..].split_at_mut(RECORD_HEADER_BYTES);
        let mut put = |at: usize, bytes: &[u8]| {
            header[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(field::MAGIC, &(MAGIC ^ key.magic).to_le_bytes());
        put(field::BODY_CRC, &crc32c(body).to_le_bytes());
        put(field::BODY_LEN, &(body.len() as u32).to_le_bytes());
        put(field::SEQUENCE, &frame.sequence.to_le_bytes());
        put(field::DURABLE_SEQUENCE, &frame.durable_sequence.to_le_bytes());
        put(field::CHUNK, &chunk.0.to_le_bytes());
        put(field::PREVIOUS_CRC, &frame.previous_crc.to_le_bytes());
        put(field::KIND, &[kind]);
        put(field::FLAGS, &[flags]);
        put(field::GENERATION, &frame.generation.to_le_bytes());
        let header_crc = crc32c(&header[field::BODY_CRC..]) ^ key.crc;
        header[field::HEADER_CRC..field::BODY_CRC].copy_from_slice(&header_crc.to_le_bytes());
        header_crc
    }
}
