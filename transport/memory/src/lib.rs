//! Registered memory and buffer pools: ownership, alignment, huge pages.
//!
//! Applications use [`Buf`], a buffer taken from a [`Pool`], which hands out parts of a [`Region`]
//! that is registered with a device. What peers may reach by key is another type,
//! [`SharedMemory`]. Devices and the endpoint use the other types.
//!
//! Only this crate has raw pointers into memory that a device writes. Three rules make it safe. The
//! types enforce the first. The crate that drives a device must keep the second, and devices must
//! keep the third. The functions that depend on these two rules (`reclaim`, [`MrTable`]) are not
//! marked `unsafe`, because those crates forbid unsafe code; the author of another driver or device
//! must keep the rules as well.
//!
//! 1. Bytes can be reached either through one [`Buf`] (exclusively) or by devices, never both. A
//!    posted buffer is a [`Lent`] (in place: a lent [`Berth`]), which gives no access to its bytes,
//!    or, for sending only, a [`Shared`], which cannot be changed. A [`Frozen`] buffer cannot be
//!    changed at all, so several posted messages may use it; parts of a receive buffer are frozen
//!    while they are out ([`Lender`]).
//! 2. [`Lent::reclaim`] is called only after the completion of every work request that names the
//!    buffer was polled. The endpoint does so in one place; applications never hold a `Lent`.
//! 3. With a key a peer reaches [`SharedMemory`] alone: a [`Region`] cannot be registered for it.
//!    Shared memory is read and written by atomic words, never as slices.
//!
//! ```
//! use towpath_memory::{Pool, Region};
//! let pool = Pool::new(Region::new(1 << 20)?, 4096);
//! let mut buf = pool.take().expect("a fresh pool has buffers");
//! buf.extend(b"hello")?;
//! let lent = buf.lend(); // from here on the bytes belong to the device
//! let buf = lent.reclaim(); // after its completion
//! assert_eq!(&buf[..], b"hello");
//! # Ok::<(), towpath_memory::MemoryError>(())
//! ```
//!
//! Lent bytes cannot be read or written:
//! ```compile_fail
//! # use towpath_memory::{Pool, Region};
//! # let pool = Pool::new(Region::new(1 << 20).unwrap(), 4096);
//! let lent = pool.take().unwrap().lend();
//! let first = lent[0];
//! ```

mod berth;
mod buf;
mod extent;
mod free;
mod mapping;
mod mr;
mod region;
mod segment;
mod shared;
mod shared_memory;
#[cfg(test)]
mod tests;
mod wanted;
mod words;

pub use berth::Berth;
pub use buf::{Buf, Lent, Pool};
pub use extent::{Source, Target};
pub use mr::MrTable;
pub use region::{PAGE_BYTES, Region, RegionId};
pub use segment::{Frozen, Lender, Segment};
pub use shared::Shared;
pub use shared_memory::SharedMemory;

/// Why memory could not be allocated or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A region of no bytes, or of more than the address space holds.
    #[error("a memory region of {bytes} bytes cannot be made: ask for 1 byte or more")]
    BadSize {
        /// What was asked for.
        bytes: usize,
    },
    /// The system has no memory left.
    #[error("no memory for a region of {bytes} bytes (errno {errno}); lower the buffer counts")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
        /// The system's reason.
        errno: i32,
    },
    /// Memory of the caller's whose start or length does not fit, or a word at such a place.
    #[error("the start and the length must be multiples of {align} bytes")]
    Misaligned {
        /// What they have to be multiples of.
        align: usize,
    },
    /// More bytes than the buffer holds.
    #[error("{wanted} bytes do not fit a buffer of {capacity}")]
    TooLong {
        /// What should have fitted.
        wanted: usize,
        /// What fits.
        capacity: usize,
    },
}
