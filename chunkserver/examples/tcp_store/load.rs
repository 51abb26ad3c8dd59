//! The client: so many requests under way, and what they took.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use towpath_base::Prng;
use towpath_chunkserver::store::{SLICE_BYTES, Terms, writer_crcs};
use towpath_fastpath::wire::{
    ChangeReply, Method, ReadHeader, ReadReplyHeader, Sender, WriteHeader, emit_crcs,
};
use towpath_rpc::{Header, Kind, Status};

use super::stream::{Came, Part, Stream};
use super::{CHUNK, Outcome, SPIN};

/// Flags of the load, named as those of `towpath bench store` are.
#[derive(clap::Args)]
pub(crate) struct Args {
    server: SocketAddr,
    /// Of 100 requests, how many are reads
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    rwmixread: u8,
    /// Bytes of a request, a multiple of 4,096
    #[arg(long, default_value_t = 4096,
        value_parser = clap::value_parser!(u32).range(4096..=1 << 20))]
    bs: u32,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    iodepth: u32,
    /// Seconds
    #[arg(long, default_value_t = 1)]
    runtime: u32,
    /// MiB of the server's chunk
    #[arg(long)]
    mib: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What the requests of one kind took, in nanoseconds.
type Took = Vec<u64>;

struct Load<'a> {
    args: &'a Args,
    prng: Prng,
    block: Vec<u8>,
    stream: Stream,
    /// By number: when it was asked, and of what.
    under_way: HashMap<u64, (Instant, Method, u64)>,
    next: u64,
    reads: Took,
    writes: Took,
}

pub(crate) fn run(args: &Args) -> Outcome<()> {
    if !args.bs.is_multiple_of(SLICE_BYTES as u32) {
        return Err("--bs is no multiple of 4,096".into());
    }
    let mut prng = Prng::new(args.seed);
    let mut block = vec![0; args.bs as usize];
    prng.fill(&mut block);
    let stream = Stream::new(TcpStream::connect(args.server)?)?;
    let (under_way, reads, writes) = (HashMap::new(), Vec::new(), Vec::new());
    let mut load = Load { args, prng, block, stream, under_way, next: 1, reads, writes };
    let (began, span) = (Instant::now(), Duration::from_secs(args.runtime.into()));
    load.drive(began + span)?;
    let span = began.elapsed();
    let Load { mut reads, mut writes, .. } = load;
    println!(
        "{}",
        json!({
            "read": direction(&mut reads, args.bs, span),
            "write": direction(&mut writes, args.bs, span),
        })
    );
    Ok(())
}

impl Load<'_> {
    fn drive(&mut self, until: Instant) -> Outcome<()> {
        let mut idle_since: Option<Instant> = None;
        loop {
            let is_over = Instant::now() >= until;
            while !is_over && self.under_way.len() < self.args.iodepth as usize {
                self.ask();
            }
            if self.under_way.is_empty() {
                return Ok(());
            }
            self.stream.write()?;
            let came = self.stream.read()?;
            while self.take()? {}
            if came {
                idle_since = None;
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                let more = self.stream.wants_to_write();
                let flags = if more { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                poll(&mut [PollFd::new(self.stream.socket(), flags)], None)?;
            }
        }
    }

    fn ask(&mut self) {
        let length = self.args.bs;
        let blocks = (self.args.mib << 20) / u64::from(length);
        let offset = self.prng.below(blocks.max(1)) * u64::from(length);
        let is_read = self.prng.below(100) < u64::from(self.args.rwmixread);
        let (chunk, sender, request) = (CHUNK, Sender::default(), self.next);
        let began = Instant::now();
        let (method, body, data) = match is_read {
            true => {
                let head = ReadHeader { chunk, offset, length, sender };
                (Method::Read, head.emit().to_vec(), None)
            }
            false => {
                // No write has the bytes of another one.
                self.block[..8].copy_from_slice(&request.to_le_bytes());
                let crcs = writer_crcs(chunk, offset, &self.block);
                let terms = Terms::default();
                let head = WriteHeader { chunk, offset, length, sender, terms };
                let body = [&head.emit()[..], &emit_crcs(&crcs)].concat();
                (Method::Write, body, Some(self.block.clone()))
            }
        };
        let header = Header {
            kind: Kind::Request,
            method: method as u16,
            status: Status::OK,
            inline: false,
            request,
            body_len: body.len() as u32,
            data_len: if is_read { 0 } else { length },
            timeout_us: 0,
        };
        self.stream.put(Part::Made([&header.emit()[..], &body].concat()));
        data.into_iter().for_each(|data| self.stream.put(Part::Made(data)));
        self.under_way.insert(request, (began, method, offset));
        self.next += 1;
    }

    /// Takes an answer and checks it; false when none is there.
    fn take(&mut self) -> Outcome<bool> {
        let Some(Came { header, body, data }) = self.stream.next()? else { return Ok(false) };
        let found = self.under_way.remove(&header.request);
        let (began, method, offset) = found.ok_or("an answer to no request")?;
        if (header.kind, header.status, header.method)
            != (Kind::Response, Status::OK, method as u16)
        {
            return Err("the server refused".into());
        }
        if method == Method::Read {
            let (head, crcs) = ReadReplyHeader::parse(body)?;
            let is_it = (head.offset, head.length as usize) == (offset, data.len());
            if !is_it || writer_crcs(CHUNK, offset, data) != crcs {
                return Err("what was read has not its checksum".into());
            }
            self.reads.push(began.elapsed().as_nanos() as u64);
        } else {
            ChangeReply::parse(body)?;
            self.writes.push(began.elapsed().as_nanos() as u64);
        }
        Ok(true)
    }
}

/// What is shown of one kind, as fio names it.
fn direction(took: &mut Took, block: u32, span: Duration) -> Value {
    took.sort_unstable();
    let rate = took.len() as f64 / span.as_secs_f64();
    let mean = took.iter().sum::<u64>() as f64 / took.len().max(1) as f64;
    let at = |percent: f64| {
        let place = (took.len() as f64 * percent / 100.0).ceil() as usize;
        took.get(place.saturating_sub(1)).copied()
    };
    json!({
        "total_ios": took.len(),
        "iops": rate,
        "bw_bytes": rate * f64::from(block),
        "lat_ns": {
            "mean": mean,
            "percentile": { "50.000000": at(50.0), "99.000000": at(99.0) },
        },
    })
}
