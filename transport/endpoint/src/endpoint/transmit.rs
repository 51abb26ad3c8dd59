//! Sending the chunks that one link wants sent.

use super::posting::{post, push, push_frame};
use crate::batch::{Batch, Batches};
use crate::filler::Filler;
use crate::limits::RC_WINDOW_BYTES;
use crate::links::{Conn, Path};
use crate::sends::Sends;
use crate::tx::TxSlots;
use std::hint::cold_path;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::limits::FRAMES_FULL;
use towpath_proto::{Carrier, Link, PathId, Reroute, Transmit};
use towpath_verbs::{Device, QpNum};

/// How much a link may hand to the device.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// What the device may have of it at a time, and one chunk however long.
    pub(super) ahead_bytes: u64,
    /// What it may hand over now, likewise.
    pub(super) turn_bytes: u64,
}

/// What is to be done behind a chunk, before another may follow.
enum After {
    Nothing,
    /// It is with the stream: its number comes back at once.
    Returned(PathId, u64),
    /// It will not be posted.
    Refused(PathId, u64),
    /// The batch of a path goes to the device, and on to the wire if its last chunk is full.
    Post(PathId, bool),
}

/// What a link handed to the device.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    pub(super) bytes: u64,
    /// The turn was over before all was sent.
    pub(super) has_more: bool,
    /// Work requests that the device refused.
    pub(super) refused: u64,
}

/// Sends the chunks that one link wants sent.
pub(super) fn send_chunks<D: Device<Memory = Region>>(
    (device, batches, filler): (&mut D, &mut Batches, &Filler),
    conn: &mut Conn,
    room: Room,
    now: Time,
) -> Sent {
    let Conn { id, link: Some(link), paths, tx_slots, tcp, sends, control, .. } = conn else {
        return Sent::default();
    };
    let index = id.index;
    let mut refused = 0;
    if link.has_reroutes() {
        move_paths(device, paths, control.qp_num, link);
    }
    // A stream that stands still holds a link back while that rides on it, and so do queue pairs.
    let rides_on_tcp = link.carrier() == Carrier::Tcp;
    // What the device has cannot be overtaken, so no more than `ahead_bytes` are there at a time.
    // Sends of RC are there until the peer has them: that is a window, and wants to be wide.
    let ahead_bytes = match link.carrier() {
        Carrier::Rc => room.ahead_bytes.max(RC_WINDOW_BYTES),
        _ => room.ahead_bytes,
    };
    let bytes_at_first = tx_slots.posted_bytes();
    let limit_bytes = ahead_bytes.min(bytes_at_first.saturating_add(room.turn_bytes));
    // Paths with a batch that waits: the others are not looked at.
    let mut waiting = 0u32;
    loop {
        let has_room = match tcp.as_ref().filter(|_| rides_on_tcp) {
            Some(tcp) => tcp.frames.has_room(),
            None => !tx_slots.any_full() && tx_slots.posted_bytes() < limit_bytes,
        };
        if !has_room {
            break;
        }
        let mut after = After::Nothing;
        let may_be_more = link.poll_transmits(now, |transmit| {
            let PathId(id) = transmit.path;
            after = if let Some(path) = paths.get_mut(usize::from(id)) {
                waiting |= 1 << id;
                let has_place = !rides_on_tcp || !path.tx.is_full();
                let at = (path, &mut *tx_slots, &mut *batches);
                if has_place { put(at, (sends, filler), index, transmit) } else { refuse(transmit) }
            } else {
                // The path behind those of queue pairs is the stream.
                cold_path();
                if let Some(tcp) = tcp {
                    push_frame(tcp, sends, transmit);
                }
                After::Returned(transmit.path, transmit.header.number)
            };
            matches!(after, After::Nothing)
                && !rides_on_tcp
                && !tx_slots.any_full()
                && tx_slots.posted_bytes() < limit_bytes
        });
        refused += follow_up((device, batches), (paths, tx_slots), link, after);
        if !may_be_more {
            break;
        }
    }
    while waiting != 0 {
        let id = waiting.trailing_zeros() as u8;
        waiting &= waiting - 1;
        refused +=
            post((device, batches), (&mut paths[usize::from(id)], tx_slots), link, PathId(id));
    }
    let posted_bytes = tx_slots.posted_bytes();
    let has_more = !tx_slots.any_full() && (limit_bytes..ahead_bytes).contains(&posted_bytes);
    Sent { bytes: posted_bytes.saturating_sub(bytes_at_first), has_more, refused }
}

/// Does what is to be done behind a run; returns how many work requests were refused.
#[inline]
fn follow_up<D: Device<Memory = Region>>(
    (device, batches): (&mut D, &mut Batches),
    (paths, tx_slots): (&mut [Path], &mut TxSlots),
    link: &mut Link,
    after: After,
) -> u64 {
    match after {
        After::Nothing => 0,
        After::Returned(path, number) => {
            link.handle_sent(path, number, None);
            0
        }
        After::Refused(path, number) => {
            link.handle_sent(path, number, None);
            1
        }
        After::Post(id, is_full) => {
            let path = &mut paths[usize::from(id.0)];
            let refused = post((device, batches), (path, tx_slots), link, id);
            // Where posting is not sending the device would keep it for the end of the turn.
            if is_full {
                device.progress(0);
            }
            refused
        }
    }
}

/// Puts a chunk behind what waits to be posted on its path.
#[inline(always)]
fn put(
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Batches),
    (sends, filler): (&Sends, &Filler),
    index: u16,
    transmit: &mut Transmit,
) -> After {
    if !push((path, tx_slots, batches), sends, index, transmit) {
        return refuse(transmit);
    }
    fill_probe(path, filler, transmit.filler_bytes);
    let is_full = transmit.frames.len() >= FRAMES_FULL;
    if is_full || path.tx.is_full() || path.batch.as_ref().is_some_and(Batch::is_full) {
        return After::Post(transmit.path, is_full);
    }
    After::Nothing
}

/// Makes a probe as long as it is to be.
#[inline]
fn fill_probe(path: &mut Path, filler: &Filler, bytes: u32) {
    if bytes > 0
        && let Some(batch) = path.batch.as_mut()
    {
        cold_path();
        batch.lengthen(filler.zeroes(bytes));
    }
}

#[cold]
fn refuse(transmit: &Transmit) -> After {
    After::Refused(transmit.path, transmit.header.number)
}

/// Lets the paths that a link wants moved go on from other source ports.
#[cold]
fn move_paths<D: Device<Memory = Region>>(
    device: &mut D,
    paths: &mut [Path],
    control: QpNum,
    link: &mut Link,
) {
    while let Some(reroute) = link.poll_reroute() {
        move_path(device, paths, control, link, reroute);
    }
}

/// Lets a path go on from another source port. A device that refuses is not asked again: the link
/// gets along with the ports that it has.
fn move_path<D: Device<Memory = Region>>(
    device: &mut D,
    paths: &mut [Path],
    control: QpNum,
    link: &mut Link,
    reroute: Reroute,
) {
    let Some(path) = paths.get_mut(usize::from(reroute.path.0)) else { return };
    let mut moved = device.set_source_port(path.qp_num, reroute.source_port);
    if reroute.moves_control {
        moved = moved.and(device.set_source_port(control, reroute.source_port));
    }
    match moved {
        Ok(()) => path.source_port = reroute.source_port,
        Err(_) => link.pin_ports(),
    }
}
