//! Protobuf bodies of the operations that move no data (docs/storage-protocol.md section 5).

use crate::slice::ChunkId;

/// The name of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Name {
    /// Upper 64 bits.
    #[prost(fixed64, tag = "1")]
    pub high: u64,
    /// Lower 64 bits.
    #[prost(fixed64, tag = "2")]
    pub low: u64,
}

impl From<ChunkId> for Name {
    fn from(ChunkId(id): ChunkId) -> Self {
        Self { high: (id >> 64) as u64, low: id as u64 }
    }
}

impl From<Name> for ChunkId {
    fn from(name: Name) -> Self {
        Self(u128::from(name.high) << 64 | u128::from(name.low))
    }
}

/// Asks for a new, empty chunk. Its reply is a [`ChangeReply`](crate::wire::ChangeReply).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CreateRequest {
    /// Its name.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
    /// The length in bytes that it may reach; none: the most a chunk can have.
    #[prost(uint64, optional, tag = "2")]
    pub limit_bytes: Option<u64>,
    /// The chunk is not whole, and not read, before a finish.
    #[prost(bool, tag = "3")]
    pub unfinished: bool,
    /// Its slices are kept in memory that clients read by themselves.
    #[prost(bool, tag = "4")]
    pub resident: bool,
    /// What the change is told by from all others; 0 for nothing.
    #[prost(fixed64, tag = "5")]
    pub stamp: u64,
    /// The chain version of one replica of several; 0 of any other chunk.
    #[prost(uint32, tag = "6")]
    pub chain: u32,
}

/// Says that an unfinished chunk is whole. The reply is a
/// [`ChangeReply`](crate::wire::ChangeReply).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FinishRequest {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
    /// Its length in bytes; one of another length is not finished.
    #[prost(uint64, tag = "2")]
    pub byte_len: u64,
    /// The version that it must have; none where it may have any.
    #[prost(uint64, optional, tag = "3")]
    pub version: Option<u64>,
    /// What the change is told by from all others; 0 for nothing.
    #[prost(fixed64, tag = "4")]
    pub stamp: u64,
    /// The chain version that it must have; 0 where it has none.
    #[prost(uint32, tag = "5")]
    pub chain: u32,
}

/// Raises the chain version of a chunk: changes that name a lower one are refused from then on. A
/// chunk that has this one already stays as it is. The reply is a
/// [`ChangeReply`](crate::wire::ChangeReply).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ChainRequest {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
    /// The chain version that it gets; not lower than the one that it has.
    #[prost(uint32, tag = "2")]
    pub chain: u32,
    /// The version that it must have, unless it has that chain version already; none where it may
    /// have any.
    #[prost(uint64, optional, tag = "3")]
    pub version: Option<u64>,
    /// What the change is told by from all others; 0 for nothing.
    #[prost(fixed64, tag = "4")]
    pub stamp: u64,
}

/// Asks for a chunk to be taken away. The reply is a [`ChangeReply`](crate::wire::ChangeReply).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteRequest {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
    /// The version that it must have; none where it may have any.
    #[prost(uint64, optional, tag = "2")]
    pub version: Option<u64>,
}

/// Names the one chunk that a stat is about.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ChunkRequest {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
}

/// Enters a session: from now on the server refuses changes that came over links of the session
/// with a lower epoch (docs/storage-protocol.md section 7). The reply has no body.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SessionRequest {
    /// Upper 64 bits of the session's number, which its client drew at random.
    #[prost(fixed64, tag = "1")]
    pub high: u64,
    /// Lower 64 bits.
    #[prost(fixed64, tag = "2")]
    pub low: u64,
    /// Rises with each link of the session; from 1 on.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
}

/// Has the capabilities of a serial number hold no more, which is on stable media when the reply
/// comes (docs/storage-protocol.md section 10). The reply has no body.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RevokeRequest {
    /// The serial number.
    #[prost(fixed64, tag = "1")]
    pub serial: u64,
    /// When all of them have expired, in milliseconds since the Unix epoch: until then the server
    /// remembers.
    #[prost(uint64, tag = "2")]
    pub until_ms: u64,
}

/// What is known of a chunk: the reply to a stat, and an entry of a listing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ChunkInfo {
    /// Its name.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
    /// Its length in bytes: one past the last byte ever written.
    #[prost(uint64, tag = "2")]
    pub byte_len: u64,
    /// The length that it may reach.
    #[prost(uint64, tag = "3")]
    pub limit_bytes: u64,
    /// Rises with every change of the chunk.
    #[prost(uint64, tag = "4")]
    pub version: u64,
    /// It is not whole: its put is under way or was interrupted.
    #[prost(bool, tag = "5")]
    pub unfinished: bool,
    /// Its slices are to be kept in memory that clients read by themselves.
    #[prost(bool, tag = "6")]
    pub resident: bool,
    /// The chain version that changes of it must name; 0 where it has none.
    #[prost(uint32, tag = "7")]
    pub chain: u32,
}

/// Asks where the slices of a chunk lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LocateRequest {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
    /// The first slice that the caller wants to know of.
    #[prost(uint64, tag = "2")]
    pub first_slice: u64,
}

/// Slots that lie together in memory, and the slices that they hold.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SlotRun {
    /// The slice in the first of them.
    #[prost(uint64, tag = "1")]
    pub first_slice: u64,
    /// The first of them.
    #[prost(uint32, tag = "2")]
    pub slot: u32,
    /// How many.
    #[prost(uint32, tag = "3")]
    pub count: u32,
}

/// Where the slices of a chunk lie in memory.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LocateReply {
    /// The chunk has slots; otherwise the rest says nothing, and the chunk is read by requests.
    #[prost(bool, tag = "1")]
    pub resident: bool,
    /// The grant that the slots lie in: slot 0 begins at its offset 0.
    #[prost(uint32, tag = "2")]
    pub grant: u32,
    /// The version of the chunk.
    #[prost(uint64, tag = "3")]
    pub version: u64,
    /// Its length in bytes.
    #[prost(uint64, tag = "4")]
    pub byte_len: u64,
    /// Its slots from the first slice on that was asked for, at most
    /// [`RUNS_MAX`](crate::limits::RUNS_MAX) runs.
    #[prost(message, repeated, tag = "5")]
    pub runs: Vec<SlotRun>,
    /// There are more after the last of these.
    #[prost(bool, tag = "6")]
    pub more: bool,
}

/// Asks for one page of the listing, in the order of the names.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ListRequest {
    /// The last name that the caller has; none: from the first.
    #[prost(message, optional, tag = "1")]
    pub after: Option<Name>,
    /// Most entries wanted; 0: as many as go in one reply.
    #[prost(uint32, tag = "2")]
    pub count_max: u32,
}

/// One page of a listing.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListReply {
    /// The chunks.
    #[prost(message, repeated, tag = "1")]
    pub chunks: Vec<ChunkInfo>,
    /// There are more after the last of these.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// Asks for some more slices to be checked.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ScrubRequest {
    /// Most slices to check; 0: as the server likes.
    #[prost(uint64, tag = "1")]
    pub budget_slices: u64,
}

/// A damaged slice.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DamagedSlice {
    /// Its chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
    /// Its index.
    #[prost(uint64, tag = "2")]
    pub slice: u64,
    /// The file that it lies in, for the operator.
    #[prost(string, tag = "3")]
    pub file: String,
    /// Where in the file, in bytes.
    #[prost(uint64, tag = "4")]
    pub offset: u64,
}

/// What one step of a scrub found.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScrubReply {
    /// Slices checked.
    #[prost(uint64, tag = "1")]
    pub slices: u64,
    /// Bytes read for it.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Damaged slices, at most [`SCRUB_NAMED_MAX`](crate::limits::SCRUB_NAMED_MAX) of them.
    #[prost(message, repeated, tag = "3")]
    pub damaged: Vec<DamagedSlice>,
    /// All damaged slices of the step.
    #[prost(uint64, tag = "4")]
    pub damaged_count: u64,
    /// Slices that the medium would not read.
    #[prost(uint64, tag = "5")]
    pub unreadable_count: u64,
    /// The step reached the last slice of the last chunk.
    #[prost(bool, tag = "6")]
    pub pass_done: bool,
}

/// Asks what the server is and how it is.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct InfoRequest {}

/// What the server is and how it is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct InfoReply {
    /// The version of the program.
    #[prost(string, tag = "1")]
    pub program_version: String,
    /// The version of the storage protocol.
    #[prost(uint32, tag = "2")]
    pub protocol_version: u32,
    /// The longest request in bytes that it takes, headers included, however its data lies.
    #[prost(uint64, tag = "3")]
    pub request_bytes_max: u64,
    /// Chunks now.
    #[prost(uint64, tag = "4")]
    pub chunks: u64,
    /// Bytes of slices that hold data.
    #[prost(uint64, tag = "5")]
    pub live_bytes: u64,
    /// Bytes that can still be stored, in what is free and what the medium has left.
    #[prost(uint64, tag = "6")]
    pub free_bytes: u64,
    /// Bytes configured, or what the file system can hold if that is less.
    #[prost(uint64, tag = "7")]
    pub capacity_bytes: u64,
    /// Writes acknowledged since it started.
    #[prost(uint64, tag = "8")]
    pub writes: u64,
    /// Bytes of those.
    #[prost(uint64, tag = "9")]
    pub write_bytes: u64,
    /// Reads served since it started.
    #[prost(uint64, tag = "10")]
    pub reads: u64,
    /// Bytes of those.
    #[prost(uint64, tag = "11")]
    pub read_bytes: u64,
    /// Slices found damaged on the medium since it started.
    #[prost(uint64, tag = "12")]
    pub slices_damaged: u64,
    /// Slices of writes that did not have their checksum when they arrived.
    #[prost(uint64, tag = "13")]
    pub wire_corrupt: u64,
    /// The store takes no more changes.
    #[prost(bool, tag = "14")]
    pub read_only: bool,
    /// Commits to stable media since it started.
    #[prost(uint64, tag = "15")]
    pub commits: u64,
    /// Requests being served now.
    #[prost(uint64, tag = "16")]
    pub requests_under_way: u64,
    /// Milliseconds since it started.
    #[prost(uint64, tag = "17")]
    pub uptime_ms: u64,
    /// Bytes of slices that are kept in memory for resident chunks.
    #[prost(uint64, tag = "18")]
    pub resident_bytes: u64,
    /// The most that may be; 0: there is no such memory.
    #[prost(uint64, tag = "19")]
    pub resident_bytes_max: u64,
    /// The longest write in bytes, headers included, that it takes where the data is whole slices:
    /// those are stored while the rest is still on its way.
    #[prost(uint64, tag = "25")]
    pub stream_bytes_max: u64,
    /// The disks of the server, in the order of its settings.
    #[prost(message, repeated, tag = "24")]
    pub disks: Vec<DiskInfo>,
    /// Interference control, where there is any.
    #[prost(message, optional, boxed, tag = "26")]
    pub interference: Option<Box<InterferenceInfo>>,
    /// Of the worker that answers: what its handlers of requests with data took: header, payload,
    /// completion and cleanup. Empty where that is not counted.
    #[prost(message, repeated, tag = "27")]
    pub handlers: Vec<HandlerInfo>,
}

/// What one handler took.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HandlerInfo {
    /// Calls.
    #[prost(uint64, tag = "1")]
    pub calls: u64,
    /// Nanoseconds of all of them.
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}

/// What interference control does.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct InterferenceInfo {
    /// The mean latency of reads that is all right, in microseconds; 0: it does not matter.
    #[prost(uint64, tag = "1")]
    pub mean_us: u64,
    /// The same of the 99th percentile.
    #[prost(uint64, tag = "2")]
    pub p99_us: u64,
    /// Windows that ended.
    #[prost(uint64, tag = "3")]
    pub windows: u64,
    /// Those of them in which reads were slower.
    #[prost(uint64, tag = "4")]
    pub slow_windows: u64,
    /// How often tokens were taken away from a class.
    #[prost(uint64, tag = "5")]
    pub cuts: u64,
    /// How often some were given back.
    #[prost(uint64, tag = "6")]
    pub gives: u64,
    /// Writes that found no tokens; one that tries again counts again.
    #[prost(uint64, tag = "7")]
    pub waits: u64,
    /// Bytes that Silver may write in a second; none while it is not bound.
    #[prost(uint64, optional, tag = "8")]
    pub silver_rate: Option<u64>,
    /// The same of Copper.
    #[prost(uint64, optional, tag = "9")]
    pub copper_rate: Option<u64>,
    /// What reads of Gold and Silver take in the mean of the last windows, in nanoseconds.
    #[prost(uint64, tag = "10")]
    pub seen_mean_ns: u64,
    /// Their 99th percentile in the last windows.
    #[prost(uint64, tag = "11")]
    pub seen_p99_ns: u64,
}

/// How a disk of a server is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DiskInfo {
    /// Its directory.
    #[prost(string, tag = "1")]
    pub name: String,
    /// 0: it serves; 1: it takes reads only; 2: it has failed, and its chunks are refused.
    #[prost(uint32, tag = "2")]
    pub state: u32,
    /// Why it does not serve all; empty when it does.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// Its chunks.
    #[prost(uint64, tag = "4")]
    pub chunks: u64,
    /// Bytes of slices that hold data.
    #[prost(uint64, tag = "5")]
    pub live_bytes: u64,
    /// Bytes that can still be stored on it.
    #[prost(uint64, tag = "6")]
    pub free_bytes: u64,
    /// Bytes that it can hold.
    #[prost(uint64, tag = "7")]
    pub capacity_bytes: u64,
    /// Bytes a second of its background scrub; 0: there is none.
    #[prost(uint64, tag = "8")]
    pub scrub_rate_bytes: u64,
    /// Slices that the pass of the scrub has checked; 0 between passes.
    #[prost(uint64, tag = "9")]
    pub scrub_checked: u64,
    /// Slices that there are for it, about.
    #[prost(uint64, tag = "10")]
    pub scrub_expected: u64,
    /// When its last whole pass ended, in seconds since 1970; 0: never.
    #[prost(uint64, tag = "11")]
    pub scrub_last_pass_s: u64,
    /// The number of its store, which no other store has; 0 where it is not known.
    #[prost(fixed64, tag = "12")]
    pub store_id: u64,
}

impl InfoReply {
    /// The stores of the server: it is still the same one where it has one of them.
    pub fn store_ids(&self) -> impl Iterator<Item = u64> {
        self.disks.iter().map(|disk| disk.store_id).filter(|id| *id != 0)
    }
}
