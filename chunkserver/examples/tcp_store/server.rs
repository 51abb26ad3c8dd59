//! The server: one thread for all connections and the store.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slab::Slab;
use towpath_chunkserver::store::core::{
    CoreConfig, DriverConfig, StoreCore, StoreDriver, StoreThread,
};
use towpath_chunkserver::store::{
    Completion, NewChunk, Reply, Request, SLICE_BYTES, Terms, Ticket, writer_crcs,
};
use towpath_disk::{NewFile, Options, open};
use towpath_fastpath::wire::{
    ChangeReply, Method, ReadHeader, ReadReplyHeader, WriteHeader, emit_crcs,
};
use towpath_memory::{Buf, Pool};
use towpath_rpc::{Header, Kind, Status};

use super::stream::{Came, Part, Stream};
use super::{BLOCK_MAX, CHUNK, Outcome, SPIN};

/// Requests under way: as many as one client of a chunk server may have.
const UNDER_WAY_MAX: usize = 256;

/// Bytes of the writes that fill the chunk.
const FILL_BYTES: usize = 1 << 20;

/// The longest sleep: how soon it is seen that the standard input has ended.
const NAP: Duration = Duration::from_millis(100);

/// A request that the store has.
struct Asked {
    connection: usize,
    request: u64,
    offset: u64,
    length: u32,
}

struct Server {
    store: StoreThread<Vec<u8>>,
    driver: StoreDriver<Vec<u8>>,
    small: Pool,
    large: Pool,
    connections: Slab<Stream>,
    asked: Slab<Asked>,
}

pub(crate) fn serve(folder: &Path, mib: u64) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    let config = DriverConfig { queue_max: 2 * UNDER_WAY_MAX, unfinished_keep: None };
    let (driver, mut holds, ()) = StoreDriver::open_here(1, config, || opened(folder, mib))?;
    let mut server = Server {
        store: holds.pop().ok_or("one asker has one hold")?,
        driver,
        small: Pool::with_count(SLICE_BYTES, UNDER_WAY_MAX)?,
        large: Pool::with_count(BLOCK_MAX, 64)?,
        connections: Slab::new(),
        asked: Slab::new(),
    };
    server.fill(mib)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    println!("listening on {}", listener.local_addr()?);
    io::stdout().flush()?;
    let ended = std::thread::spawn(|| {
        // Whoever started it ends it so.
        let _ = io::stdin().read(&mut [0]);
    });
    let mut idle_since: Option<Instant> = None;
    while !ended.is_finished() {
        if server.turn(&listener)? {
            idle_since = None;
        } else if idle_since.get_or_insert_with(Instant::now).elapsed() < SPIN {
            std::hint::spin_loop();
        } else {
            server.wait(&listener)?;
        }
    }
    Ok(())
}

fn opened(folder: &Path, mib: u64) -> Outcome<(StoreCore<Vec<u8>>, ())> {
    let config = CoreConfig {
        log_pages: 8192,
        log_pages_max: 0,
        chunks_max: 16,
        store_id: 1,
        log_nonce: 2,
        version_seed: 0,
        is_sparse: false,
    };
    // Twice the chunk and the log, so that fresh pages are never short.
    let page_count = 2 * (mib << 20) / SLICE_BYTES as u64 + 32_768;
    let create = Some(NewFile { page_count, room_pages: u64::MAX });
    let options = Options { create, ..Options::default() };
    let (disk, _) = open(&folder.join("disk"), &options)?;
    Ok((StoreCore::open(disk, &config)?, ()))
}

impl Server {
    /// Makes the chunk and writes all of it.
    fn fill(&mut self, mib: u64) -> Outcome<()> {
        let (limit_bytes, kind) = (None, NewChunk::default());
        self.ask_alone(Request::Create { chunk: CHUNK, limit_bytes, kind, stamp: 0 })?;
        for offset in (0..mib << 20).step_by(FILL_BYTES) {
            self.ask_alone(write(offset, vec![0; FILL_BYTES], None))?;
        }
        Ok(())
    }

    fn ask_alone(&mut self, request: Request<Vec<u8>, Buf>) -> Outcome<()> {
        self.store.try_send(0, request).map_err(|_| "the queue is full")?;
        loop {
            self.driver.turn()?;
            match self.store.completions().try_recv().map(|done| done.reply) {
                Ok(Reply::Change(Ok(_)) | Reply::Write { result: Ok(_), .. }) => return Ok(()),
                Ok(_) => return Err("the chunk could not be made".into()),
                Err(_) => {}
            }
        }
    }

    /// Takes in what has come, has the store work, sends answers; false when that was nothing.
    fn turn(&mut self, listener: &TcpListener) -> Outcome<bool> {
        let mut was_busy = false;
        while let Ok((socket, _)) = listener.accept() {
            self.connections.insert(Stream::new(socket)?);
            was_busy = true;
        }
        for place in 0..self.connections.capacity() {
            if let Some(connection) = self.connections.get_mut(place) {
                // One that has ended, or does not speak the protocol, is closed.
                let taken = connection.read().map_err(Into::into).and_then(|came| {
                    self.take(place)?;
                    Ok::<bool, Box<dyn std::error::Error>>(came)
                });
                match taken {
                    Ok(came) => was_busy |= came,
                    Err(_) => drop(self.connections.remove(place)),
                }
            }
        }
        was_busy |= self.driver.turn()?;
        while let Ok(answer) = self.store.completions().try_recv() {
            self.answer(answer)?;
            was_busy = true;
        }
        let mut broken = Vec::new();
        for (place, connection) in &mut self.connections {
            if connection.write().is_err() {
                broken.push(place);
            }
        }
        broken.into_iter().for_each(|place| drop(self.connections.remove(place)));
        Ok(was_busy)
    }

    /// Gives the store the requests that a connection has whole.
    fn take(&mut self, connection: usize) -> Outcome<()> {
        while self.asked.len() < UNDER_WAY_MAX {
            let Some(Came { header, body, data }) = self.connections[connection].next()? else {
                break;
            };
            let asked =
                |offset, length| Asked { connection, request: header.request, offset, length };
            let (asked, request) = if header.method == Method::Write as u16 {
                let (head, crcs) = WriteHeader::parse(body)?;
                (asked(head.offset, head.length), write(head.offset, data.to_vec(), Some(crcs)))
            } else {
                let ReadHeader { offset, length, .. } = ReadHeader::parse(body)?;
                let byte_len = length as usize;
                let pool = if byte_len <= SLICE_BYTES { &self.small } else { &self.large };
                let buf =
                    pool.take().filter(|_| byte_len <= BLOCK_MAX).ok_or("no buffer is left")?;
                let crcs = Vec::new();
                (asked(offset, length), Request::Read { chunk: CHUNK, offset, byte_len, buf, crcs })
            };
            let token = self.asked.insert(asked) as u64;
            self.store.try_send(token, request).map_err(|_| "the queue is full")?;
        }
        Ok(())
    }

    fn answer(&mut self, answer: Completion<Vec<u8>, Buf>) -> Outcome<()> {
        let Asked { connection, request, offset, length } =
            self.asked.remove(answer.token as usize);
        let Some(stream) = self.connections.get_mut(connection) else { return Ok(()) };
        let (method, body, data) = match answer.reply {
            Reply::Write { result, .. } => {
                let Ticket(chunk_version) = result?;
                (Method::Write, ChangeReply { chunk_version }.emit().to_vec(), None)
            }
            Reply::Read { result, mut buf, crcs } => {
                let found = result?;
                buf.set_len(length as usize)?;
                let (chunk, chunk_bytes, chunk_version) = (CHUNK, found.chunk_bytes, found.version);
                let head = ReadReplyHeader { chunk, offset, length, chunk_bytes, chunk_version };
                (Method::Read, [&head.emit()[..], &emit_crcs(&crcs)].concat(), Some(buf))
            }
            _ => return Err("the store answers something else".into()),
        };
        let header = Header {
            kind: Kind::Response,
            method: method as u16,
            status: Status::OK,
            inline: false,
            request,
            body_len: body.len() as u32,
            data_len: data.as_ref().map_or(0, |_| length),
            timeout_us: 0,
        };
        stream.put(Part::Made([&header.emit()[..], &body].concat()));
        data.into_iter().for_each(|buf| stream.put(Part::Read(buf)));
        Ok(())
    }

    /// Sleeps until something has come, or the disk has done something.
    fn wait(&mut self, listener: &TcpListener) -> Outcome<()> {
        let Some(most) = self.driver.begin_wait()? else { return Ok(()) };
        let timeout = Timespec::try_from(most.min(NAP))?;
        let own = self.driver.files();
        let mut files: Vec<PollFd<'_>> = own.into_iter().flatten().map(readable).collect();
        files.push(readable(listener.as_fd()));
        files.extend(self.connections.iter().map(|(_, connection)| {
            let more =
                if connection.wants_to_write() { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::new(connection.socket(), PollFlags::IN | more)
        }));
        match poll(&mut files, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        drop(files);
        self.driver.end_wait();
        Ok(())
    }
}

fn readable(file: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(file, PollFlags::IN)
}

/// A write; the store compares its data with the checksums, where they came with it.
fn write(offset: u64, bytes: Vec<u8>, crcs: Option<Vec<u32>>) -> Request<Vec<u8>, Buf> {
    let verified = crcs.is_none();
    let crcs = crcs.unwrap_or_else(|| writer_crcs(CHUNK, offset, &bytes));
    let (data, terms) = (vec![bytes], Terms::default());
    Request::Write { chunk: CHUNK, offset, data, crcs, staged: None, verified, terms }
}
