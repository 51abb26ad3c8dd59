//! Why `towpath bench store` cannot run, and what to do next.

use std::fmt;

use hdrhistogram::CreationError;

use crate::cli::bytes::show_size;

/// Flags that do not fit each other, a server that cannot do what they say, or wrong data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// The block size neither divides a slice nor is a multiple of one.
    #[error(
        "--bs {0} neither divides 4,096 nor is a multiple of it: give 512, 4k, 64k or the like"
    )]
    Block(u64),
    /// A request would be longer than the server and the link take.
    #[error(
        "--bs {} is more than this server takes in one request: give --bs {} or less",
        show_size(*asked), show_size(*most)
    )]
    BlockTooLong {
        /// The block size.
        asked: u64,
        /// The most that server and link take.
        most: u64,
    },
    /// The chunks of a job do not hold a whole number of blocks.
    #[error(
        "--size {size} does not divide into {chunks} chunk(s) of whole blocks of {block} bytes: \
         give a multiple of {}", chunks * block
    )]
    Size {
        /// Bytes of each job.
        size: u64,
        /// Chunks of each job.
        chunks: u64,
        /// Bytes of a request.
        block: u64,
    },
    /// `--time-based` without an end.
    #[error("--time-based has no end: give --runtime SECONDS as well")]
    NoEnd,
    /// Verified writes need blocks that no other write has under way.
    #[error(
        "--verify needs at least two blocks for each request under way: give --size {} or more, or \
         a lower --iodepth", show_size(*least)
    )]
    VerifyRoom {
        /// The least size of a job in bytes.
        least: u64,
    },
    /// The number of named chunks is not that of the chunks of all jobs.
    #[error(
        "--chunk names {named} chunk(s), but --numjobs times --nrfiles is {needed}: name as many"
    )]
    Chunks {
        /// Names given.
        named: usize,
        /// Names needed.
        needed: usize,
    },
    /// No memory for latencies.
    #[error("cannot keep latencies; this is a bug, please report it: {0}")]
    Latencies(#[from] CreationError),
    /// What was read is not what was written.
    #[error(
        "wrong data in chunk {chunk} at byte {offset}: {fault}. The checksums of the transport \
         fit, so the store returned other bytes than were written: keep its data directory and \
         report this"
    )]
    Wrong {
        /// The chunk.
        chunk: String,
        /// The first byte of the page.
        offset: u64,
        /// What is wrong with it.
        fault: Fault,
    },
}

/// What is wrong with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is none that this run wrote, or of another place.
    Foreign,
    /// It is an older or a newer version than the chunk may have.
    Version {
        /// The version found.
        found: u32,
        /// The oldest that may be there.
        least: u32,
        /// The newest that may be there.
        most: u32,
    },
    /// Its first bytes fit, and a later one does not.
    Body,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("the page was not written by this run at this place"),
            Self::Version { found, least, most } => {
                write!(f, "version {found} of the page where {least} to {most} may be")
            }
            Self::Body => f.write_str("bytes within the page are changed"),
        }
    }
}
