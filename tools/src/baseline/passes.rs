//! The passes over the data of a message, one function each, which notes its bytes.

use prost::Message;
use prost::bytes::Bytes;
use towpath_base::crc::crc32c;
use towpath_base::passes::{Pass, note};
use towpath_rpc::{NoBuffer, Outgoing, Parcel};
use towpath_transport::{Device, Endpoint, Region};

use towpath_fastpath::slice::{ChunkId, SLICE_BYTES, Span, fragment_crc, slice_crc};

/// Encodes a message into a contiguous buffer of the endpoint: a copy of its data.
pub(super) fn encode<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    message: &impl Message,
) -> Result<Outgoing, NoBuffer> {
    let wanted = message.encoded_len();
    let none = NoBuffer { wanted };
    let mut outgoing = Outgoing::new(endpoint, 0, wanted)?;
    if wanted == 0 {
        return Ok(outgoing);
    }
    let mut buf = endpoint.alloc(wanted).map_err(|_| none)?;
    buf.set_len(wanted).map_err(|_| none)?;
    let mut room = &mut buf[..];
    message.encode(&mut room).map_err(|_| none)?;
    note(Pass::Copy, wanted);
    outgoing.set_data(buf);
    Ok(outgoing)
}

/// Decodes the message that a parcel carries, in one copy: of its data, or, where the message came
/// in several pieces, of all of it, since protobuf wants it in one.
pub(super) fn decode<M: Message + Default>(parcel: &Parcel) -> Option<M> {
    note(Pass::Copy, parcel.data_len());
    let mut pieces = parcel.data_pieces();
    let first = pieces.next().map_or(&[][..], |(_, bytes)| bytes);
    if first.len() == parcel.data_len() {
        return M::decode(first).ok();
    }
    let mut whole = Vec::with_capacity(parcel.data_len());
    whole.extend_from_slice(first);
    pieces.for_each(|(_, bytes)| whole.extend_from_slice(bytes));
    M::decode(Bytes::from(whole)).ok()
}

/// Cuts data into slices, as they go to the disk: a copy.
pub(super) fn cut(span: Span, data: &[u8]) -> Vec<u8> {
    let mut slices = Vec::with_capacity(data.len());
    let mut rest = data;
    for slice in span.first()..span.first() + span.count() {
        let (part, after) = rest.split_at(span.part(slice).1.min(rest.len()));
        slices.extend_from_slice(part);
        rest = after;
    }
    note(Pass::Copy, slices.len());
    slices
}

/// The checksum of each slice: a pass.
pub(super) fn sum(chunk: ChunkId, span: Span, slices: &[u8]) -> Vec<u32> {
    let mut rest = slices;
    let mut crcs = Vec::with_capacity(span.count() as usize);
    for slice in span.first()..span.first() + span.count() {
        let (from, length) = span.part(slice);
        let (part, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        crcs.push(match length {
            SLICE_BYTES => slice_crc(chunk, slice, part),
            _ => fragment_crc(chunk, slice, from as u32, part),
        });
    }
    crcs
}

/// The checksum of a whole message's data: a pass.
pub(super) fn sum_whole(data: &[u8]) -> u32 {
    crc32c(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;
    use towpath_fastpath::slice::writer_crcs;

    #[test]
    fn what_is_cut_and_summed_apart_is_what_a_writer_of_the_fast_path_sends() {
        let seed = 61;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        for _ in 0..200 {
            let mut bytes = vec![0; prng.between(1, 20_000) as usize];
            prng.fill(&mut bytes);
            let offset = prng.below(3) * 4096 + prng.below(2) * prng.below(4096);
            let span = Span::new(offset, bytes.len() as u64);
            let slices = cut(span, &bytes);
            assert!(slices == bytes);
            assert_eq!(sum(ChunkId(3), span, &slices), writer_crcs(ChunkId(3), offset, &bytes));
        }
    }
}
