//! Links and channels: made, closed, looked at.

use super::endpoint::tow_endpoint;
use super::guard::{slice_mut, status, text, with, write, write_if_wanted, write_prefix};
use super::types::{tow_channel, tow_counters, tow_link, tow_status, tow_usage};
use crate::fault::Fault;
use crate::names::carrier_code;
use std::ffi::c_char;
use std::net::SocketAddr;
use towpath_transport::{ChannelId, LinkStats, resolve};

fn address(text: &str) -> Result<SocketAddr, Fault> {
    let found = resolve(text, None).ok().and_then(|found| found.first().copied());
    found.ok_or_else(|| {
        Fault::argument(format!("{text} is no address with a port (127.0.0.1:7471)"))
    })
}

/// Takes links of peers that connect to a TCP address, as "127.0.0.1:7471"; port 0 is any free one.
/// `out_port`, which may be NULL, gets the port.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_listen(
    endpoint: *mut tow_endpoint,
    addr: *const c_char,
    out_port: *mut u16,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let local = at.endpoint.listen(address(text(addr, "the address")?)?)?;
            write_if_wanted(out_port, local.port());
            Ok(())
        })
    })
}

/// Takes no more links. Those that are up go on.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_stop_listening(endpoint: *mut tow_endpoint) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            at.endpoint.stop_listening();
            Ok(())
        })
    })
}

/// Begins to connect to a peer that listens at a TCP address. TOW_EVENT_CONNECTED or
/// TOW_EVENT_CONNECT_FAILED follows, with `token`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_connect(
    endpoint: *mut tow_endpoint,
    addr: *const c_char,
    token: u64,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let addr = address(text(addr, "the address")?)?;
            at.connect(addr, token)
        })
    })
}

/// Leaves a link in order: what is under way is still sent. TOW_EVENT_LINK_DOWN follows.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_link_close(endpoint: *mut tow_endpoint, link: tow_link) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let link = at.link(link)?;
            at.endpoint.close(link);
            Ok(())
        })
    })
}

/// Where the peer's end of the set-up connection is, or its device where there was none, as text
/// with a zero behind it; TOW_E_TOO_LONG unless that fits `room` bytes (64 are enough).
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_link_peer(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    out: *mut c_char,
    room: usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            if out.is_null() {
                return Err(Fault::null("the place for the address"));
            }
            let peer = at.peer(link)?;
            let text = peer.setup_addr.unwrap_or(peer.device_addr).to_string();
            if text.len() >= room {
                let wanted = text.len() + 1;
                let text = format!("the address takes {wanted} bytes, and there are {room}");
                return Err(Fault::new(tow_status::TOW_E_TOO_LONG, text));
            }
            let place = slice_mut(out.cast::<u8>(), text.len() + 1, "the place for the address")?;
            let (end, bytes) = place.split_last_mut().ok_or_else(|| Fault::argument("no room"))?;
            bytes.copy_from_slice(text.as_bytes());
            *end = 0;
            Ok(())
        })
    })
}

/// The longest message that this end takes on a link, in bytes. What the peer takes, a send that
/// is refused with TOW_E_TOO_LONG tells.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_link_message_max(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    out: *mut u32,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let link = at.link(link)?;
            let most = at.endpoint.whole_bytes_max(link).ok_or_else(|| Fault::stale("link"))?;
            write(out, most, "the place for the result")
        })
    })
}

/// The smoothed round-trip time of a link in nanoseconds; 0 as long as none was measured.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_link_rtt_ns(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    out_ns: *mut u64,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let link = at.link(link)?;
            let rtt = at.endpoint.rtt(link).map_or(0, |rtt| rtt.0);
            write(out_ns, rtt, "the place for the time")
        })
    })
}

/// What a link rides on now: a tow_carrier. TOW_EVENT_CARRIER tells of each change.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_link_carrier(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    out: *mut u32,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let link = at.link(link)?;
            let carrier = at.endpoint.carrier_of(link).ok_or_else(|| Fault::stale("link"))?;
            write(out, carrier_code(carrier), "the place for the carrier")
        })
    })
}

/// The counters of a link. `bytes` is `sizeof(tow_counters)`: no more than that is written.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_link_counters(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    out: *mut tow_counters,
    bytes: usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let link = at.link(link)?;
            let stats = at.endpoint.stats(link).ok_or_else(|| Fault::stale("link"))?;
            write_prefix(out, bytes, &counters(&stats))
        })
    })
}

/// The same for all links together, those that are down included.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_counters_of_all(
    endpoint: *mut tow_endpoint,
    out: *mut tow_counters,
    bytes: usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| write_prefix(out, bytes, &counters(&at.endpoint.stats_of_all_links())))
    })
}

/// What of its limits the endpoint uses now. `bytes` is `sizeof(tow_usage)`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_endpoint_usage(
    endpoint: *mut tow_endpoint,
    out: *mut tow_usage,
    bytes: usize,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let usage = at.endpoint.usage();
            let told = tow_usage {
                links: usage.links as u64,
                links_max: usage.links_max as u64,
                receive_buffers: usage.receive_buffers as u64,
                receive_buffers_max: usage.receive_buffers_max as u64,
                send_buffers_out: usage.send_buffers_out as u64,
                send_buffers_max: usage.send_buffers_max as u64,
                messages_held: at.names.messages.len() as u64,
                bufs_held: at.names.bufs.len() as u64,
                sends: at.names.sends.len() as u64,
            };
            write_prefix(out, bytes, &told)
        })
    })
}

fn counters(stats: &LinkStats) -> tow_counters {
    tow_counters {
        messages_delivered: stats.messages_delivered,
        messages_abandoned: stats.messages_abandoned,
        messages_received: stats.messages_received,
        bytes_sent: stats.bytes_sent,
        bytes_retransmitted: stats.bytes_retransmitted,
        bytes_received: stats.bytes_received,
        chunks_sent: stats.chunks_sent,
        chunks_retransmitted: stats.chunks_retransmitted,
        chunks_received: stats.chunks_received,
        chunks_duplicate: stats.chunks_duplicate,
        headers_bad: stats.headers_bad,
        payloads_bad: stats.payloads_bad,
        violations: stats.violations,
        acks_sent: stats.acks_sent,
        acks_received: stats.acks_received,
        losses_by_gap: stats.losses_by_gap,
        losses_by_timeout: stats.losses_by_timeout,
        losses_spurious: stats.losses_spurious,
        rtos: stats.rtos,
        path_doubts: stats.path_doubts,
        paths_failed: stats.paths_failed,
    }
}

/// Opens a channel; TOW_EVENT_CHANNEL_OPENED or TOW_EVENT_CHANNEL_CLOSED (refused) follows. If
/// `ordered` is not 0, its messages arrive in the order in which they were sent. `out` may be NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_channel_open(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    ordered: u32,
    out: *mut tow_channel,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let link = at.link(link)?;
            let channel = at.endpoint.open_channel(link, ordered != 0)?;
            write_if_wanted(out, tow_channel { id: channel.0 });
            Ok(())
        })
    })
}

/// Closes a channel when all that was sent on it has had its outcome.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_channel_close(
    endpoint: *mut tow_endpoint,
    link: tow_link,
    channel: tow_channel,
) -> tow_status {
    // SAFETY: see the module.
    status(unsafe {
        with(endpoint, |at| {
            let link = at.link(link)?;
            Ok(at.endpoint.close_channel(link, ChannelId(channel.id))?)
        })
    })
}
