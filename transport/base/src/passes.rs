//! How many bytes passes over memory have gone through, counted where the feature `passes` is on.
//!
//! The code that makes a pass calls [`note`]. Without the feature that is nothing at all; with it a
//! counter of the process grows, so that a test or a measurement can tell how often each byte of
//! its data was touched, whoever touched it.

#[cfg(feature = "passes")]
use core::sync::atomic::{AtomicU64, Ordering};

/// What kind of pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// CRC32C of bytes, which reads them.
    Crc,
    /// CRC-32 of a packet by the userspace NIC, which reads it.
    Icrc,
    /// A copy by anything above the device, which reads bytes and writes them.
    Copy,
    /// A copy by the userspace NIC from or to a buffer of an application.
    Device,
    /// A copy by the kernel to or from a socket.
    Socket,
    /// A sum or a product of erasure coding, which reads bytes and writes or changes others.
    Code,
}

impl Pass {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Crc, Self::Icrc, Self::Copy, Self::Device, Self::Socket, Self::Code];
}

/// Whether passes are counted.
pub const ARE_COUNTED: bool = cfg!(feature = "passes");

#[cfg(feature = "passes")]
static COUNTS: [AtomicU64; Pass::ALL.len()] = [const { AtomicU64::new(0) }; Pass::ALL.len()];

/// A pass over so many bytes.
#[inline(always)]
pub fn note(pass: Pass, bytes: usize) {
    #[cfg(feature = "passes")]
    COUNTS[pass as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    #[cfg(not(feature = "passes"))]
    let _ = (pass, bytes);
}

/// Bytes so far, of all threads of this process.
#[cfg(feature = "passes")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts([u64; Pass::ALL.len()]);

#[cfg(feature = "passes")]
impl Counts {
    /// Until now.
    #[must_use]
    pub fn now() -> Self {
        Self(core::array::from_fn(|kind| COUNTS[kind].load(Ordering::Relaxed)))
    }

    /// Of one kind of pass.
    #[must_use]
    pub fn of(&self, pass: Pass) -> u64 {
        self.0[pass as usize]
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(core::array::from_fn(|kind| self.0[kind].wrapping_sub(earlier.0[kind])))
    }
}

#[cfg(all(test, feature = "passes"))]
mod tests {
    use super::*;
    use crate::crc::{Crc32, Crc32c, crc32c};

    #[test]
    fn every_way_to_take_a_checksum_is_counted_with_its_bytes() {
        let before = Counts::now();
        let bytes = [0; 100_000];
        let _ = crc32c(&bytes);
        let (mut crc, mut icrc) = (Crc32c::new(), Crc32::new());
        crc.update(&bytes[..60_000]);
        icrc.update(&bytes[..50_000]);
        note(Pass::Copy, 7);
        let counted = Counts::now().since(&before);
        // Other tests take checksums at the same time, of some hundred bytes each.
        assert!(counted.of(Pass::Crc) >= 160_000, "{counted:?}");
        assert!(counted.of(Pass::Icrc) >= 50_000, "{counted:?}");
        assert_eq!(counted.of(Pass::Copy), 7);
        assert_eq!(counted.of(Pass::Socket), 0);
    }
}
