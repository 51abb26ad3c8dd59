//! How the endpoints of both sides are set up: names, the longest message, buffers.

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::wire::REQUEST_HEADER_BYTES;
use towpath_base::Nanos;
use towpath_transport::{AppProtocol, EndpointConfig};

/// The name by which both sides know that they mean the same.
const PROTOCOL: &str = "towpath-kv/1";

/// The longest message: a request with the longest key and value, in whole pages.
const MESSAGE_BYTES_MAX: usize =
    (REQUEST_HEADER_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX).next_multiple_of(4096);

/// Pieces under way on a channel: twice as many as the longest message may come in, of 16 KiB each.
const QUOTA_CHUNKS: u32 = 2 * (MESSAGE_BYTES_MAX as u32).div_ceil(16 << 10);

/// How long a message may take to be delivered: far above what a network's losses cost; a peer that
/// takes nothing for so long holds buffers no longer.
pub(crate) const SEND_TIMEOUT: Nanos = Nanos::from_secs(10);

/// An endpoint of a client, which has a few messages under way.
#[must_use]
pub fn client_config() -> EndpointConfig {
    config().send_pools(&[(256, 64), (4 << 10, 16), (64 << 10, 4), (MESSAGE_BYTES_MAX, 2)])
}

/// Receives that a server posts for each link: requests are short, and where the engine of a device
/// has a thread of its own it takes memory for all of them, which else is enough for 62 links.
const RECEIVES_READY: u32 = 64;

/// An endpoint of a server, for at most so many clients.
#[must_use]
pub fn server_config(links_max: usize) -> EndpointConfig {
    let pools = [(256, 4096), (4 << 10, 1024), (64 << 10, 128), (MESSAGE_BYTES_MAX, 16)];
    config().send_pools(&pools).links_max(links_max).receives_ready(RECEIVES_READY)
}

/// Pieces under way on a channel of a link that many clients share: as few as there may be.
const SHARED_QUOTA_CHUNKS: u32 = 8;

/// The longest message of such a channel.
const SHARED_MESSAGE_BYTES_MAX: u32 = SHARED_QUOTA_CHUNKS / 2 * (16 << 10);

/// The longest value over a link that many clients share.
pub const SHARED_VALUE_BYTES_MAX: usize =
    SHARED_MESSAGE_BYTES_MAX as usize - REQUEST_HEADER_BYTES - KEY_BYTES_MAX;

/// The endpoint of a client or a server, for links that so many clients share, each with a channel:
/// these have less under way, and values of at most [`SHARED_VALUE_BYTES_MAX`] bytes. Its buffers
/// are enough for the clients of one link; [`shared_pools`] are for those of several.
#[must_use]
pub fn shared_config(config: EndpointConfig, clients: u16) -> EndpointConfig {
    let clients = clients.max(1);
    config
        .quota_chunks(SHARED_QUOTA_CHUNKS)
        .whole_bytes_max(SHARED_MESSAGE_BYTES_MAX)
        .tune_links(move |link| link.channels_max(u32::from(clients)))
        .credit_total(SHARED_QUOTA_CHUNKS * u32::from(clients))
        .send_pools(&shared_pools(clients.into()))
}

/// Buffers to send from, of an endpoint with so many clients on one shared link or on several: for
/// the request of each, and those before it whose delivery is not known yet. With fewer, clients
/// wait for each other's, in the call that sends, for up to 10 s: so they do for buffers of more
/// than 4 KiB, of which there are 64 for all.
#[must_use]
pub fn shared_pools(clients: usize) -> [(usize, usize); 3] {
    let messages = clients.max(64).saturating_mul(4);
    [(256, messages), (4 << 10, messages), (64 << 10, 64)]
}

fn config() -> EndpointConfig {
    EndpointConfig::new()
        .app_protocol(AppProtocol::named(PROTOCOL))
        .quota_chunks(QUOTA_CHUNKS)
        .whole_bytes_max(MESSAGE_BYTES_MAX as u32)
        .streams(false)
}
