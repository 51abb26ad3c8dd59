//! Sending the chunks that one link wants sent.

use super::Tx;
use super::body::{Body, byte_len, lone_payload, part_of, whole_len};
use super::filler::Filler;
use crate::conn::{Batch, Conn, Path, TxQueue, TxSlots};
use crate::limits::RC_WINDOW_BYTES;
use crate::secure::LinkSeal;
use crate::sends::Sends;
use crate::tcp::Tcp;
use std::hint::cold_path;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::limits::{FRAMES_FULL, HEADER_BYTES};
use towpath_proto::{Carrier, DownReason, Link, PathId, Transmit};
use towpath_secure::SealError;
use towpath_secure::limits::TAG_BYTES;
use towpath_verbs::{Device, QpNum, QpState, SEND_SGE_MAX, Sge};

/// How much a link may hand to the device.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// What the device may have of it at a time, and one chunk however long.
    pub(crate) ahead_bytes: u64,
    /// What it may hand over now, likewise.
    pub(crate) turn_bytes: u64,
}

/// The seal of a link, and when it is now.
type Sealing<'a> = (&'a mut LinkSeal, Time);

/// What is to be done behind a chunk, before another may follow.
enum After {
    Nothing,
    /// Its number comes back at once: it is with the stream, or will not be posted and counts as so
    /// many refused.
    Returned(PathId, u64, u64),
    /// The batch of a path goes to the device, and on to the wire if its last chunk is full.
    Post(PathId, bool),
}

/// What a link handed to the device.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) bytes: u64,
    /// The turn was over before all was sent.
    pub(crate) has_more: bool,
    /// Work requests that the device refused.
    pub(crate) refused: u64,
}

impl Tx {
    /// Sends the chunks that one link wants sent.
    pub(crate) fn send<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        conn: &mut Conn,
        room: Room,
        now: Time,
    ) -> Sent {
        let Self { batches, filler, .. } = self;
        send_chunks((device, batches, filler), conn, room, now)
    }
}

fn send_chunks<D: Device<Memory = Region>>(
    (device, batches, filler): (&mut D, &mut Vec<Batch>, &Filler),
    conn: &mut Conn,
    room: Room,
    now: Time,
) -> Sent {
    let Conn { id, link: Some(link), paths, tx_slots, tcp, sends, control, seal, .. } = conn else {
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
                let seal = seal.as_deref_mut().map(|seal| (seal, now));
                if has_place {
                    put(at, (sends, filler, seal), index, transmit)
                } else {
                    refuse(transmit)
                }
            } else {
                // The path behind those of queue pairs is the stream.
                cold_path();
                if let Some(tcp) = tcp {
                    push_frame(tcp, (sends, seal.as_deref_mut(), now), transmit);
                }
                After::Returned(transmit.path, transmit.header.number, 0)
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
    if let Some(error) = seal.as_ref().and_then(|seal| seal.failed()) {
        end_unsealed(link, error);
    }
    let posted_bytes = tx_slots.posted_bytes();
    let has_more = !tx_slots.any_full() && (limit_bytes..ahead_bytes).contains(&posted_bytes);
    Sent { bytes: posted_bytes.saturating_sub(bytes_at_first), has_more, refused }
}

/// A chunk, or an ack, could not be sealed: nothing more can leave.
#[cold]
pub(super) fn end_unsealed(link: &mut Link, error: SealError) {
    tracing::warn!(%error, "a sealed link ends");
    link.give_up(DownReason::KeysUsedUp);
}

/// Does what is to be done behind a run; returns how many work requests were refused.
#[inline]
fn follow_up<D: Device<Memory = Region>>(
    (device, batches): (&mut D, &mut Vec<Batch>),
    (paths, tx_slots): (&mut [Path], &mut TxSlots),
    link: &mut Link,
    after: After,
) -> u64 {
    match after {
        After::Nothing => 0,
        After::Returned(path, number, refused) => {
            link.handle_sent(path, number, None);
            refused
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
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Vec<Batch>),
    (sends, filler, seal): (&Sends, &Filler, Option<Sealing<'_>>),
    index: u16,
    transmit: &mut Transmit,
) -> After {
    let at = (&mut *path, tx_slots, batches);
    let (is_made, filler) = match seal {
        None => (push(at, sends, index, transmit), Some(filler)),
        // Its filler is sealed with it.
        Some(seal) => (push_sealed(at, (sends, seal), index, transmit), None),
    };
    if !is_made {
        return refuse(transmit);
    }
    fill_probe(path, filler, transmit.filler_bytes);
    let is_full = transmit.frames.len() >= FRAMES_FULL;
    if is_full || path.tx.is_full() || path.batch.as_ref().is_some_and(Batch::is_full) {
        return After::Post(transmit.path, is_full);
    }
    After::Nothing
}

/// Copies a chunk to the stream of its link. One for which there is no room is lost, as on UC.
#[inline(never)]
fn push_frame(
    tcp: &mut Tcp,
    (sends, seal, now): (&Sends, Option<&mut LinkSeal>, Time),
    transmit: &mut Transmit,
) {
    tcp.frames.push_chunk(|out| {
        let from = out.len();
        if let Some(seal) = seal {
            out.resize(from + whole_len(transmit) + TAG_BYTES, 0);
            return seal.write_chunk(now, &mut out[from..], sends, transmit).map(|made| made.0);
        }
        out.resize(from + byte_len(transmit), 0);
        let body = Body::write(&mut out[from..], None, sends, transmit)?;
        transmit.header.body_crc = body.crc;
        let mut header = [0; HEADER_BYTES];
        transmit.header.emit(&mut header);
        Some(header)
    });
}

/// Makes the work request of a chunk of a sealed link: its body is copied to a buffer of the link,
/// because it is sealed in place. False when its bytes are not there, or it cannot be sealed.
#[inline(never)]
fn push_sealed(
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Vec<Batch>),
    (sends, (seal, now)): (&Sends, Sealing<'_>),
    index: u16,
    transmit: &Transmit,
) -> bool {
    let Some(company) = tx_slots.company.take() else { return false };
    let (to, whole) = tx_slots.company.bytes_mut(company);
    let Some((header, length)) = seal.write_chunk(now, to, sends, transmit) else {
        cold_path();
        tx_slots.company.take_home(company);
        return false;
    };
    tx_slots.company.lend(company);
    let what = (transmit.header.number, length as u32, Some(company));
    let emit = |bytes: &mut [u8; HEADER_BYTES]| *bytes = header;
    let entries = [part_of(whole, 0, length)];
    push_entries((path, tx_slots, batches), (index, transmit), (what, emit), &entries);
    true
}

/// Makes the work request of a chunk. False when its bytes are not there.
#[inline]
fn push(
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Vec<Batch>),
    sends: &Sends,
    index: u16,
    transmit: &mut Transmit,
) -> bool {
    if transmit.header.flags.units() > 0 {
        return push_company((path, tx_slots, batches), sends, index, transmit);
    }
    let (mut length, mut payload) = (0, None);
    if let [frame] = &transmit.frames[..] {
        let found = lone_payload(sends, &frame.source, transmit.header.flags);
        let Some((entry, crc)) = found else { return false };
        transmit.header.body_crc = crc;
        (length, payload) = (entry.length, Some(entry));
    }
    let what = (transmit.header.number, length, None);
    let emit = |bytes: &mut _| transmit.header.emit(bytes);
    push_entries((path, tx_slots, batches), (index, transmit), (what, emit), payload.as_slice());
    true
}

/// Makes the work request of a chunk that has a table of frames.
#[inline(never)]
fn push_company(
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Vec<Batch>),
    sends: &Sends,
    index: u16,
    transmit: &mut Transmit,
) -> bool {
    let Some(company) = tx_slots.company.take() else { return false };
    let (to, whole) = tx_slots.company.bytes_mut(company);
    let body = Body::write(to, Some(whole), sends, transmit);
    // The link keeps to what the device gathers. A chunk that is cut short must not leave.
    let Some(body) = body.filter(|body| body.entries.len() < SEND_SGE_MAX) else {
        cold_path();
        tx_slots.company.take_home(company);
        return false;
    };
    tx_slots.company.lend(company);
    transmit.header.body_crc = body.crc;
    let what = (transmit.header.number, body.length, Some(company));
    let emit = |bytes: &mut _| transmit.header.emit(bytes);
    push_entries((path, tx_slots, batches), (index, transmit), (what, emit), &body.entries);
    true
}

/// Puts a work request behind what waits on a path: the header, and the entries of the body.
#[inline(always)]
fn push_entries(
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Vec<Batch>),
    (index, transmit): (u16, &Transmit),
    (what, emit): ((u64, u32, Option<u16>), impl FnOnce(&mut [u8; HEADER_BYTES])),
    entries: &[Sge],
) {
    let (position, sge) = path.tx.push(tx_slots, what, emit);
    let wr_id = TxQueue::wr_id(index, transmit.path.0, position);
    let batch = path.batch.get_or_insert_with(|| batches.pop().unwrap_or_else(Batch::new));
    let sg_list = batch.push(wr_id, sge, transmit.cut_at);
    for entry in entries {
        let has_room = sg_list.push(*entry);
        debug_assert!(has_room, "there is the header, and the body was counted");
    }
}

/// Makes a probe as long as it is to be.
#[inline]
fn fill_probe(path: &mut Path, filler: Option<&Filler>, bytes: u32) {
    if bytes > 0
        && let Some(batch) = path.batch.as_mut()
    {
        cold_path();
        if let Some(filler) = filler {
            batch.lengthen(filler.zeroes(bytes));
        }
        batch.set_alone();
    }
}

#[cold]
fn refuse(transmit: &Transmit) -> After {
    After::Returned(transmit.path, transmit.header.number, 1)
}

/// Lets the paths that a link wants moved go on from other source ports. A device that refuses is
/// not asked again: the link gets along with the ports that it has.
#[cold]
fn move_paths<D: Device<Memory = Region>>(
    device: &mut D,
    paths: &mut [Path],
    control: QpNum,
    link: &mut Link,
) {
    while let Some(reroute) = link.poll_reroute() {
        let Some(path) = paths.get_mut(usize::from(reroute.path.0)) else { continue };
        let mut moved = device.set_source_port(path.qp_num, reroute.source_port);
        if reroute.moves_control {
            moved = moved.and(device.set_source_port(control, reroute.source_port));
        }
        match moved {
            Ok(()) => path.source_port = reroute.source_port,
            Err(_) => link.pin_ports(),
        }
    }
}

/// Posts the batch of a path. What the device refuses counts as sent and lost, as UC would.
fn post<D: Device<Memory = Region>>(
    (device, batches): (&mut D, &mut Vec<Batch>),
    (path, tx_slots): (&mut Path, &mut TxSlots),
    link: &mut Link,
    id: PathId,
) -> u64 {
    let Some(mut batch) = path.batch.take() else { return 0 };
    let wrs = batch.sealed();
    let mut refused = 0;
    if let Err(bad) = device.post_send(path.qp_num, wrs) {
        cold_path();
        for _ in bad.index..wrs.len() {
            if let Some(number) = path.tx.unpush(tx_slots) {
                link.handle_sent(id, number, None);
            }
            refused += 1;
        }
        // What was taken before them completes with the next signaled one. A queue pair that is
        // out of order ends its path.
        if device.qp_state(path.qp_num) != Ok(QpState::Rts) {
            path.has_failed = true;
            link.path_failed(device.now(), id);
        }
    }
    batch.clear();
    batches.push(batch);
    refused
}
