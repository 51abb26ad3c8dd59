//! The end that others check theirs with: it answers short messages, takes long ones, and lets each
//! peer reach some memory.

use super::{ANSWER_BYTES_MAX, Opened, PROTOCOL, open_device};
use std::io::{self, Write};
use std::net::SocketAddr;
use towpath_status::say;
use towpath_transport::{
    DeviceChoice, Endpoint, EndpointConfig, Event, LinkId, Nanos, Rights, SendOptions, SharedMemory,
};

/// Links at a time: a check has one, and the one before may still be ending.
const LINKS_MAX: usize = 8;

/// What a peer may read and write, in bytes.
const MEMORY_BYTES: usize = 64 << 10;

/// Serves at this address until the process ends.
pub(super) fn serve(choice: &DeviceChoice, addr: SocketAddr) -> Result<(), String> {
    let config =
        EndpointConfig::new().app_protocol(PROTOCOL).links_max(LINKS_MAX).icrc(choice.icrc);
    let device = open_device(choice, addr.ip(), &config)?;
    let mut endpoint = Endpoint::new(device, config).map_err(|error| error.to_string())?;
    let addr = endpoint.listen(addr).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    let said = writeln!(out, "serving checks at {addr}").and_then(|()| out.flush());
    said.map_err(|error| format!("cannot write: {error}"))?;
    drop(out);
    let mut memories = Vec::new();
    loop {
        if !endpoint.turn(|endpoint, event| on_event(endpoint, event, &mut memories)) {
            endpoint.wait(Nanos::from_millis(100));
        }
    }
}

fn on_event(
    endpoint: &mut Endpoint<Opened>,
    event: Event,
    memories: &mut Vec<(LinkId, SharedMemory)>,
) {
    match event {
        Event::Accepted { link, peer } => {
            say(format_args!("{} checks", peer.device_addr));
            let granted = SharedMemory::new(MEMORY_BYTES).map_err(|error| error.to_string());
            let granted = granted.and_then(|memory| {
                let grant = endpoint.grant(link, &memory, memory.whole(), Rights::ALL);
                grant.map(|_| memory).map_err(|error| error.to_string())
            });
            match granted {
                Ok(memory) => memories.push((link, memory)),
                Err(error) => say(format_args!("no memory for it: {error}")),
            }
        }
        Event::Message(message) if message.len() <= ANSWER_BYTES_MAX => {
            let (link, channel) = (message.link(), message.channel());
            match message.into_payload() {
                // A link that is full, or gone, is the peer's to notice.
                Ok(answer) => drop(endpoint.send(link, channel, answer, SendOptions::new())),
                Err(message) => endpoint.release(message),
            }
        }
        Event::Message(message) => endpoint.release(message),
        Event::AcceptFailed { from, error } => {
            say(format_args!("{from} was turned away: {error}"));
        }
        Event::LinkDown { link, .. } => memories.retain(|&(of, _)| of != link),
        _ => {}
    }
}
