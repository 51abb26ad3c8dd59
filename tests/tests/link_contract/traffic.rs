//! Messages of all lengths.

use crate::exchange;
use crate::pair::{Maker, Pair, pattern};
use towpath_memory::Region;
use towpath_proto::Outcome;
use towpath_transport::{Event, SendOptions};
use towpath_verbs::Device;

/// Many times what a channel is granted.
const STREAMED_BYTES: usize = 4_000_001;

pub(crate) fn exchange<D: Device<Memory = Region>>(mut maker: Maker<D>) {
    let devices = [0, 1].map(|end| maker.device(end, 0));
    exchange::exchange_in(7, devices, &exchange::Load::small(), maker.world);
}

pub(crate) fn stream<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    let channel = pair.open(true);
    let bytes = pattern(STREAMED_BYTES, 3);
    pair.send(channel, &bytes, SendOptions::new().token(3));
    let (mut read, mut pieces) = (0, 0);
    pair.until(|pair| {
        let mut last = None;
        for event in std::mem::take(&mut pair.far().events) {
            let Event::StreamChunk { chunk, message_len, end, .. } = event else {
                panic!("pieces were due, not {event:?}")
            };
            assert_eq!(message_len as usize, bytes.len());
            assert!(chunk[..] == bytes[read..read + chunk.len()], "at {read}");
            (read, pieces) = (read + chunk.len(), pieces + 1);
            last = end.then_some(());
            pair.far().endpoint.release_chunk(chunk);
        }
        last
    });
    assert_eq!(read, bytes.len());
    assert!(pieces > 1, "it came whole");
    assert_eq!(pair.until(|pair| pair.near.take_sent(3)).0, Outcome::Delivered);
}
