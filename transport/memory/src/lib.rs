//! Registered memory and buffer pools: ownership, alignment, huge pages.
//!
//! Applications use [`Buf`], a buffer taken from a [`Pool`], which hands out parts of a [`Region`]
//! that is registered with a device. What peers may reach by key is another type,
//! [`SharedMemory`]. Devices and the endpoint use the other types.
//!
//! Only this crate has raw pointers into memory that a device writes, and no safe call of it, in
//! whatever order, changes bytes that somebody has as a slice. Types and states see to that:
//!
//! 1. Each buffer has one owner, a [`Buf`], who reads and writes it. A posted buffer is a [`Lent`]
//!    (in place: a lent [`Berth`]), which gives no access to its bytes, or, for sending only, a
//!    [`Shared`], which cannot be changed. A [`Frozen`] buffer cannot be changed at all, so several
//!    posted messages may use it; parts of a receive buffer are frozen while they are out
//!    ([`Lender`]).
//! 2. A gather entry is only numbers. A device asks its [`MrTable`] for a [`Hold`] on what the
//!    entry names, which it gets while the buffer is lent, and reaches the bytes by that alone.
//!    What is read is borrowed of the table; to write, and to give a hold up, takes the table as
//!    `&mut`.
//! 3. A buffer is taken back, in whatever form it was lent, only when no device has a hold on it;
//!    the call refuses before. What is dropped instead is leaked.
//! 4. One device at a time has a buffer that may be written; what is shared or frozen any number
//!    may read. So two devices that threads of their own drive do not meet in a buffer.
//! 5. With a key a peer reaches [`SharedMemory`] alone: a [`Region`] cannot be registered for it.
//!    Shared memory is read and written by atomic words, never as slices.
//!
//! Holds are counted in a word for each buffer. One thread alone counts by a load and a store, and
//! several threads by atomic steps: which of both is decided for each region, while it is used. A
//! copy by the thread that counts alone needs no count: nobody takes the buffer back meanwhile.
//!
//! A device that software does not carry out, as one on libibverbs, must give a hold up only when
//! its driver is done with the bytes.
//!
//! ```
//! use towpath_memory::{Pool, Region};
//! let pool = Pool::new(Region::new(1 << 20)?, 4096);
//! let mut buf = pool.take().expect("a fresh pool has buffers");
//! buf.extend(b"hello")?;
//! let lent = buf.lend(); // from here on the bytes belong to the device
//! let buf = lent.reclaim().expect("no device has a hold on it");
//! assert_eq!(&buf[..], b"hello");
//! # Ok::<(), towpath_memory::MemoryError>(())
//! ```
//!
//! Lent bytes cannot be read or written:
//! ```compile_fail,E0608
//! # use towpath_memory::{Pool, Region};
//! # let pool = Pool::new(Region::new(1 << 20).unwrap(), 4096);
//! let lent = pool.take().unwrap().lend();
//! let first = lent[0];
//! ```
//! nor can a buffer be used on by who has lent it:
//! ```compile_fail,E0382
//! # use towpath_memory::{Pool, Region};
//! # let pool = Pool::new(Region::new(1 << 20).unwrap(), 4096);
//! let mut buf = pool.take().unwrap();
//! let lent = buf.lend();
//! buf[0] = 1;
//! ```
//! What is being sent can be read, but not written:
//! ```compile_fail,E0594
//! # use towpath_memory::{Pool, Region};
//! # let pool = Pool::new(Region::new(1 << 20).unwrap(), 4096);
//! let frozen = pool.take().unwrap().freeze();
//! frozen[0] = 1;
//! ```
//! A region, of which there are slices, cannot be registered for peers:
//! ```compile_fail,E0308
//! # use towpath_memory::{MrTable, Region};
//! # use towpath_verbs::{Access, PdNum};
//! # let (mut table, region) = (MrTable::new(1), Region::new(4096).unwrap());
//! let keys = table.register_shared(PdNum::DEFAULT, &region, 0..4096, Access::REMOTE_WRITE);
//! ```
//! A device reaches nothing by an entry for which it has no hold:
//! ```compile_fail,E0308
//! # use towpath_memory::{MrTable, Pool, Region};
//! # use towpath_verbs::{Access, PdNum};
//! # let pool = Pool::new(Region::new(1 << 20).unwrap(), 4096);
//! # let mut table = MrTable::new(1);
//! # let lkey = table.register(PdNum::DEFAULT, pool.region(), Access::LOCAL).unwrap().lkey;
//! let sge = pool.take().unwrap().lend().sge(lkey, 0, 4);
//! table.scatter(&sge, b"abcd");
//! ```
//! While it looks at bytes that it sends, it neither writes any nor gives them up:
//! ```compile_fail,E0502
//! # use towpath_memory::{MrTable, Pool, Region};
//! # use towpath_verbs::{Access, PdNum};
//! # let pool = Pool::new(Region::new(1 << 20).unwrap(), 4096);
//! # let mut table = MrTable::new(1);
//! # let lkey = table.register(PdNum::DEFAULT, pool.region(), Access::LOCAL).unwrap().lkey;
//! # let lent = pool.take().unwrap().lend();
//! let hold = table.hold(PdNum::DEFAULT, &lent.sge(lkey, 0, 4), true).unwrap();
//! let bytes = table.gather(&hold.whole()).unwrap();
//! table.scatter(&hold.whole(), b"abcd");
//! assert_eq!(bytes, [0; 4]);
//! ```
//! ```compile_fail,E0502
//! # use towpath_memory::{MrTable, Pool, Region};
//! # use towpath_verbs::{Access, PdNum};
//! # let pool = Pool::new(Region::new(1 << 20).unwrap(), 4096);
//! # let mut table = MrTable::new(1);
//! # let lkey = table.register(PdNum::DEFAULT, pool.region(), Access::LOCAL).unwrap().lkey;
//! # let lent = pool.take().unwrap().lend();
//! let hold = table.hold(PdNum::DEFAULT, &lent.sge(lkey, 0, 4), false).unwrap();
//! let bytes = table.gather(&hold.whole()).unwrap();
//! table.release(hold);
//! assert_eq!(bytes, [0; 4]);
//! ```

mod accounts;
mod barrier;
mod berth;
mod buf;
mod free;
mod hold;
mod home;
mod mapping;
#[cfg(all(test, loom))]
mod models;
mod mr;
mod region;
mod room;
mod segment;
mod shared;
mod shared_memory;
mod slots;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod wanted;
mod words;

pub use berth::Berth;
pub use buf::{Buf, Lent, NotTaken, Pool};
pub use hold::{Hold, Holder, Holds, Piece};
pub use mr::MrTable;
pub use region::{PAGE_BYTES, Region, RegionId};
pub use room::Room;
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
