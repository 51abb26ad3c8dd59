//! What belongs to no endpoint: versions, and what errors mean.

use super::guard::guard;
use super::types::{tow_carrier_reason, tow_status};
use crate::fault::Fault;
use std::cell::RefCell;
use std::ffi::{CStr, c_char};

/// The version of what programs are compiled against: `tow_abi_version` gives that of the library.
pub const TOW_ABI_VERSION: u32 = 2;

/// Segments that a message that is sent can have.
pub const TOW_SEGMENTS_MAX: usize = 4;

thread_local! {
    static LAST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what happened for `tow_last_error`.
pub(super) fn note(fault: &Fault) {
    // A thread that is just ending keeps nothing.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.clear();
            last.extend(fault.text.bytes().filter(|&byte| byte != 0));
            last.push(0);
        }
    });
}

/// The version of the library, as "0.1.0".
#[unsafe(no_mangle)] // SAFETY: nothing else has the name.
pub extern "C" fn tow_version() -> *const c_char {
    const TEXT: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"",
        };
    guard(|| Ok(TEXT.as_ptr())).unwrap_or(c"".as_ptr())
}

/// TOW_ABI_VERSION of the library. A program that finds another one than it was compiled against
/// must not go on.
#[unsafe(no_mangle)] // SAFETY: nothing else has the name.
pub extern "C" fn tow_abi_version() -> u32 {
    guard(|| Ok(TOW_ABI_VERSION)).unwrap_or(0)
}

/// What a status means, in a few words that live for ever. Any number may be asked for.
#[unsafe(no_mangle)] // SAFETY: nothing else has the name.
pub extern "C" fn tow_error_text(status: i32) -> *const c_char {
    guard(|| Ok(meaning(status).as_ptr())).unwrap_or(c"unknown".as_ptr())
}

fn meaning(status: i32) -> &'static CStr {
    const MEANINGS: &[(tow_status, &CStr)] = &[
        (tow_status::TOW_OK, c"it worked"),
        (tow_status::TOW_E_NULL, c"a pointer is NULL that must not be"),
        (tow_status::TOW_E_ARGUMENT, c"a value cannot be used"),
        (tow_status::TOW_E_STALE, c"a name means nothing, or nothing any more"),
        (tow_status::TOW_E_THREAD, c"the endpoint belongs to another thread"),
        (tow_status::TOW_E_BUSY, c"the endpoint is in a call already"),
        (tow_status::TOW_E_PANIC, c"a bug in the library"),
        (tow_status::TOW_E_SYSTEM, c"the system refused"),
        (tow_status::TOW_E_NO_MEMORY, c"there is no memory"),
        (tow_status::TOW_E_FULL, c"as much is under way as may be"),
        (tow_status::TOW_E_NO_BUFFER, c"all send buffers are out"),
        (tow_status::TOW_E_TOO_LONG, c"too long"),
        (tow_status::TOW_E_NOT_OPEN, c"the channel is not open"),
        (tow_status::TOW_E_DENIED, c"the grant does not allow this"),
        (tow_status::TOW_E_UNSUPPORTED, c"this cannot be done here"),
        (tow_status::TOW_E_LIMIT, c"there are as many as there may be"),
        (tow_status::TOW_E_UNREACHABLE, c"nobody can be reached there"),
        (tow_status::TOW_E_TIMEOUT, c"no answer in time"),
        (tow_status::TOW_E_REFUSED, c"the peer refused"),
    ];
    let found = MEANINGS.iter().find(|&&(known, _)| known as i32 == status);
    found.map_or(c"no such status", |&(_, text)| text)
}

/// What a tow_carrier_reason means, in a few words that live for ever. Any number may be asked for.
#[unsafe(no_mangle)] // SAFETY: nothing else has the name.
pub extern "C" fn tow_carrier_reason_text(reason: u32) -> *const c_char {
    guard(|| Ok(meaning_of_carrier(reason).as_ptr())).unwrap_or(c"unknown".as_ptr())
}

fn meaning_of_carrier(reason: u32) -> &'static CStr {
    const MEANINGS: &[(tow_carrier_reason, &CStr)] = &[
        (
            tow_carrier_reason::TOW_CARRIER_SILENT,
            c"no packet over UDP was acknowledged; is UDP blocked?",
        ),
        (tow_carrier_reason::TOW_CARRIER_LOSSY, c"too many packets over UDP were lost"),
        (tow_carrier_reason::TOW_CARRIER_FAILED, c"the queue pairs failed"),
        (tow_carrier_reason::TOW_CARRIER_PEER, c"the other end went there"),
        (tow_carrier_reason::TOW_CARRIER_RECOVERED, c"packets over UDP arrive again"),
    ];
    let found = MEANINGS.iter().find(|&&(known, _)| known as u32 == reason);
    found.map_or(c"for another reason", |&(_, text)| text)
}

/// What made the last call of this thread fail, in a sentence that names what to do; empty if none
/// has failed. It lives until the next call of this thread that fails.
#[unsafe(no_mangle)] // SAFETY: nothing else has the name.
pub extern "C" fn tow_last_error() -> *const c_char {
    let last = guard(|| {
        let text = LAST.try_with(|last| {
            let last = last.try_borrow().ok()?;
            (!last.is_empty()).then(|| last.as_ptr().cast::<c_char>())
        });
        Ok(text.ok().flatten())
    });
    last.ok().flatten().unwrap_or(c"".as_ptr())
}
