//! Many operations in a row: whole files, and ranges longer than one operation.

use crate::blocking::BlockingClient;
use crate::change::{NewChunk, Terms};
use crate::client::{Done, OpId, io_bytes_max};
use crate::error::{ClientError, ErrorKind, TransferError};
use crate::output::{Output, ReadData};
use crate::run::{crc_of_pages, range_crc};
use crate::slice::{ChunkId, writer_crcs};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use towpath_rpc::limits::HEADER_BYTES;
use towpath_rpc::{CallError, NoBuffer};
use towpath_transport::{Buf, Device, Region};

/// How often one operation of a transfer is tried when its data was changed on the way.
const TRIES_MAX: u32 = 3;

/// What a transfer moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes.
    pub bytes: u64,
    /// CRC32C of all of them in order, where
    /// [`whole_crc`](crate::ClientConfig::whole_crc) asks for it.
    pub crc: Option<u32>,
}

/// What is read, and how.
#[derive(Clone, Copy)]
struct Source {
    chunk: ChunkId,
    resident: bool,
}

/// A read of a transfer, in its place in line.
enum Place {
    /// Under way.
    Waiting { op: OpId, offset: u64, length: usize, tries: u32 },
    /// Here before its turn: copied, so that it holds no credit that earlier ones need.
    Early(Vec<u8>),
}

impl<D: Device<Memory = Region>> BlockingClient<D> {
    /// Makes the chunk and writes all that `source` gives to it, several operations at a time.
    /// `progress` is told how many bytes are stored, durably.
    ///
    /// # Errors
    /// [`TransferError`]; the chunk may be there, unfinished: then it is not read, and the server
    /// removes it after a while.
    pub fn put(
        &mut self,
        chunk: ChunkId,
        source: &mut impl Read,
        progress: impl FnMut(u64),
    ) -> Result<Transferred, TransferError> {
        let kind = NewChunk { unfinished: true, ..NewChunk::default() };
        self.put_as(chunk, kind, source, progress)
    }

    /// As [`put`](Self::put), of a resident chunk.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_resident(
        &mut self,
        chunk: ChunkId,
        source: &mut impl Read,
        progress: impl FnMut(u64),
    ) -> Result<Transferred, TransferError> {
        let kind = NewChunk { unfinished: true, resident: true, chain: 0 };
        self.put_as(chunk, kind, source, progress)
    }

    fn put_as(
        &mut self,
        chunk: ChunkId,
        kind: NewChunk,
        source: &mut impl Read,
        progress: impl FnMut(u64),
    ) -> Result<Transferred, TransferError> {
        self.create_as(chunk, None, kind)?;
        let op_bytes = self.op_bytes()?;
        let (mut bytes, mut crc) = (0, self.config.whole_crc.then_some(0));
        let mut fill = |buf: &mut Buf| {
            let failed = |source| TransferError::Source { done: bytes, source };
            let len = read_full(source, buf).map_err(failed)?;
            bytes += len as u64;
            Ok(len)
        };
        self.write_all(chunk, 0, op_bytes, &mut fill, &mut crc, progress)?;
        self.finish(chunk, bytes)?;
        Ok(Transferred { bytes, crc })
    }

    /// Reads the whole chunk to `sink`, several operations at a time, by READs of the server's
    /// memory where it is resident and reads are not hedged; every byte was verified before it is
    /// written. `progress` is told how many bytes are written.
    ///
    /// # Errors
    /// [`TransferError`]; `sink` may have got the first part.
    pub fn get(
        &mut self,
        chunk: ChunkId,
        sink: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<Transferred, TransferError> {
        let info = self.stat(chunk)?;
        // Only requests are hedged.
        let resident = info.resident && self.config.hedge.is_none();
        let (from, length) = (Source { chunk, resident }, info.byte_len);
        let (mut done, mut crc) = (0, self.config.whole_crc.then_some(0));
        self.read_all(from, 0, length, &mut |bytes, pages| {
            sink.write_all(bytes).map_err(|source| TransferError::Sink { done, source })?;
            crc = crc.map(|front| crc_of_pages(front, bytes, pages));
            done += bytes.len() as u64;
            progress(done);
            Ok(())
        })?;
        sink.flush().map_err(|source| TransferError::Sink { done, source })?;
        Ok(Transferred { bytes: done, crc })
    }

    /// Writes `bytes` from `offset` on, in as many operations as it takes. Each of them is done
    /// wholly or not at all; on an error some may be done.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn write(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), TransferError> {
        let op_bytes = self.op_bytes()?;
        let mut rest = bytes;
        let mut fill = |buf: &mut Buf| {
            let (part, after) = rest.split_at(rest.len().min(buf.len()));
            buf[..part.len()].copy_from_slice(part);
            rest = after;
            Ok(part.len())
        };
        self.write_all(chunk, offset, op_bytes, &mut fill, &mut None, |_| {})
    }

    /// Reads `length` bytes from `offset` on, in as many operations as it takes; a write between
    /// two of them shows in part.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn read(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, TransferError> {
        let mut out = Vec::new();
        let from = Source { chunk, resident: false };
        self.read_all(from, offset, length as u64, &mut |bytes, _| {
            out.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(out)
    }

    /// Bytes of one operation: what is configured, and the link and the server hold whole.
    fn op_bytes(&mut self) -> Result<usize, ClientError> {
        let server = usize::try_from(self.info()?.request_bytes_max).unwrap_or(usize::MAX);
        let link = self.client.primary().io_bytes_max(&self.endpoint);
        let most = io_bytes_max(server.saturating_sub(HEADER_BYTES)).min(link);
        Ok(self.config.op_bytes.min(most).max(crate::SLICE_BYTES))
    }

    /// Writes what `fill` puts in buffers until it gives less than there is room for, cut at
    /// multiples of `op_bytes` so that only the first and the last operation are not whole slices.
    /// `crc` is that of the bytes before, if it is wanted, and becomes that of these too.
    fn write_all(
        &mut self,
        chunk: ChunkId,
        from: u64,
        op_bytes: usize,
        fill: &mut impl FnMut(&mut Buf) -> Result<usize, TransferError>,
        crc: &mut Option<u32>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), TransferError> {
        let mut under_way: Vec<(OpId, u64)> = Vec::with_capacity(self.config.depth);
        let mut next = Some(from);
        let (mut stored, mut failed) = (0, None);
        loop {
            while failed.is_none()
                && under_way.len() < self.config.depth
                && let Some(offset) = next
            {
                let place = (chunk, offset);
                let begun = self.begin_write(place, op_bytes, fill, crc, under_way.is_empty());
                match begun {
                    Ok(Begun::Write { op, length, end }) => {
                        under_way.push((op, length));
                        next = (!end).then_some(offset + length);
                        // The first bytes are on their way while the next are being read.
                        self.endpoint.flush();
                    }
                    Ok(Begun::Nothing) => next = None,
                    Ok(Begun::NoBuffer) => break,
                    Err(error) => failed = Some(error),
                }
            }
            if under_way.is_empty() {
                return failed.map_or(Ok(()), Err);
            }
            let Done { op, result } = self.next_done();
            let Some(place) = under_way.iter().position(|(id, _)| *id == op) else { continue };
            let (_, length) = under_way.swap_remove(place);
            match result {
                Ok(_) => {
                    stored += length;
                    progress(stored);
                }
                Err(error) => failed = failed.or(Some(error.into())),
            }
        }
    }

    fn begin_write(
        &mut self,
        (chunk, offset): (ChunkId, u64),
        op_bytes: usize,
        fill: &mut impl FnMut(&mut Buf) -> Result<usize, TransferError>,
        crc: &mut Option<u32>,
        first: bool,
    ) -> Result<Begun, TransferError> {
        let room = op_bytes - (offset % op_bytes as u64) as usize;
        let Ok(mut data) = self.endpoint.alloc(room) else {
            // Buffers under way come back; with none under way they never will.
            let error = CallError::NoBuffer(NoBuffer { wanted: room });
            return if first {
                Err(self.write_error(chunk, offset, error))
            } else {
                Ok(Begun::NoBuffer)
            };
        };
        let resized = |_| CallError::NoBuffer(NoBuffer { wanted: room });
        data.set_len(room).map_err(resized).map_err(|e| self.write_error(chunk, offset, e))?;
        let length = fill(&mut data)?;
        if length == 0 {
            return Ok(Begun::Nothing);
        }
        data.set_len(length).map_err(resized).map_err(|e| self.write_error(chunk, offset, e))?;
        let crcs = writer_crcs(chunk, offset, &data);
        *crc = crc.and_then(|front| range_crc(front, chunk, offset, &data, &crcs));
        let client = self.client.primary_mut();
        let op = client.start_write_with(
            &mut self.endpoint,
            (chunk, offset),
            data,
            &crcs,
            Terms::default(),
        )?;
        Ok(Begun::Write { op, length: length as u64, end: length < room })
    }

    fn write_error(&self, chunk: ChunkId, offset: u64, error: CallError) -> TransferError {
        let (chunk, offset) = (Some(chunk), Some(offset));
        let method = crate::Method::Write;
        TransferError::Client(ClientError { method, chunk, offset, kind: ErrorKind::Call(error) })
    }

    fn read_all(
        &mut self,
        source: Source,
        from: u64,
        length: u64,
        sink: &mut impl FnMut(&[u8], &[u32]) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let op_bytes = self.config.op_bytes.min(self.client.primary().io_bytes_max(&self.endpoint));
        let op_bytes = op_bytes.max(crate::SLICE_BYTES) as u64;
        let end = from.saturating_add(length);
        let mut line: VecDeque<Place> = VecDeque::with_capacity(self.config.depth);
        let (mut next, mut failed) = (from, None);
        loop {
            while failed.is_none() && line.len() < self.config.depth && next < end {
                let length = (op_bytes - next % op_bytes).min(end - next) as usize;
                match self.begin_read(source, next, length, 1) {
                    Ok(place) => {
                        line.push_back(place);
                        next += length as u64;
                    }
                    Err(error) => failed = Some(error.into()),
                }
            }
            if !line.iter().any(|place| matches!(place, Place::Waiting { .. })) {
                return failed.map_or(Ok(()), Err);
            }
            let done = self.next_done();
            if let Err(error) = self.take_read(source, &mut line, done, failed.is_none(), sink) {
                failed = failed.or(Some(error));
            }
        }
    }

    fn begin_read(
        &mut self,
        Source { chunk, resident }: Source,
        offset: u64,
        length: usize,
        tries: u32,
    ) -> Result<Place, ClientError> {
        let Self { client, endpoint, .. } = self;
        let op = match resident {
            true => client.primary_mut().start_resident_read(endpoint, chunk, offset, length)?,
            false => client.start_read(endpoint, chunk, offset, length)?,
        };
        Ok(Place::Waiting { op, offset, length, tries })
    }

    /// Hands a read that has ended to the sink when it is its turn, with those that waited for it.
    fn take_read(
        &mut self,
        source: Source,
        line: &mut VecDeque<Place>,
        Done { op: ended, result }: Done,
        wanted: bool,
        sink: &mut impl FnMut(&[u8], &[u32]) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let is_it = |place: &Place| matches!(place, Place::Waiting { op, .. } if *op == ended);
        let Some(at) = line.iter().position(is_it) else { return Ok(()) };
        let (offset, length, tries) = match line[at] {
            Place::Waiting { offset, length, tries, .. } => (offset, length, tries),
            Place::Early(_) => return Ok(()),
        };
        // Whatever goes wrong, nobody waits for this operation any more.
        line[at] = Place::Early(Vec::new());
        let data = match result {
            Ok(Output::Read(data)) => data,
            Err(ClientError { kind: ErrorKind::ReplyCorrupt { .. }, .. })
                if wanted && tries < TRIES_MAX =>
            {
                line[at] = self.begin_read(source, offset, length, tries + 1)?;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        };
        if !wanted {
            self.release(data);
            return Ok(());
        }
        if at > 0 {
            line[at] = Place::Early(data.to_vec());
            self.release(data);
            return Ok(());
        }
        line.pop_front();
        let mut parts = data.parts_with_crcs();
        let written = parts.try_for_each(|(bytes, crcs)| sink(bytes, crcs));
        drop(parts);
        self.release(data);
        written?;
        while let Some(Place::Early(bytes)) = line.front() {
            sink(bytes, &[])?;
            line.pop_front();
        }
        Ok(())
    }

    fn release(&mut self, data: ReadData) {
        data.release(&mut self.endpoint);
    }
}

/// What came of beginning a write.
enum Begun {
    /// It is under way.
    Write { op: OpId, length: u64, end: bool },
    /// There is nothing more to write.
    Nothing,
    /// All buffers are under way.
    NoBuffer,
}

/// Reads until `buf` is full or the source ends.
fn read_full(source: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match source.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
