//! Memory that peers may reach: of the library's, or of the caller's own.

use super::guard::{guard, slice, slice_mut, status, write, write_if_wanted};
use super::types::tow_status;
use crate::fault::Fault;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use towpath_transport::SharedMemory;

/// Memory that peers may read and change, as far as it is granted. Its functions may be called
/// from any thread, several at a time; freeing it once. Whoever looks at its bytes by pointers of
/// their own does so by atomic loads and stores of aligned words of eight bytes.
#[expect(non_camel_case_types, reason = "this is the name that C programs write")]
pub struct tow_memory {
    pub(super) shared: SharedMemory,
}

/// What is called when nobody uses memory of the caller's any more.
// SAFETY: the type of a function of C's; `drop` calls it.
struct Lender {
    release: Option<unsafe extern "C" fn(*mut c_void)>,
    user: *mut c_void,
    /// The memory was taken, so that it has to be given back.
    is_taken: Arc<AtomicBool>,
}

// SAFETY: `tow_memory_from` says that the function is called on any thread.
unsafe impl Send for Lender {}
// SAFETY: as above; nothing is done with a shared one.
unsafe impl Sync for Lender {}

impl Drop for Lender {
    fn drop(&mut self) {
        if let Some(release) = self.release.filter(|_| self.is_taken.load(Ordering::Acquire)) {
            // SAFETY: the caller of `tow_memory_from` answers for the function and its argument.
            unsafe { release(self.user) };
        }
    }
}

/// Makes memory of what `shared` gives, if there is a place for it.
///
/// # Safety
/// See the module.
unsafe fn make(
    out: *mut *mut tow_memory,
    shared: impl FnOnce() -> Result<SharedMemory, Fault>,
) -> tow_status {
    status(guard(|| {
        if out.is_null() {
            return Err(Fault::null("the place for the memory"));
        }
        let made = Box::into_raw(Box::new(tow_memory { shared: shared()? }));
        // SAFETY: see the module; not NULL.
        unsafe { write(out, made, "the place for the memory") }
    }))
}

/// Runs `body` on memory, if it is there.
///
/// # Safety
/// See the module.
unsafe fn look<T>(
    memory: *const tow_memory,
    body: impl FnOnce(&SharedMemory) -> Result<T, Fault>,
) -> Result<T, tow_status> {
    guard(|| {
        // SAFETY: see the module; all that is done with shared memory takes a shared reference.
        let memory = unsafe { memory.as_ref() }.ok_or_else(|| Fault::null("the memory"))?;
        body(&memory.shared)
    })
}

/// At least `bytes` bytes, all zero.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_new(bytes: usize, out: *mut *mut tow_memory) -> tow_status {
    // SAFETY: see the module.
    unsafe { make(out, || Ok(SharedMemory::new(bytes)?)) }
}

/// Memory of the caller's own: an arena, a mapped file. `start` and `bytes` are multiples of eight.
///
/// Until `release` is called with `user`, the bytes stay mapped, readable and writable, and whoever
/// else in this process reaches them does so by atomic loads and stores of aligned words of eight
/// bytes: the NIC of this process reads and writes them meanwhile. `release` is called once, by
/// whichever thread frees, revokes or ends what used the memory last; not after an error. It must
/// not call an endpoint, nor leave by an exception or longjmp. It may be NULL; then the bytes stay
/// for ever.
///
/// # Safety
/// See the module, and above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_from(
    start: *mut c_void,
    bytes: usize,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
    user: *mut c_void,
    out: *mut *mut tow_memory,
) -> tow_status {
    let take = || {
        let start = NonNull::new(start.cast()).ok_or_else(|| Fault::null("the memory"))?;
        let is_taken = Arc::new(AtomicBool::new(false));
        let owner = Box::new(Lender { release, user, is_taken: Arc::clone(&is_taken) });
        // SAFETY: the caller keeps what is said above.
        let shared = unsafe { SharedMemory::from_raw_parts(start, bytes, owner) }?;
        is_taken.store(true, Ordering::Release);
        Ok(shared)
    };
    // SAFETY: see the module.
    unsafe { make(out, take) }
}

/// Lets go of memory. What is granted of it stays until it is revoked or its link ends. NULL is
/// allowed.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_free(memory: *mut tow_memory) -> tow_status {
    status(guard(|| {
        if !memory.is_null() {
            // SAFETY: see the module: it was made by this library, and is freed once.
            drop(unsafe { Box::from_raw(memory) });
        }
        Ok(())
    }))
}

/// Its first byte, for atomic loads and stores, and its size. Both places may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_extent(
    memory: *const tow_memory,
    out_start: *mut *mut c_void,
    out_bytes: *mut usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        look(memory, |shared| {
            let start = std::ptr::with_exposed_provenance_mut(shared.addr() as usize);
            write_if_wanted(out_start, start);
            write_if_wanted(out_bytes, shared.byte_len());
            Ok(())
        })
    })
}

/// Copies `len` bytes from `offset` on, each aligned word at once.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_read(
    memory: *const tow_memory,
    offset: usize,
    to: *mut c_void,
    len: usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        look(memory, |shared| {
            let to = slice_mut(to.cast::<u8>(), len, "the place for the bytes")?;
            Ok(shared.read(offset, to)?)
        })
    })
}

/// Copies `len` bytes to `offset`, each aligned word at once.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_write(
    memory: *const tow_memory,
    offset: usize,
    from: *const c_void,
    len: usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        look(
            memory,
            |shared| Ok(shared.write(offset, slice(from.cast::<u8>(), len, "the bytes")?)?),
        )
    })
}

/// The word of eight bytes at `offset`, a multiple of eight.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_load(
    memory: *const tow_memory,
    offset: usize,
    out: *mut u64,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        look(memory, |shared| {
            let word = shared.word(offset)?.load(Ordering::SeqCst);
            write(out, word, "the place for the word")
        })
    })
}

/// Sets the word of eight bytes at `offset`, a multiple of eight.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_store(
    memory: *const tow_memory,
    offset: usize,
    value: u64,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        look(memory, |shared| {
            shared.word(offset)?.store(value, Ordering::SeqCst);
            Ok(())
        })
    })
}

/// Adds to a word, atomically towards peers too; `out`, which may be NULL, gets what it was.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_fetch_add(
    memory: *const tow_memory,
    offset: usize,
    add: u64,
    out: *mut u64,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        look(memory, |shared| {
            let was = shared.word(offset)?.fetch_add(add, Ordering::SeqCst);
            write_if_wanted(out, was);
            Ok(())
        })
    })
}

/// Puts `swap` into a word if it equals `compare`, atomically towards peers too; `out`, which may
/// be NULL, gets what it was.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_memory_cmp_swap(
    memory: *const tow_memory,
    offset: usize,
    compare: u64,
    swap: u64,
    out: *mut u64,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        look(memory, |shared| {
            let word = shared.word(offset)?;
            let was = word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
            write_if_wanted(out, was.unwrap_or_else(|was| was));
            Ok(())
        })
    })
}
