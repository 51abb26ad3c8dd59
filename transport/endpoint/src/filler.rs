//! Filler: bytes that mean nothing and fill a chunk's last packet up, so that a run of full packets
//! goes on into the next chunk (docs/protocol.md section 3).

use crate::error::EndpointError;
use crate::held::Held;
use crate::limits::FILLER_SHARE;
use towpath_memory::{Pool, Region};
use towpath_proto::limits::HEADER_BYTES;
use towpath_verbs::{Access, Device, Mtu, SendWr, Sge};

/// Zeroes for the device to read, of a whole packet.
#[derive(Debug)]
pub(crate) struct Filler {
    _zeroes: Held,
    sge: Sge,
    fills_chunks: bool,
}

impl Filler {
    /// It is for chunks where the device says that a short packet costs more than its bytes, and
    /// for long probes everywhere.
    pub(crate) fn on<D>(device: &mut D, mtu: Mtu) -> Result<Self, EndpointError>
    where
        D: Device<Memory = Region>,
    {
        let fills_chunks = device.caps().short_packet_cost_percent > 0;
        let pool = Pool::with_count(mtu.bytes() as usize, 1)?;
        let lkey = device.reg_mr(pool.region(), Access::LOCAL)?.lkey;
        let mut zeroes = Held::new(pool.take().expect("a fresh pool has its buffer"));
        // For good: every work request that names it only reads.
        zeroes.lend();
        let sge = zeroes.sge(lkey, mtu.bytes() as usize);
        Ok(Self { _zeroes: zeroes, sge, fills_chunks })
    }

    /// How the chunks of a link are filled up, if they are.
    pub(crate) fn of_link(&self, mtu: Mtu, chunk_bytes_max: u32) -> Option<Fill> {
        let bytes_max = HEADER_BYTES as u32 + chunk_bytes_max;
        let fill = Fill { zeroes: self.sge, packet_bytes: mtu.bytes(), bytes_max };
        self.fills_chunks.then_some(fill)
    }

    /// So many bytes of it, at most a packet.
    pub(crate) fn zeroes(&self, bytes: u32) -> Sge {
        Sge { length: bytes.min(self.sge.length), ..self.sge }
    }
}

/// How the chunks of a link are filled up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    zeroes: Sge,
    packet_bytes: u32,
    /// What a receive of the peer takes.
    bytes_max: u32,
}

impl Fill {
    /// Fills up the last packet of a chunk that another is to follow. `unfilled_bytes` are what the
    /// path has sent since it last did so, to which the filler must be in proportion.
    pub(crate) fn fill_up(&self, wr: &mut SendWr, unfilled_bytes: &mut u32) {
        let bytes = wr.sg_list.byte_len() as u32;
        *unfilled_bytes = unfilled_bytes.saturating_add(bytes);
        // Packet sizes are powers of two.
        let length = bytes.wrapping_neg() & (self.packet_bytes - 1);
        // What has no payload is no chunk of a message, and has no filler.
        let has_payload = wr.sg_list.len() > 1;
        let is_worth_it = length > 0 && length <= *unfilled_bytes / FILLER_SHARE;
        if has_payload
            && is_worth_it
            && bytes + length <= self.bytes_max
            && wr.sg_list.push(Sge { length, ..self.zeroes })
        {
            *unfilled_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_verbs::{SendOp, SgList};

    const HEADER: u32 = HEADER_BYTES as u32;

    fn fill() -> Fill {
        let zeroes = Sge { addr: 1 << 20, length: 4096, lkey: 9 };
        Fill { zeroes, packet_bytes: 4096, bytes_max: HEADER + 57_280 }
    }

    fn chunk(payload_bytes: u32) -> SendWr {
        let sge = |length| Sge { addr: 1, length, lkey: 2 };
        SendWr::new(7, SendOp::Send, SgList::two(sge(HEADER), sge(payload_bytes)))
    }

    /// Bytes of filler behind a chunk, when so many bytes were sent before it.
    fn filled(mut wr: SendWr, mut unfilled_bytes: u32) -> u32 {
        let before = wr.sg_list.byte_len();
        fill().fill_up(&mut wr, &mut unfilled_bytes);
        let added = (wr.sg_list.byte_len() - before) as u32;
        assert_eq!(unfilled_bytes == 0, added > 0);
        assert!(added == 0 || wr.sg_list.byte_len().is_multiple_of(4096));
        added
    }

    #[test]
    fn the_end_of_a_long_message_becomes_a_full_packet() {
        assert_eq!(filled(chunk(57_280), 0), 0, "full packets already");
        assert_eq!(filled(chunk(8_256), HEADER + 57_280), 3_968);
        assert_eq!(filled(chunk(57_280 - 16), 0), 16);
    }

    #[test]
    fn filler_stays_a_small_part_of_what_is_sent_and_within_a_receive() {
        assert_eq!(filled(chunk(8_256), 0), 0, "it would be nearly half");
        assert_eq!(filled(chunk(64), 4_000 * FILLER_SHARE), 4_096 - HEADER - 64);
        assert_eq!(filled(chunk(57_281), 1 << 20), 0, "longer than the peer's receives");
        let header_only = SgList::one(Sge { addr: 1, length: HEADER, lkey: 2 });
        assert_eq!(filled(SendWr::new(7, SendOp::Send, header_only), 1 << 20), 0);
    }
}
