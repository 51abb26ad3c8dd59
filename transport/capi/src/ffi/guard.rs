//! The border: no panic crosses it, no endpoint is used by two threads, no NULL is followed.

use super::endpoint::tow_endpoint;
use super::library::note;
use super::types::tow_status;
use crate::fault::Fault;
use crate::inner::Inner;
use std::any::Any;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

thread_local! {
    /// Its address is the thread's name.
    static HERE: u8 = const { 0 };
}

/// A name of this thread, as long as it lives.
pub(super) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// Runs `body`; its fault, or its panic, becomes what `tow_last_error` says.
pub(super) fn guard<T>(body: impl FnOnce() -> Result<T, Fault>) -> Result<T, tow_status> {
    guarded(|| {
        #[cfg(test)]
        super::tests::panic_if_told();
        body()
    })
}

fn guarded<T>(body: impl FnOnce() -> Result<T, Fault>) -> Result<T, tow_status> {
    // What `body` may leave half done: its own values, which are gone, and those of an endpoint,
    // which `with` marks.
    let ended = catch_unwind(AssertUnwindSafe(body));
    let fault = match ended {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(fault)) => fault,
        Err(panic) => Fault::new(tow_status::TOW_E_PANIC, panic_text(&*panic)),
    };
    note(&fault);
    Err(fault.status)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a bug in the library: {}", text.unwrap_or("a panic without a text"))
}

/// Runs `body` on an endpoint, if it is there, is this thread's, and is in no call.
///
/// # Safety
/// The endpoint is NULL, or was made by this library and not freed.
pub(super) unsafe fn with<T>(
    endpoint: *const tow_endpoint,
    body: impl FnOnce(&mut Inner) -> Result<T, Fault>,
) -> Result<T, tow_status> {
    guarded(|| {
        // SAFETY: as the caller promises.
        let Some(endpoint) = (unsafe { endpoint.as_ref() }) else {
            return Err(Fault::null("the endpoint"));
        };
        if endpoint.owner.load(Ordering::Relaxed) != this_thread() {
            let text = "the endpoint belongs to another thread: see tow_endpoint_adopt";
            return Err(Fault::new(tow_status::TOW_E_THREAD, text));
        }
        if endpoint.has_panicked.get() {
            let text = "a bug in the library has ended this endpoint: free it";
            return Err(Fault::new(tow_status::TOW_E_PANIC, text));
        }
        if endpoint.is_entered.replace(true) {
            let text = "the endpoint is in a call: a callback must not call back";
            return Err(Fault::new(tow_status::TOW_E_BUSY, text));
        }
        let mut call = Call { endpoint, has_returned: false };
        // SAFETY: this is the endpoint's thread, and `is_entered` was not set: there is no other
        // reference.
        let inner = unsafe { &mut *endpoint.inner.get() };
        #[cfg(test)]
        super::tests::panic_if_told();
        let result = body(inner);
        call.has_returned = true;
        result
    })
}

/// A call on an endpoint. One that does not return has left it half done.
struct Call<'a> {
    endpoint: &'a tow_endpoint,
    has_returned: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.endpoint.is_entered.set(false);
        if !self.has_returned {
            self.endpoint.has_panicked.set(true);
        }
    }
}

/// What a call that tells nothing else returns.
pub(super) fn status(result: Result<(), tow_status>) -> tow_status {
    result.err().unwrap_or(tow_status::TOW_OK)
}

/// What a call returns that counts: not negative, or the error.
pub(super) fn count(result: Result<usize, tow_status>) -> i32 {
    match result {
        Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
        Err(status) => status as i32,
    }
}

/// The value behind a pointer, or a default in place of NULL.
///
/// # Safety
/// The pointer is NULL, or points to such a value.
pub(super) unsafe fn read_or_default<T: Copy + Default>(from: *const T) -> T {
    // SAFETY: as the caller promises.
    unsafe { from.as_ref() }.copied().unwrap_or_default()
}

/// Writes a value to a pointer that must be there.
///
/// # Safety
/// The pointer is NULL, or such a value can be written there.
pub(super) unsafe fn write<T>(to: *mut T, value: T, what: &str) -> Result<(), Fault> {
    if to.is_null() {
        return Err(Fault::null(what));
    }
    // SAFETY: as the caller promises.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a value for those who want it.
///
/// # Safety
/// As for `write`.
pub(super) unsafe fn write_if_wanted<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: as the caller promises.
        unsafe { to.write(value) };
    }
}

/// As much of a structure as the caller has room for, whose version of it may be another one.
///
/// # Safety
/// The pointer is NULL, or `bytes` can be written there.
pub(super) unsafe fn write_prefix<T: Copy>(
    to: *mut T,
    bytes: usize,
    value: &T,
) -> Result<(), Fault> {
    if to.is_null() {
        return Err(Fault::null("the place for the result"));
    }
    if bytes == 0 {
        return Err(Fault::argument("there is room for 0 bytes: give the size of the structure"));
    }
    let len = bytes.min(size_of::<T>());
    // SAFETY: as the caller promises; the value is as long, and `T` is of C: its bytes are plain.
    unsafe { std::ptr::from_ref(value).cast::<u8>().copy_to_nonoverlapping(to.cast(), len) };
    Ok(())
}

/// `len` bytes of the caller's; none if `len` is zero.
///
/// # Safety
/// The pointer is NULL, or points to as many bytes, which nobody changes for as long as `'a`.
pub(super) unsafe fn slice<'a, T>(
    from: *const T,
    len: usize,
    what: &str,
) -> Result<&'a [T], Fault> {
    check_len::<T>(from.is_null(), len, what)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: as the caller promises; not NULL, and no more than may be.
    Ok(unsafe { std::slice::from_raw_parts(from, len) })
}

/// The same, to be written to.
///
/// # Safety
/// The pointer is NULL, or points to as many initialised values, which nobody else reaches for as
/// long as `'a`.
pub(super) unsafe fn slice_mut<'a, T>(
    to: *mut T,
    len: usize,
    what: &str,
) -> Result<&'a mut [T], Fault> {
    check_len::<T>(to.is_null(), len, what)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as the caller promises; not NULL, and no more than may be.
    Ok(unsafe { std::slice::from_raw_parts_mut(to, len) })
}

fn check_len<T>(is_null: bool, len: usize, what: &str) -> Result<(), Fault> {
    if is_null && len > 0 {
        return Err(Fault::null(what));
    }
    // No object is larger, so this is a negative number that was made unsigned.
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Fault::argument(format!("{len} is no length")));
    }
    Ok(())
}

/// A text of C's.
///
/// # Safety
/// The pointer is NULL, or points to bytes that end with a zero, and that nobody changes for as
/// long as `'a`.
pub(super) unsafe fn text<'a>(from: *const c_char, what: &str) -> Result<&'a str, Fault> {
    if from.is_null() {
        return Err(Fault::null(what));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map_err(|_| Fault::argument(format!("{what} is not UTF-8")))
}
