//! The block protocol of a chunk server over plain kernel TCP, without Towpath: what
//! `cargo xtask bench --only application` has beside the carriers of Towpath.
//!
//! `tcp_store serve FOLDER MIB` makes a store with one chunk of so many MiB and says where it
//! listens; it ends when its standard input does. `tcp_store load ADDRESS` puts load on it, in the
//! words of `towpath bench store`, and prints the same object.
//!
//! The messages are those of docs/storage-protocol.md sections 2 and 4 (header, body, checksums of
//! slices, data), one behind the other in the stream. Both ends are what a good server on TCP does:
//! one thread without locks, no delay for small packets, one gathering write for all that is ready,
//! data that is not copied on its way out, 50 us of polling before a sleep, as Towpath's ends have.
//! The store is the chunk server's own, driven by the thread of the network.
//!
//! | file | contents |
//! |---|---|
//! | `stream` | messages in a stream |
//! | `server`, `load` | the two ends |

#![forbid(unsafe_code)]

mod load;
mod server;
mod stream;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use towpath_chunkserver::store::ChunkId;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// The chunk that is read and written.
pub(crate) const CHUNK: ChunkId = ChunkId(1);

/// How long an end polls without work before it sleeps.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// The longest read or write.
pub(crate) const BLOCK_MAX: usize = 1 << 20;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Serve a new store in a folder
    Serve {
        /// Where the store goes; it must not be there yet.
        folder: PathBuf,
        /// Size of its chunk.
        #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
        mib: u64,
    },
    /// Put load on such a server
    Load(load::Args),
}

fn main() -> Outcome<()> {
    match Args::parse().what {
        What::Serve { folder, mib } => server::serve(&folder, mib),
        What::Load(args) => load::run(&args),
    }
}
