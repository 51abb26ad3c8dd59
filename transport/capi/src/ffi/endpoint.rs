//! An endpoint: made, driven by the caller's loop, freed.

use super::config::tow_config;
use super::guard::{count, guard, status, text, this_thread, with, write};
use super::types::{tow_event, tow_profile, tow_status};
use crate::fault::Fault;
use crate::inner::Inner;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_char;
use std::net::IpAddr;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;
use towpath_transport::{Nanos, Time, resolve_ip};

/// A device and its links to peers, driven by the loop of one thread: the one that made it, or
/// the last one that called `tow_endpoint_adopt`.
#[expect(non_camel_case_types, reason = "this is the name that C programs write")]
pub struct tow_endpoint {
    /// The name of its thread.
    pub(super) owner: AtomicUsize,
    pub(super) is_entered: Cell<bool>,
    pub(super) has_panicked: Cell<bool>,
    waker: Option<Waker>,
    pub(super) inner: UnsafeCell<Inner>,
}

/// It may change threads: `tow_endpoint_adopt`.
const fn may_change_threads<T: Send>() {}
const _: () = may_change_threads::<Inner>();

/// Makes an endpoint on the userspace NIC, with UDP sockets on the local address `ip`
/// ("127.0.0.1", "2001:db8::1"). `config` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_endpoint_new(
    ip: *const c_char,
    config: *const tow_config,
    out: *mut *mut tow_endpoint,
) -> tow_status {
    status(guard(|| {
        if out.is_null() {
            return Err(Fault::null("the place for the endpoint"));
        }
        // SAFETY: see the module.
        let ip = unsafe { text(ip, "the address") }?;
        let ip: IpAddr =
            resolve_ip(ip).map_err(|_| Fault::argument(format!("{ip} is no IP address")))?;
        // SAFETY: see the module.
        let endpoint = match unsafe { config.as_ref() } {
            Some(config) => config.endpoint(ip),
            None => tow_config::of(tow_profile::TOW_PROFILE_DEFAULT).endpoint(ip),
        }?;
        let made = Box::new(tow_endpoint {
            owner: AtomicUsize::new(this_thread()),
            is_entered: Cell::new(false),
            has_panicked: Cell::new(false),
            waker: endpoint.waker(),
            inner: UnsafeCell::new(Inner::new(endpoint)),
        });
        // SAFETY: see the module; not NULL.
        unsafe { write(out, Box::into_raw(made), "the place for the endpoint") }
    }))
}

/// Frees an endpoint and all that is named by it, on its thread; its links end at once, and their
/// peers notice. NULL is allowed. After an error nothing was freed.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_endpoint_free(endpoint: *mut tow_endpoint) -> tow_status {
    status(guard(|| {
        // SAFETY: see the module.
        let Some(found) = (unsafe { endpoint.as_ref() }) else { return Ok(()) };
        if found.owner.load(Ordering::Relaxed) != this_thread() {
            let text = "the endpoint belongs to another thread: see tow_endpoint_adopt";
            return Err(Fault::new(tow_status::TOW_E_THREAD, text));
        }
        if found.is_entered.get() {
            let text = "the endpoint is in a call: a callback must not free it";
            return Err(Fault::new(tow_status::TOW_E_BUSY, text));
        }
        // SAFETY: see the module: it was made by `tow_endpoint_new`, and no call is in it.
        drop(unsafe { Box::from_raw(endpoint) });
        Ok(())
    }))
}

/// Makes the calling thread the endpoint's own. The caller sees to it that the thread before is
/// in no call, and that what it did there is visible here: a lock, a join, a queue.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_endpoint_adopt(endpoint: *mut tow_endpoint) -> tow_status {
    status(guard(|| {
        // SAFETY: see the module.
        let found = unsafe { endpoint.as_ref() }.ok_or_else(|| Fault::null("the endpoint"))?;
        found.owner.store(this_thread(), Ordering::Relaxed);
        Ok(())
    }))
}

/// Ends a `tow_wait` of the endpoint's thread, or the next one, and makes its descriptor readable.
/// From any thread, as long as the endpoint is not freed.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_wake(endpoint: *const tow_endpoint) -> tow_status {
    status(guard(|| {
        // SAFETY: see the module. No other thread changes the waker.
        let waker = unsafe { endpoint.as_ref().map(|found| &found.waker) };
        let waker = waker.ok_or_else(|| Fault::null("the endpoint"))?;
        if let Some(waker) = waker {
            waker.wake_by_ref();
        }
        Ok(())
    }))
}

/// Takes in what has come: the beginning of a turn. Returns how much that was, zero if nothing.
/// Take all events then, act, and `tow_flush`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_poll(endpoint: *mut tow_endpoint) -> i32 {
    // SAFETY: see the module.
    count(unsafe {
        with(endpoint, |at| {
            let done = at.endpoint.poll();
            at.is_busy = done > 0;
            Ok(done)
        })
    })
}

/// The next event: 1 and `out` has it, 0 if there is none.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_next_event(endpoint: *mut tow_endpoint, out: *mut tow_event) -> i32 {
    // SAFETY: see the module.
    count(unsafe {
        with(endpoint, |at| {
            if out.is_null() {
                return Err(Fault::null("the place for the event"));
            }
            out.write(tow_event::default());
            match at.next_event(&mut *out) {
                Ok(is_told) => Ok(usize::from(is_told)),
                Err(fault) => {
                    super::library::note(&fault);
                    Ok(1)
                }
            }
        })
    })
}

/// Sends what is to be sent: the end of a turn.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_flush(endpoint: *mut tow_endpoint) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            at.endpoint.flush();
            Ok(())
        })
    })
}

/// Blocks until there is something to do, another thread calls `tow_wake`, or `timeout_ns` is over.
/// Returns at once if the last `tow_poll` did something. 1 if there is something, 0 if time is
/// over. Call it behind `tow_flush`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_wait(endpoint: *mut tow_endpoint, timeout_ns: u64) -> i32 {
    // SAFETY: see the module.
    count(unsafe {
        with(endpoint, |at| Ok(usize::from(at.is_busy || at.endpoint.wait(Nanos(timeout_ns)))))
    })
}

/// A descriptor that is readable when there is something to do, for `poll` and `epoll`
/// (level-triggered). The caller closes it. Before each wait call `tow_prepare_wait`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_poll_fd(endpoint: *mut tow_endpoint, out: *mut i32) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            if out.is_null() {
                return Err(Fault::null("the place for the descriptor"));
            }
            let file = at.endpoint.poll_fd()?;
            write(out, file.into_raw_fd(), "the place for the descriptor")
        })
    })
}

/// The caller is about to wait for the descriptor: `out_ns` is how long that may last, at most
/// `most_ns`; zero if there is something to do now. Begin a turn when the wait is over, also if
/// only time has passed. Call it behind `tow_flush`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_prepare_wait(
    endpoint: *mut tow_endpoint,
    most_ns: u64,
    out_ns: *mut u64,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            if out_ns.is_null() {
                return Err(Fault::null("the place for the time"));
            }
            let most = Duration::from_nanos(most_ns);
            let span = if at.is_busy { Duration::ZERO } else { at.endpoint.prepare_wait(most) };
            let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
            write(out_ns, span, "the place for the time")
        })
    })
}

/// How long from now on until `tow_poll` has something to do at the latest, if nothing comes
/// before; UINT64_MAX if nothing is due.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_next_timeout(
    endpoint: *mut tow_endpoint,
    out_ns: *mut u64,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let due = at.endpoint.next_timeout();
            let never = due == Time::NEVER;
            let span = if never { u64::MAX } else { due.since(at.endpoint.now()).0 };
            write(out_ns, span, "the place for the time")
        })
    })
}

/// The endpoint's clock, for deadlines, in nanoseconds.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_now_ns(endpoint: *mut tow_endpoint, out_ns: *mut u64) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| write(out_ns, at.endpoint.now().0, "the place for the time"))
    })
}
