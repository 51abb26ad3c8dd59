//! Error replies: why a server did not do an operation (docs/storage-protocol.md section 6).

use super::{VERSION, WireError, check_version, check_zero, open, seal};
use crate::limits::ERROR_BYTES;
use crate::slice::ChunkId;
use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};
use towpath_cap::Denied;
use towpath_rpc::Fate;

/// Which rule a request broke. The number is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u16)]
pub enum Why {
    /// A rule that this side does not know.
    #[error("it breaks a rule that this client does not know")]
    Other = 0,
    /// The header of the body.
    #[error("its header is malformed")]
    Header = 1,
    /// The header's version.
    #[error("its header has a version that the server does not speak")]
    Version = 2,
    /// Length or range.
    #[error("its length or range is impossible")]
    Range = 3,
    /// The number of checksums.
    #[error("its number of checksums is not that of the slices that it touches")]
    CrcCount = 4,
    /// Lengths of body and data.
    #[error("its body or data is not as long as its header says")]
    Lengths = 5,
    /// The protobuf body.
    #[error("its protobuf body cannot be read")]
    Protobuf = 6,
    /// The size limit of a new chunk.
    #[error("a chunk cannot have that size limit")]
    Limit = 7,
    /// Over which link it says that it goes.
    #[error("it names another tenant or class than its link has")]
    Sender = 8,
    /// A chain version.
    #[error("no chunk can have the chain version that it names")]
    Chain = 9,
}

impl Why {
    const ALL: [Self; 10] = [
        Self::Other,
        Self::Header,
        Self::Version,
        Self::Range,
        Self::CrcCount,
        Self::Lengths,
        Self::Protobuf,
        Self::Limit,
        Self::Sender,
        Self::Chain,
    ];
}

impl From<WireError> for Why {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Version(_) => Self::Version,
            WireError::Length(_) | WireError::Range { .. } | WireError::Unaligned(_) => Self::Range,
            WireError::CrcCount { .. } => Self::CrcCount,
            WireError::BodyLength { .. } | WireError::DataLength { .. } => Self::Lengths,
            WireError::Protobuf => Self::Protobuf,
            WireError::Chain(_) => Self::Chain,
            WireError::Short { .. }
            | WireError::Kind { .. }
            | WireError::Reserved(_)
            | WireError::HeaderCrc
            | WireError::Method(_)
            | WireError::Runs
            | WireError::Slices
            | WireError::Route
            | WireError::Code(_) => Self::Header,
        }
    }
}

/// Why a server did not do an operation (docs/storage-protocol.md section 6). Nothing was changed,
/// except perhaps with [`CommitFailed`](Self::CommitFailed) and [`ReplicaLost`](Self::ReplicaLost).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorReply {
    /// The chunk does not exist.
    #[error("there is no chunk {chunk}: check its name, or list all chunks")]
    NoSuchChunk {
        /// Its name.
        chunk: ChunkId,
    },
    /// The chunk exists already.
    #[error("chunk {chunk} exists already: delete it first, or choose another name")]
    ChunkExists {
        /// Its name.
        chunk: ChunkId,
    },
    /// The read ends past the end of the chunk.
    #[error("the read ends past the end of chunk {chunk}, which has {length} bytes: read less")]
    PastEnd {
        /// The chunk.
        chunk: ChunkId,
        /// Its length in bytes.
        length: u64,
    },
    /// The write ends past the size limit of the chunk.
    #[error("the write ends past the limit of chunk {chunk}, {limit} bytes: use another chunk")]
    PastLimit {
        /// The chunk.
        chunk: ChunkId,
        /// Its limit in bytes.
        limit: u64,
    },
    /// Data was damaged on its way to the server.
    #[error("slice {slice} of chunk {chunk} was damaged on its way to the server: send it again")]
    WireCorrupt {
        /// The chunk.
        chunk: ChunkId,
        /// Index of the slice in the chunk.
        slice: u64,
    },
    /// A slice is damaged on the server's medium.
    #[error("slice {slice} of chunk {chunk} is damaged on the server: overwrite it whole")]
    SliceCorrupt {
        /// The chunk.
        chunk: ChunkId,
        /// Index of the slice in the chunk.
        slice: u64,
    },
    /// The server's store is full.
    #[error("the server has no space left: delete chunks, or use another server")]
    NoSpace,
    /// The server has its maximum number of chunks.
    #[error("the server already has {max} chunks, its maximum: delete some first")]
    TooManyChunks {
        /// The limit.
        max: u64,
    },
    /// An earlier flush failed, or acknowledged changes are lost to damage: the store accepts no
    /// changes, reads still work.
    #[error("the server's store failed and is read-only: the server's log says why")]
    StoreFailed,
    /// The medium failed to read or write.
    #[error("the server's disk failed to read or write: see the server's log, then try again")]
    Media,
    /// More bytes than the server allows in one operation.
    #[error("the server allows at most {max} bytes in one operation: use several operations")]
    TooLong {
        /// The limit in bytes.
        max: u64,
    },
    /// The server has no free buffer or queue place. The request itself is valid.
    #[error("the server is busy: try again")]
    Busy,
    /// The request breaks a rule.
    #[error("the server refused the request: {why}")]
    BadRequest {
        /// Which rule.
        why: Why,
    },
    /// The store failed while it made this change durable: reads do not show the change, and
    /// after a restart of the server it is there wholly or not at all.
    #[error("the server's store failed meanwhile: whether this was done shows after a restart")]
    CommitFailed,
    /// A newer link of the client's session has replaced this one, which can change nothing any
    /// more.
    #[error("a newer link of this session has replaced this one: use the newer link")]
    Fenced,
    /// The chunk that is to be finished has another length.
    #[error("chunk {chunk} has {length} bytes: write the missing bytes, then finish it")]
    WrongLength {
        /// The chunk.
        chunk: ChunkId,
        /// Its length in bytes.
        length: u64,
    },
    /// The chunk is not whole.
    #[error(
        "chunk {chunk} is not whole: its put is under way or was interrupted; put it again, or wait"
    )]
    Unfinished {
        /// The chunk.
        chunk: ChunkId,
    },
    /// The server's memory for resident chunks is full.
    #[error("the server's memory for resident chunks has {left} bytes left: delete some of them")]
    ResidentFull {
        /// Bytes of slices that still fit.
        left: u64,
    },
    /// The chunk has another version than the change was meant for.
    #[error("the chunk has version {version} now: look at it, then decide anew")]
    OtherVersion {
        /// The version that it has.
        version: u64,
    },
    /// The chunk has another chain version than the change names, or than it was to be raised to.
    #[error(
        "chunk {chunk} has chain version {chain}, another than the layout has (it is older, as a \
         rule): get the newest layout"
    )]
    OtherChain {
        /// The chunk.
        chunk: ChunkId,
        /// The chain version that it has.
        chain: u32,
    },
    /// The server has no tenant of that name.
    #[error("the server has no such tenant: see `towpath qos`, or its file of tenants")]
    NoSuchTenant,
    /// Another client runs the engine of the tenant.
    #[error("another client has the tokens of this tenant: stop it first, or use another tenant")]
    TenantTaken,
    /// The tenant did I/O without tokens.
    #[error("the tenant was cut off for I/O without tokens: try again in {wait_us} us")]
    TenantBarred {
        /// For how long, in microseconds.
        wait_us: u64,
    },
    /// The request costs more than its tenant may use in a period.
    #[error("{}", tenant_limit(*max))]
    TenantLimit {
        /// Bytes for which there are tokens.
        max: u64,
    },
    /// The disk that has the chunk, or may have it, has failed, or two disks have the chunk; those
    /// of other disks are served.
    #[error(
        "chunk {chunk} is not served: disk {disk} of the server has failed (`towpath info`), or \
         has it beside another disk (the server's log)"
    )]
    DiskFailed {
        /// The chunk.
        chunk: ChunkId,
        /// The number of the disk in the server's settings, from 0.
        disk: u64,
    },
    /// The request is not allowed, by its capability or for lack of one (docs/capabilities.md).
    #[error("the server refused the request: {why}")]
    Denied {
        /// Why.
        why: Denied,
    },
    /// A server that the write was passed on to, or was to be, did not take it. No server has made
    /// it.
    #[error(
        "the server of rank {rank} did not take the write, and no other one has made it: \
         its error has the code {code}, or it cannot be reached where that is 0"
    )]
    ReplicaRefused {
        /// Its rank in the route.
        rank: u64,
        /// The code of its error; 0 where it could not be reached.
        code: u16,
    },
    /// A server of the route failed in the middle: those behind it may have made the write, those
    /// before it have not.
    #[error("the server of rank {rank} failed in the middle of the write: repair the copies")]
    ReplicaLost {
        /// Its rank in the route.
        rank: u64,
    },
    /// The server passes nothing on to another one that the request names.
    #[error(
        "a server may pass nothing on to the one of rank {rank}: start it with `--peers ADDRESSES` \
         (docs/operations.md section 1)"
    )]
    PeerNotAllowed {
        /// The rank of the one that is not allowed.
        rank: u64,
    },
    /// The server adds up as many stripes as it may.
    #[error("the server adds up as many stripes as it may: encode this one, or try again")]
    NoSums,
    /// The server keeps no reservations.
    #[error("the server keeps no reservations: start it with --qos-iops")]
    NoReservations,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ErrorRaw {
    chunk: [u8; 16],
    slice: u64,
    value: u64,
    version: u16,
    code: u16,
    why: u16,
    reserved_0: u16,
    reserved_1: u32,
    crc: u32,
}

const _: () = {
    assert!(size_of::<ErrorRaw>() == ERROR_BYTES);
    assert!(offset_of!(ErrorRaw, slice) == 16);
    assert!(offset_of!(ErrorRaw, value) == 24);
    assert!(offset_of!(ErrorRaw, version) == 32);
    assert!(offset_of!(ErrorRaw, code) == 34);
    assert!(offset_of!(ErrorRaw, why) == 36);
    assert!(offset_of!(ErrorRaw, reserved_0) == 38);
    assert!(offset_of!(ErrorRaw, reserved_1) == 40);
    assert!(offset_of!(ErrorRaw, crc) == 44);
};

/// What to do about a [`TenantLimit`](ErrorReply::TenantLimit): no number of operations helps where
/// not even one of them has its tokens.
fn tenant_limit(max: u64) -> String {
    match max {
        0 => "the tenant's limit is below the cost of one operation of 4 KiB: raise the limit in \
              the server's file of tenants"
            .into(),
        max => format!("the tenant may move {max} bytes in a period: use several operations"),
    }
}

impl ErrorReply {
    /// Whether the change was made.
    #[must_use]
    pub fn fate(self) -> Fate {
        match self {
            Self::CommitFailed | Self::ReplicaLost { .. } => Fate::Unknown,
            _ => Fate::DidNotHappen,
        }
    }

    /// The number that is sent for it.
    #[must_use]
    pub fn code(self) -> u16 {
        self.fields().0
    }

    /// Code, chunk, slice, value, rule.
    fn fields(self) -> (u16, ChunkId, u64, u64, u16) {
        let none = ChunkId(0);
        match self {
            Self::NoSuchChunk { chunk } => (1, chunk, 0, 0, 0),
            Self::ChunkExists { chunk } => (2, chunk, 0, 0, 0),
            Self::PastEnd { chunk, length } => (3, chunk, 0, length, 0),
            Self::PastLimit { chunk, limit } => (4, chunk, 0, limit, 0),
            Self::WireCorrupt { chunk, slice } => (5, chunk, slice, 0, 0),
            Self::SliceCorrupt { chunk, slice } => (6, chunk, slice, 0, 0),
            Self::NoSpace => (7, none, 0, 0, 0),
            Self::TooManyChunks { max } => (8, none, 0, max, 0),
            Self::StoreFailed => (9, none, 0, 0, 0),
            Self::Media => (10, none, 0, 0, 0),
            Self::TooLong { max } => (11, none, 0, max, 0),
            Self::Busy => (12, none, 0, 0, 0),
            Self::BadRequest { why } => (13, none, 0, 0, why as u16),
            Self::CommitFailed => (14, none, 0, 0, 0),
            Self::Fenced => (15, none, 0, 0, 0),
            Self::WrongLength { chunk, length } => (16, chunk, 0, length, 0),
            Self::Unfinished { chunk } => (17, chunk, 0, 0, 0),
            Self::ResidentFull { left } => (18, none, 0, left, 0),
            Self::OtherVersion { version } => (19, none, 0, version, 0),
            Self::NoSuchTenant => (20, none, 0, 0, 0),
            Self::TenantTaken => (21, none, 0, 0, 0),
            Self::TenantBarred { wait_us } => (22, none, 0, wait_us, 0),
            Self::NoReservations => (23, none, 0, 0, 0),
            Self::TenantLimit { max } => (24, none, 0, max, 0),
            Self::Denied { why } => (25, none, 0, 0, why as u16),
            Self::OtherChain { chunk, chain } => (26, chunk, 0, chain.into(), 0),
            Self::ReplicaRefused { rank, code } => (27, none, 0, rank, code),
            Self::ReplicaLost { rank } => (28, none, 0, rank, 0),
            Self::NoSums => (29, none, 0, 0, 0),
            Self::PeerNotAllowed { rank } => (30, none, 0, rank, 0),
            Self::DiskFailed { chunk, disk } => (40, chunk, 0, disk, 0),
        }
    }

    fn of(code: u16, chunk: ChunkId, slice: u64, value: u64, why: u16) -> Option<Self> {
        Some(match code {
            1 => Self::NoSuchChunk { chunk },
            2 => Self::ChunkExists { chunk },
            3 => Self::PastEnd { chunk, length: value },
            4 => Self::PastLimit { chunk, limit: value },
            5 => Self::WireCorrupt { chunk, slice },
            6 => Self::SliceCorrupt { chunk, slice },
            7 => Self::NoSpace,
            8 => Self::TooManyChunks { max: value },
            9 => Self::StoreFailed,
            10 => Self::Media,
            11 => Self::TooLong { max: value },
            12 => Self::Busy,
            13 => {
                let known = Why::ALL.into_iter().find(|known| *known as u16 == why);
                Self::BadRequest { why: known.unwrap_or(Why::Other) }
            }
            14 => Self::CommitFailed,
            15 => Self::Fenced,
            16 => Self::WrongLength { chunk, length: value },
            17 => Self::Unfinished { chunk },
            18 => Self::ResidentFull { left: value },
            19 => Self::OtherVersion { version: value },
            20 => Self::NoSuchTenant,
            21 => Self::TenantTaken,
            22 => Self::TenantBarred { wait_us: value },
            23 => Self::NoReservations,
            24 => Self::TenantLimit { max: value },
            25 => Self::Denied { why: Denied::from_code(why) },
            26 => Self::OtherChain { chunk, chain: u32::try_from(value).ok()? },
            27 => Self::ReplicaRefused { rank: value, code: why },
            28 => Self::ReplicaLost { rank: value },
            29 => Self::NoSums,
            30 => Self::PeerNotAllowed { rank: value },
            40 => Self::DiskFailed { chunk, disk: value },
            _ => return None,
        })
    }

    /// The reply as bytes.
    #[must_use]
    pub fn emit(self) -> [u8; ERROR_BYTES] {
        let (code, chunk, slice, value, why) = self.fields();
        let mut bytes: [u8; ERROR_BYTES] = bytemuck::cast(ErrorRaw {
            chunk: chunk.0.to_le_bytes(),
            slice: slice.to_le(),
            value: value.to_le(),
            version: VERSION.to_le(),
            code: code.to_le(),
            why: why.to_le(),
            reserved_0: 0,
            reserved_1: 0,
            crc: 0,
        });
        seal(&mut bytes);
        bytes
    }

    /// The body of an error reply.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let raw: ErrorRaw = bytemuck::pod_read_unaligned(open::<ERROR_BYTES>(body)?);
        check_version(raw.version)?;
        check_zero(u32::from(raw.reserved_0) | raw.reserved_1, "a reserved byte")?;
        if body.len() != ERROR_BYTES {
            return Err(WireError::BodyLength { expected: ERROR_BYTES, found: body.len() });
        }
        let code = u16::from_le(raw.code);
        let chunk = ChunkId(u128::from_le_bytes(raw.chunk));
        let (slice, value) = (u64::from_le(raw.slice), u64::from_le(raw.value));
        Self::of(code, chunk, slice, value, u16::from_le(raw.why)).ok_or(WireError::Code(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_nothing_is_to_be_raised_and_any_other_asks_for_several_operations() {
        let told = [0, 8192].map(|max| ErrorReply::TenantLimit { max }.to_string());
        assert!(told[0].contains("raise the limit") && !told[0].contains("several"), "{told:?}");
        assert!(told[1].contains("8192 bytes") && told[1].contains("several"), "{told:?}");
    }
}
