//! Posting acks, and taking back what was posted.

use super::send::end_unsealed;
use crate::conn::Conn;
use crate::limits::CONTROL_SLOT_BYTES;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::PathId;
use towpath_verbs::Device;

/// Sends the acks of one link, and what its stream has room for; returns how many work requests the
/// device refused.
pub(crate) fn send_acks<D: Device<Memory = Region>>(
    device: &mut D,
    conn: &mut Conn,
    now: Time,
) -> u64 {
    let Conn { id, link: Some(link), paths, tcp, control, timer, seal, .. } = conn else {
        return 0;
    };
    let mut refused = 0;
    while control.has_send_slot() {
        let (mut way, mut len, mut cut_at) = (None, 0, None);
        let write = |bytes: &mut [u8; CONTROL_SLOT_BYTES]| {
            let ack = link.poll_ack(now, bytes.first_chunk_mut()?)?;
            (way, len, cut_at) = (ack.path, ack.len, ack.cut_at);
            if let Some(seal) = seal.as_deref_mut() {
                len = seal.seal_ack(now, bytes, len)?;
            }
            Some(len)
        };
        let Some((slot, mut wr)) = control.send(id.index, now, write) else { break };
        if let Some(tcp) = tcp.as_mut().filter(|tcp| way.is_some() && tcp.path == way) {
            if let Some(ack) = control.take_back(slot, len) {
                // Acks tell all there is: what finds no room is made good by the next.
                tcp.frames.push(ack);
            }
            continue;
        }
        wr.flags.cut_at = cut_at;
        let path = way.and_then(|path| paths.get(usize::from(path.0)));
        let qp_num = path.map_or(control.qp_num, |path| path.qp_num);
        if device.post_send(qp_num, &[wr]).is_err() {
            refused += 1;
            control.sent(slot);
        }
    }
    if let Some(error) = seal.as_ref().and_then(|seal| seal.failed()) {
        end_unsealed(link, error);
    }
    *timer = link.poll_timeout();
    if let Some(tcp) = tcp {
        tcp.write_out(now);
        *timer = tcp.due.min(*timer);
    }
    refused
}

/// Takes back all sends of a path; false when there were none.
pub(crate) fn take_back_sends(conn: &mut Conn, path: u8) -> bool {
    let Conn { paths, tx_slots, link, .. } = conn;
    let Some(sending) = paths.get_mut(usize::from(path)) else { return false };
    let mut any = false;
    while let Some(number) = sending.tx.pop_any(tx_slots) {
        any = true;
        if let Some(link) = link.as_mut() {
            link.handle_sent(PathId(path), number, None);
        }
    }
    any
}
