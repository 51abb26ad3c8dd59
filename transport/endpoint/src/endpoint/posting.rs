//! Making work requests of chunks, alone or in packs, and posting them.

use crate::batch::Batches;
use crate::links::Path;
use crate::sends::Sends;
use crate::tcp::Tcp;
use crate::tx::{TxQueue, TxSlots};
use std::hint::cold_path;
use towpath_base::crc::crc32c;
use towpath_memory::Region;
use towpath_proto::limits::{HEADER_BYTES, PACKED_BYTES_MAX};
use towpath_proto::wire::ChunkFlags;
use towpath_proto::{Link, PathId, Transmit};
use towpath_verbs::{Device, QpState, Sge};

/// The bytes of a chunk and their gather entry, and their checksum into its header. `None` when
/// they are not there, which would be a mistake in the link: then it counts as sent and lost.
#[inline]
fn payload_of<'a>(sends: &'a Sends, transmit: &mut Transmit) -> Option<(&'a [u8], Sge)> {
    let Some(piece) = transmit.payload else { return Some((&[], Sge::default())) };
    let found = sends.piece(piece.send, piece.segment, piece.offset, piece.length);
    debug_assert!(found.is_some(), "the link asks for bytes that no segment has");
    let (bytes, sge) = found?;
    if transmit.header.flags.has(ChunkFlags::PAYLOAD_CRC) {
        transmit.header.payload_crc = crc32c(bytes);
    }
    Some((bytes, sge))
}

/// Copies a chunk to the stream of its link. One for which there is no room is lost, as on UC.
#[inline(never)]
pub(super) fn push_frame(tcp: &mut Tcp, sends: &Sends, transmit: &mut Transmit) {
    let Some((payload, _)) = payload_of(sends, transmit) else { return };
    let mut header = [0; HEADER_BYTES];
    transmit.header.emit(&mut header);
    tcp.frames.push(&header, payload);
}

/// Makes the work request of a chunk. False when its bytes are not there.
pub(super) fn push(
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Batches),
    sends: &Sends,
    index: u16,
    transmit: &mut Transmit,
) -> bool {
    let Some((bytes, payload)) = payload_of(sends, transmit) else { return false };
    let header = &transmit.header;
    if (1..=PACKED_BYTES_MAX).contains(&bytes.len())
        && pack((path, tx_slots, batches), (index, transmit), bytes)
    {
        return true;
    }
    close_pack(path, tx_slots);
    let what = (header.number, payload.length);
    let (position, sge) = path.tx.push(tx_slots, what, |bytes| header.emit(bytes));
    let wr_id = TxQueue::wr_id(index, transmit.path.0, position);
    let batch = path.batch.get_or_insert_with(|| batches.take());
    let sg_list = batch.push(wr_id, sge, transmit.cut_at);
    if payload.length > 0 {
        let has_room = sg_list.push(payload);
        debug_assert!(has_room, "there is only the header so far");
    }
    true
}

/// Puts a short chunk into the pack that goes next, or one of its own. False when it fits in
/// none.
#[inline]
fn pack(
    (path, tx_slots, batches): (&mut Path, &mut TxSlots, &mut Batches),
    (index, transmit): (u16, &Transmit),
    payload: &[u8],
) -> bool {
    let header = &transmit.header;
    let number = header.number;
    if path.tx.join(tx_slots, number, payload, |bytes| header.emit(bytes)) {
        if let Some(batch) = &mut path.batch {
            batch.packed();
        }
        return true;
    }
    close_pack(path, tx_slots);
    let position = path.tx.push_pack(tx_slots, number, payload, |bytes| header.emit(bytes));
    let Some(position) = position else { return false };
    let wr_id = TxQueue::wr_id(index, transmit.path.0, position);
    let batch = path.batch.get_or_insert_with(|| batches.take());
    batch.push(wr_id, Sge::default(), transmit.cut_at);
    batch.packed();
    true
}

/// Nothing more joins the pack that goes next on a path, if there is one.
#[inline]
fn close_pack(path: &mut Path, tx_slots: &mut TxSlots) {
    if let Some(entry) = path.tx.close(tx_slots)
        && let Some(batch) = &mut path.batch
    {
        batch.settle_last(entry);
    }
}

/// Posts the batch of a path. What the device refuses counts as sent and lost, as UC would.
pub(super) fn post<D: Device<Memory = Region>>(
    (device, batches): (&mut D, &mut Batches),
    (path, tx_slots): (&mut Path, &mut TxSlots),
    link: &mut Link,
    id: PathId,
) -> u64 {
    close_pack(path, tx_slots);
    let Some(mut batch) = path.batch.take() else { return 0 };
    let wrs = batch.sealed();
    let mut refused = 0;
    if let Err(bad) = device.post_send(path.qp_num, wrs) {
        cold_path();
        for _ in bad.index..wrs.len() {
            for number in path.tx.unpush(tx_slots).into_iter().flatten() {
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
