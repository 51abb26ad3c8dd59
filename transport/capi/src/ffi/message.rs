//! Messages and buffers: sent, received, released.

use super::endpoint::tow_endpoint;
use super::guard::{read_or_default, slice, slice_mut, status, with, write, write_if_wanted};
use super::library::TOW_SEGMENTS_MAX;
use super::types::{
    tow_buf, tow_bytes, tow_channel, tow_link, tow_message, tow_options, tow_segment, tow_send_id,
    tow_status,
};
use crate::fault::Fault;
use std::ffi::c_void;

/// Takes a buffer for at least `len` bytes. The caller may write `capacity` bytes from `data` on
/// until it is sent, written or freed. `capacity` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_buf_alloc(
    endpoint: *mut tow_endpoint,
    len: usize,
    out: *mut tow_buf,
    data: *mut *mut u8,
    capacity: *mut usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            if out.is_null() || data.is_null() {
                return Err(Fault::null("the place for the buffer"));
            }
            let mut buf = at.endpoint.alloc(len)?;
            let bytes = buf.capacity();
            buf.set_len(bytes)?;
            // It does not move: the bytes are in a pool, wherever the buffer is.
            write(data, buf.as_mut_ptr(), "the place for the bytes")?;
            write_if_wanted(capacity, bytes);
            let id = at.names.bufs.insert(buf);
            write(out, tow_buf { id }, "the place for the buffer")
        })
    })
}

/// Gives a buffer back that was not sent, or that an operation brought.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_buf_free(endpoint: *mut tow_endpoint, buf: tow_buf) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            at.names.bufs.remove(buf.id).map(drop).ok_or_else(|| Fault::stale("buffer"))
        })
    })
}

/// Has TOW_EVENT_BUFFER_FREE tell, once, when there is a buffer for `bytes` bytes: after
/// TOW_E_NO_BUFFER.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_want_buffer(endpoint: *mut tow_endpoint, bytes: usize) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            at.endpoint.want_buffer(bytes);
            Ok(())
        })
    })
}

/// Sends a copy of `len` bytes. TOW_EVENT_SENT follows. `options` and `out` may be NULL. Nothing
/// leaves before `tow_flush`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_send_copy(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    channel: tow_channel,
    data: *const c_void,
    len: usize,
    options: *const tow_options,
    out: *mut tow_send_id,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let to = (at.link(link)?, channel);
            let bytes = slice(data.cast::<u8>(), len, "the message")?;
            if bytes.is_empty() {
                return Err(Fault::argument("a message has at least one byte"));
            }
            let copy = at.endpoint.copy(bytes)?;
            let sent = at.send(to, copy.into(), &read_or_default(options));
            let sent = sent.map_err(|(_, fault)| fault)?;
            write_if_wanted(out, sent);
            Ok(())
        })
    })
}

/// Sends 1 to TOW_SEGMENTS_MAX buffers as one message, without a copy (but of segments of up to
/// 512 bytes). They are the endpoint's from here on, which frees them with the outcome; after an
/// error they are the caller's. TOW_EVENT_SENT follows. `options` and `out` may be NULL. Nothing
/// leaves before `tow_flush`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_send(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    channel: tow_channel,
    segments: *const tow_segment,
    count: usize,
    options: *const tow_options,
    out: *mut tow_send_id,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let to = (at.link(link)?, channel);
            if !(1..=TOW_SEGMENTS_MAX).contains(&count) {
                return Err(Fault::argument(format!("{count} segments: 1 to 4 may be")));
            }
            let segments = slice(segments, count, "the list of segments")?;
            let sent = at.send_bufs(to, segments, &read_or_default(options))?;
            write_if_wanted(out, sent);
            Ok(())
        })
    })
}

/// Sends a message on that came, to whom it came from or another, without a copy. It is the
/// endpoint's from here on; after an error it is the caller's. TOW_E_UNSUPPORTED if it came in more
/// than TOW_SEGMENTS_MAX pieces. TOW_EVENT_SENT follows. `options` and `out` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_send_message(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    channel: tow_channel,
    message: tow_message,
    options: *const tow_options,
    out: *mut tow_send_id,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let to = (at.link(link)?, channel);
            let sent = at.send_message(to, message, &read_or_default(options))?;
            write_if_wanted(out, sent);
            Ok(())
        })
    })
}

/// Gives a message up that is being sent. TOW_EVENT_SENT follows all the same. TOW_E_STALE if it
/// has ended.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_cancel(endpoint: *mut tow_endpoint, send: tow_send_id) -> tow_status {
    // SAFETY: see the module.
    status(unsafe { with(endpoint, |at| at.cancel(send)) })
}

/// The pieces of a message, in order, as many as there is room for; `out_count` is how many there
/// are. `parts` may be NULL if `room` is 0.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_message_parts(
    endpoint: *mut tow_endpoint,
    message: tow_message,
    parts: *mut tow_bytes,
    room: usize,
    out_count: *mut usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let held = at.names.messages.at(message.id).ok_or_else(|| Fault::stale("message"))?;
            if parts.is_null() && room > 0 {
                return Err(Fault::null("the place for the pieces"));
            }
            let found = held.parts();
            for (place, part) in found.iter().take(room).enumerate() {
                let part = tow_bytes { data: part.as_ptr(), len: part.len() };
                write(parts.add(place), part, "the place for a piece")?;
            }
            write(out_count, found.len(), "the place for the count")
        })
    })
}

/// Copies a message to `room` bytes; TOW_E_TOO_LONG, and nothing is copied, if it is longer.
/// `out_len`, which may be NULL, gets its length.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_message_copy(
    endpoint: *mut tow_endpoint,
    message: tow_message,
    to: *mut c_void,
    room: usize,
    out_len: *mut usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let held = at.names.messages.at(message.id).ok_or_else(|| Fault::stale("message"))?;
            let parts = held.parts();
            let len: usize = parts.iter().map(|part| part.len()).sum();
            if len > room {
                let text = format!("a message of {len} bytes does not fit {room}");
                return Err(Fault::new(tow_status::TOW_E_TOO_LONG, text));
            }
            let mut rest = slice_mut(to.cast::<u8>(), len, "the place for the message")?;
            for part in parts {
                let (here, behind) = rest.split_at_mut(part.len());
                here.copy_from_slice(part);
                rest = behind;
            }
            write_if_wanted(out_len, len);
            Ok(())
        })
    })
}

/// Gives a message back, so that its peer may send another: its bytes are out of reach from here
/// on.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_message_release(
    endpoint: *mut tow_endpoint,
    message: tow_message,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe { with(endpoint, |at| at.release(message)) })
}
