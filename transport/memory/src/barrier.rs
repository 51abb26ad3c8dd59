//! Two fences for two threads, of which the one that is seldom there pays for both.
//!
//! membarrier(2) makes every other thread of the process pass a fence. So the threads that are
//! often there need only keep the compiler from moving their accesses.

#[cfg(not(any(miri, all(loom, test))))]
mod system {
    use std::sync::OnceLock;
    use std::sync::atomic::{Ordering, compiler_fence};

    /// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of linux/membarrier.h.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    /// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`, which has to come before.
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call reads and writes no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Whether the system has it: Linux 4.14 or newer, and no filter against it.
    pub(crate) fn is_there() -> bool {
        static IS_THERE: OnceLock<bool> = OnceLock::new();
        *IS_THERE.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED))
    }

    #[inline]
    pub(crate) fn light() {
        compiler_fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy() {
        // To go on without it could give bytes to two owners.
        assert!(membarrier(PRIVATE_EXPEDITED), "membarrier(2) worked when this process began");
    }
}

/// Miri and loom know no membarrier; two fences have the same effect.
#[cfg(any(miri, all(loom, test)))]
mod system {
    #[cfg(all(loom, test))]
    use loom::sync::atomic::fence;
    use std::sync::atomic::Ordering;
    #[cfg(not(all(loom, test)))]
    use std::sync::atomic::fence;

    pub(crate) fn is_there() -> bool {
        true
    }

    pub(crate) fn light() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy() {
        fence(Ordering::SeqCst);
    }
}

pub(crate) use system::{heavy, is_there, light};
