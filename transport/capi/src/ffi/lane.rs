//! One-sided operations: grants of memory of ours, and operations on memory of peers.

use super::endpoint::tow_endpoint;
use super::guard::{read_or_default, slice, status, with, write_if_wanted};
use super::memory::tow_memory;
use super::types::{tow_buf, tow_grant_id, tow_link, tow_options, tow_place, tow_status};
use crate::fault::Fault;
use crate::inner::rights;
use std::ffi::c_void;
use towpath_transport::RejectedOp;

/// Lets the peer of a link reach `len` bytes of `memory` from `offset` on: it gets
/// TOW_EVENT_GRANTED. `may` is tow_rights added up. The grant ends by `tow_revoke`, or with the
/// link; until then the memory lives, also if it is freed here. `out` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_grant(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    memory: *const tow_memory,
    offset: usize,
    len: usize,
    may: u32,
    out: *mut tow_grant_id,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let link = at.link(link)?;
            let memory = memory.as_ref().ok_or_else(|| Fault::null("the memory"))?;
            let end = offset.checked_add(len);
            let end = end.ok_or_else(|| Fault::argument(format!("{len} is no length")))?;
            let grant = at.endpoint.grant(link, &memory.shared, offset..end, rights(may)?)?;
            write_if_wanted(out, tow_grant_id { id: grant.0 });
            Ok(())
        })
    })
}

/// Takes a grant back: when this returns, the peer does not reach the memory any more.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_revoke(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    grant: tow_grant_id,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe { with(endpoint, |at| at.revoke(link, grant)) })
}

/// Fetches `len` bytes of a peer's memory, into a buffer of the endpoint's that
/// TOW_EVENT_OP_DONE brings. `options` may be NULL. Nothing leaves before `tow_flush`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_read(
    endpoint: *mut tow_endpoint,
    place: tow_place,
    len: u32,
    options: *const tow_options,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let buf = at.endpoint.alloc(len as usize)?;
            at.operate(place, (&read_or_default(options), true), |endpoint, place, options| {
                let read = endpoint.read(place, len, buf, options);
                read.map_err(|RejectedOp { error, .. }| error.into())
            })
        })
    })
}

/// Writes the first `len` bytes of a buffer to a peer's memory, without a copy. The buffer is the
/// endpoint's from here on, which frees it with the outcome; after an error it is the caller's.
/// `options` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_write(
    endpoint: *mut tow_endpoint,
    place: tow_place,
    buf: tow_buf,
    len: u32,
    options: *const tow_options,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let found = at.names.bufs.at(buf.id).ok_or_else(|| Fault::stale("buffer"))?;
            let capacity = found.capacity();
            if len == 0 || len as usize > capacity {
                let text = format!("{len} bytes of a buffer that holds 1 to {capacity}");
                return Err(Fault::argument(text));
            }
            let mut bytes = at.names.bufs.take_out(buf.id).ok_or_else(|| Fault::stale("buffer"))?;
            bytes.set_len(len as usize)?;
            let options = read_or_default(options);
            let mut back = Some(bytes);
            let done = at.operate(place, (&options, false), |endpoint, place, options| {
                let bytes = back.take().ok_or_else(|| Fault::stale("buffer"))?;
                endpoint.write(place, bytes, options).map_err(|RejectedOp { buf, error }| {
                    back = Some(buf);
                    error.into()
                })
            });
            match back {
                Some(bytes) => at.names.bufs.put_back(buf.id, bytes),
                None => at.names.bufs.forget(buf.id),
            }
            done
        })
    })
}

/// Writes a copy of `len` bytes to a peer's memory. `options` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_write_copy(
    endpoint: *mut tow_endpoint,
    place: tow_place,
    data: *const c_void,
    len: usize,
    options: *const tow_options,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let copy = at.endpoint.copy(slice(data.cast::<u8>(), len, "the bytes")?)?;
            at.operate(place, (&read_or_default(options), false), |endpoint, place, options| {
                let write = endpoint.write(place, copy, options);
                write.map_err(|RejectedOp { error, .. }| error.into())
            })
        })
    })
}

/// Writes a word of eight bytes, in this host's byte order, at once. `options` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_write_word(
    endpoint: *mut tow_endpoint,
    place: tow_place,
    value: u64,
    options: *const tow_options,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            at.operate(place, (&read_or_default(options), false), |endpoint, place, options| {
                Ok(endpoint.write_word(place, value, options)?)
            })
        })
    })
}

/// Adds to a word of a peer's memory; TOW_EVENT_OP_DONE tells what it was. Done once or not at all.
/// `options` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_fetch_add(
    endpoint: *mut tow_endpoint,
    place: tow_place,
    add: u64,
    options: *const tow_options,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            at.operate(place, (&read_or_default(options), false), |endpoint, place, options| {
                Ok(endpoint.fetch_add(place, add, options)?)
            })
        })
    })
}

/// Puts `swap` into a word of a peer's memory if it equals `compare`; TOW_EVENT_OP_DONE tells what
/// it was. Done once or not at all. `options` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_cmp_swap(
    endpoint: *mut tow_endpoint,
    place: tow_place,
    compare: u64,
    swap: u64,
    options: *const tow_options,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            at.operate(place, (&read_or_default(options), false), |endpoint, place, options| {
                Ok(endpoint.cmp_swap(place, (compare, swap), options)?)
            })
        })
    })
}
