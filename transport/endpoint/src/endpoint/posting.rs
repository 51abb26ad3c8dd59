//! Making work requests of chunks, and posting them.

use crate::batch::Batches;
use crate::links::Path;
use crate::sends::Sends;
use crate::tcp::Tcp;
use crate::tx::{TxQueue, TxSlots};
use smallvec::SmallVec;
use std::hint::cold_path;
use towpath_base::crc::{Crc32c, crc32c};
use towpath_base::passes::{Pass, note};
use towpath_memory::Region;
use towpath_proto::limits::{COPIED_PAYLOAD_MAX, FRAME_ALIGN_BYTES, FRAME_UNIT_BYTES};
use towpath_proto::wire::{ChunkFlags, emit_table};
use towpath_proto::{Link, PathId, PayloadRef, Transmit};
use towpath_verbs::{Device, QpState, SEND_SGE_MAX, Sge};

/// The gather entries of a body.
type Entries = SmallVec<[Sge; SEND_SGE_MAX]>;

/// The bytes that a frame names and their gather entry. `None` when they are not there, which would
/// be a mistake in the link: then the chunk counts as sent and lost.
#[inline]
fn payload_of<'a>(sends: &'a Sends, piece: &PayloadRef) -> Option<(&'a [u8], Sge)> {
    let found = sends.piece(piece.send, piece.segment, piece.offset, piece.length);
    debug_assert!(found.is_some(), "the link asks for bytes that no segment has");
    found
}

/// Copies a chunk to the stream of its link. One for which there is no room is lost, as on UC.
#[inline(never)]
pub(super) fn push_frame(tcp: &mut Tcp, sends: &Sends, transmit: &mut Transmit) {
    tcp.frames.push_chunk(|body| {
        let mut crc = transmit.header.flags.has(ChunkFlags::BODY_CRC).then(Crc32c::new);
        // Up to where the checksum has got.
        let (mut summed, mut is_whole) = (body.len(), true);
        transmit.emit_body(body, |piece, body| {
            let Some((bytes, _)) = payload_of(sends, piece) else { return is_whole = false };
            add_crc(&mut crc, &body[summed..]);
            add_piece(&mut crc, sends, piece, bytes);
            body.extend_from_slice(bytes);
            note(Pass::Copy, bytes.len());
            summed = body.len();
        });
        add_crc(&mut crc, &body[summed..]);
        transmit.header.body_crc = crc.map_or(0, |crc| crc.value());
        is_whole.then_some(&transmit.header)
    });
}

/// Makes the work request of a chunk. False when its bytes are not there.
#[inline]
pub(super) fn push(
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Batches),
    sends: &Sends,
    index: u16,
    transmit: &mut Transmit,
) -> bool {
    if transmit.header.flags.units() > 0 {
        return push_company((path, tx_slots, batches), sends, index, transmit);
    }
    let (mut length, mut payload) = (0, None);
    if let [frame] = &transmit.frames[..] {
        let Some((bytes, entry)) = payload_of(sends, &frame.source) else { return false };
        if transmit.header.flags.has(ChunkFlags::BODY_CRC) {
            let known = sends.known_crc(0, &frame.source, bytes);
            transmit.header.body_crc = known.unwrap_or_else(|| crc32c(bytes));
        }
        (length, payload) = (entry.length, Some(entry));
    }
    let header = &transmit.header;
    let what = (header.number, length, None);
    let (position, sge) = path.tx.push(tx_slots, what, |bytes| header.emit(bytes));
    let wr_id = TxQueue::wr_id(index, transmit.path.0, position);
    let batch = path.batch.get_or_insert_with(|| batches.take());
    let sg_list = batch.push(wr_id, sge, transmit.cut_at);
    if let Some(entry) = payload {
        let has_room = sg_list.push(entry);
        debug_assert!(has_room, "there is only the header so far");
    }
    true
}

/// Makes the work request of a chunk that has a table of frames.
#[inline(never)]
fn push_company(
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Batches),
    sends: &Sends,
    index: u16,
    transmit: &mut Transmit,
) -> bool {
    let Some(company) = tx_slots.company.take() else { return false };
    let body = Body::of(tx_slots, company, sends, transmit);
    // The link keeps to what the device gathers. A chunk that is cut short must not leave.
    let Some(body) = body.filter(|body| body.entries.len() < SEND_SGE_MAX) else {
        cold_path();
        tx_slots.company.take_home(company);
        return false;
    };
    tx_slots.company.lend(company);
    transmit.header.body_crc = body.crc.unwrap_or(0);
    let header = &transmit.header;
    let what = (header.number, body.length, Some(company));
    let (position, sge) = path.tx.push(tx_slots, what, |bytes| header.emit(bytes));
    let wr_id = TxQueue::wr_id(index, transmit.path.0, position);
    let batch = path.batch.get_or_insert_with(|| batches.take());
    let sg_list = batch.push(wr_id, sge, transmit.cut_at);
    for entry in &body.entries {
        let has_room = sg_list.push(*entry);
        debug_assert!(has_room, "there is the header, and the body was counted");
    }
    true
}

/// The body of a chunk of several frames.
struct Body {
    entries: Entries,
    length: u32,
    crc: Option<u32>,
}

impl Body {
    /// Puts it together: long payloads where they are, all else in a buffer of the company.
    fn of(
        tx_slots: &mut TxSlots,
        company: u16,
        sends: &Sends,
        transmit: &Transmit,
    ) -> Option<Self> {
        let mut crc = transmit.header.flags.has(ChunkFlags::BODY_CRC).then(Crc32c::new);
        let mut entries = Entries::new();
        // What was copied, of that what is in no entry yet, and the end of the body.
        let (mut copied, mut begun, mut end) = (0, 0, 0);
        for (frame, start) in transmit.places() {
            let (bytes, entry) = payload_of(sends, &frame.source)?;
            let to = tx_slots.company.bytes_mut(company);
            let padding = start - end;
            to.get_mut(copied..copied + padding)?.fill(0);
            copied += padding;
            if bytes.len() <= COPIED_PAYLOAD_MAX {
                to.get_mut(copied..copied + bytes.len())?.copy_from_slice(bytes);
                note(Pass::Copy, bytes.len());
                copied += bytes.len();
            } else {
                if copied > begun {
                    add_crc(&mut crc, &to[begun..copied]);
                    entries.push(tx_slots.company.entry(company, begun, copied));
                    begun = copied;
                }
                add_piece(&mut crc, sends, &frame.source, bytes);
                entries.push(entry);
            }
            end = start + bytes.len();
        }
        let padding = end.next_multiple_of(FRAME_ALIGN_BYTES) - end;
        let table = transmit.header.flags.units() * FRAME_UNIT_BYTES;
        let to = tx_slots.company.bytes_mut(company);
        to.get_mut(copied..copied + padding)?.fill(0);
        copied += padding;
        let frames = transmit.frames.iter().map(|frame| &frame.frame);
        emit_table(frames, to.get_mut(copied..copied + table)?);
        copied += table;
        add_crc(&mut crc, &to[begun..copied]);
        entries.push(tx_slots.company.entry(company, begun, copied));
        let length = (end + padding + table) as u32;
        Some(Self { entries, length, crc: crc.map(|crc| crc.value()) })
    }
}

/// Takes a piece in, whose bytes these are: without a pass over them where their CRCs are known.
fn add_piece(crc: &mut Option<Crc32c>, sends: &Sends, piece: &PayloadRef, bytes: &[u8]) {
    let Some(front) = crc.as_ref().map(Crc32c::value) else { return };
    match sends.known_crc(front, piece, bytes) {
        Some(known) => *crc = Some(Crc32c::resume(known)),
        None => add_crc(crc, bytes),
    }
}

fn add_crc(crc: &mut Option<Crc32c>, bytes: &[u8]) {
    if let Some(crc) = crc {
        crc.update(bytes);
    }
}

/// Posts the batch of a path. What the device refuses counts as sent and lost, as UC would.
pub(super) fn post<D: Device<Memory = Region>>(
    (device, batches): (&mut D, &mut Batches),
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
    batches.put(batch);
    refused
}
