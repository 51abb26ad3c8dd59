//! What both servers do with a message: check it, cut it, sum it, hand it to the store.

use super::message::{ReadReply, ReadRequest, Verdict, WriteReply, WriteRequest};
use super::passes::{cut, sum, sum_whole};
use super::store::{SliceOp, SliceOutcome};
use towpath_fastpath::limits::IO_BYTES_MAX;
use towpath_fastpath::slice::{ChunkId, Span};

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// A write.
    Write(WriteReply),
    /// A read.
    Read(ReadReply),
}

/// The write of a message, in the form of the store.
pub(super) fn take_write(request: &WriteRequest) -> Result<SliceOp, Verdict> {
    let &WriteRequest { chunk, offset, crc, ref data } = request;
    let (chunk, span) = place(chunk.map(ChunkId::from), offset, data.len())?;
    if sum_whole(data) != crc {
        return Err(Verdict::Corrupt);
    }
    let slices = cut(span, data);
    let crcs = sum(chunk, span, &slices);
    Ok(SliceOp::Write { chunk, offset, slices, crcs })
}

/// The read of a message.
pub(super) fn take_read(request: &ReadRequest) -> Result<SliceOp, Verdict> {
    let &ReadRequest { chunk, offset, length } = request;
    let (chunk, _) = place(chunk.map(ChunkId::from), offset, length as usize)?;
    Ok(SliceOp::Read { chunk, offset, length })
}

fn place(chunk: Option<ChunkId>, offset: u64, length: usize) -> Result<(ChunkId, Span), Verdict> {
    let fits = (1..=IO_BYTES_MAX).contains(&length);
    let ends = offset.checked_add(length as u64).is_some();
    let chunk = chunk.filter(|_| fits && ends).ok_or(Verdict::Malformed)?;
    Ok((chunk, Span::new(offset, length as u64)))
}

/// What a write came to.
pub(super) fn write_reply(outcome: &SliceOutcome) -> WriteReply {
    let verdict = match outcome {
        SliceOutcome::Written => Verdict::Done,
        SliceOutcome::Not(verdict) => *verdict,
        SliceOutcome::Read(_) => Verdict::Failed,
    };
    WriteReply { verdict: verdict.into() }
}

/// What a read came to.
pub(super) fn read_reply(outcome: SliceOutcome) -> ReadReply {
    match outcome {
        SliceOutcome::Read(data) => {
            ReadReply { verdict: Verdict::Done.into(), crc: sum_whole(&data), data: data.into() }
        }
        SliceOutcome::Not(verdict) => ReadReply { verdict: verdict.into(), ..<_>::default() },
        SliceOutcome::Written => ReadReply { verdict: Verdict::Failed.into(), ..<_>::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::bytes::Bytes;
    use towpath_base::crc::crc32c;

    #[test]
    fn a_message_that_asks_for_what_cannot_be_is_refused_before_anything_is_done() {
        let chunk = Some(ChunkId(1).into());
        let good = WriteRequest {
            chunk,
            offset: 100,
            crc: crc32c(b"abc"),
            data: Bytes::from_static(b"abc"),
        };
        assert!(take_write(&good).is_ok());
        let refused = |change: fn(&mut WriteRequest)| {
            let mut request = good.clone();
            change(&mut request);
            take_write(&request).expect_err("it cannot be")
        };
        assert_eq!(refused(|write| write.chunk = None), Verdict::Malformed);
        assert_eq!(refused(|write| write.data = Bytes::new()), Verdict::Malformed);
        assert_eq!(refused(|write| write.offset = u64::MAX - 1), Verdict::Malformed);
        assert_eq!(refused(|write| write.data = Bytes::from_static(b"abd")), Verdict::Corrupt);
        let read = |offset, length| take_read(&ReadRequest { chunk, offset, length });
        assert!(read(u64::MAX - 4096, 4096).is_ok());
        assert_eq!(read(u64::MAX, 1).err(), Some(Verdict::Malformed));
        assert_eq!(read(0, 0).err(), Some(Verdict::Malformed));
        assert_eq!(read(0, u32::MAX).err(), Some(Verdict::Malformed));
    }
}
