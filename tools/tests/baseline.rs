//! The baseline, over our rpc and over gRPC: what was written is read, what is no request is
//! refused, and the passes that it makes are those that it is measured for.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use towpath_base::Prng;
use towpath_base::passes::{Counts, Pass};
use towpath_fastpath::ChunkId;
use towpath_fastpath::slice::writer_crcs;
use towpath_fastpath::wire::PROTOCOL;
use towpath_rpc::{Call, Outgoing, RpcClient, Status};
use towpath_tools::baseline::grpc::{SlicesClient, serve};
use towpath_tools::baseline::{
    NullStore, ProstClient, ProstDone, ProstServer, ReadReply, Served, SliceOp, SliceOutcome,
    SliceStore, Verdict, WRITE,
};
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkId, Nanos, RoceUdp, UdpConfig,
};

type Udp = Endpoint<RoceUdp>;

const CHUNK: ChunkId = ChunkId(0xba5e);

/// Passes are counted for the whole process, so tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store in memory, which answers from another thread where it is told to.
#[derive(Clone, Default)]
struct Kept {
    chunks: Arc<Mutex<BTreeMap<ChunkId, Vec<u8>>>>,
    is_elsewhere: bool,
}

impl SliceStore for Kept {
    fn start(&self, op: SliceOp, done: Box<dyn FnOnce(SliceOutcome) + Send>) {
        let kept = self.clone();
        let work = move || done(kept.serve(op));
        if self.is_elsewhere {
            std::thread::spawn(work);
        } else {
            work();
        }
    }
}

impl Kept {
    fn serve(&self, op: SliceOp) -> SliceOutcome {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        match op {
            SliceOp::Write { chunk, offset, slices, crcs } => {
                assert_eq!(crcs, writer_crcs(chunk, offset, &slices), "as the fast path has them");
                let (bytes, offset) = (chunks.entry(chunk).or_default(), offset as usize);
                bytes.resize(bytes.len().max(offset + slices.len()), 0);
                bytes[offset..offset + slices.len()].copy_from_slice(&slices);
                SliceOutcome::Written
            }
            SliceOp::Read { chunk, offset, length } => {
                let range = offset as usize..offset as usize + length as usize;
                match chunks.get(&chunk).and_then(|bytes| bytes.get(range)) {
                    Some(bytes) => SliceOutcome::Read(bytes.to_vec()),
                    None => SliceOutcome::Not(Verdict::Failed),
                }
            }
        }
    }
}

fn endpoint() -> Udp {
    let config = EndpointConfig::new().app_protocol(PROTOCOL).links_max(2);
    Endpoint::udp(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), config).expect("loopback")
}

/// A server over our rpc on a thread of its own.
struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(store: impl SliceStore) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, (sender, addr)) = (Arc::clone(&stop), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            let mut endpoint = endpoint();
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            sender.send(endpoint.listen(any).expect("a free port")).expect("a test that waits");
            let mut server = ProstServer::new(&endpoint, store);
            while !seen.load(Ordering::Relaxed) {
                let busy = endpoint.turn(|endpoint, event| server.on_event(endpoint, event));
                if server.answer(&mut endpoint) > 0 {
                    endpoint.flush();
                } else if !busy {
                    endpoint.wait(Nanos::from_millis(1));
                }
            }
        });
        let addr = addr.recv().expect("the server's address");
        Self { addr, stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("the server's thread").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
    }
}

fn connect(server: SocketAddr) -> (Udp, LinkId, ChannelId) {
    let mut endpoint = endpoint();
    endpoint.connect(server).expect("a server that listens");
    let mut open = None;
    while open.is_none() {
        endpoint.turn(|endpoint, event| match event {
            Event::Connected { link, .. } => {
                endpoint.open_channel(link, false).map(drop).expect("a channel");
            }
            Event::ChannelOpened { link, channel, .. } => open = Some((link, channel)),
            Event::ConnectFailed { error, .. } => panic!("{error}"),
            _ => {}
        });
    }
    let (link, channel) = open.expect("it is open");
    (endpoint, link, channel)
}

/// A client of either kind, one request at a time.
trait Client {
    fn write(&mut self, offset: u64, data: &[u8]) -> Verdict;
    fn read(&mut self, offset: u64, length: usize) -> ReadReply;
}

struct OverRpc {
    endpoint: Udp,
    client: ProstClient,
}

impl OverRpc {
    fn connect(server: &Server) -> Self {
        let (endpoint, link, channel) = connect(server.addr);
        Self { endpoint, client: ProstClient::new(link, channel) }
    }

    fn reply(&mut self, token: u64) -> Served {
        let Self { endpoint, client } = self;
        endpoint.flush();
        loop {
            endpoint.turn(|endpoint, event| drop(client.on_event(endpoint, event)));
            client.expire(endpoint);
            if let Some(ProstDone { token: ended, result }) = client.poll(endpoint) {
                assert_eq!(ended, token);
                return result.expect("a reply");
            }
        }
    }
}

impl Client for OverRpc {
    fn write(&mut self, offset: u64, data: &[u8]) -> Verdict {
        let Self { endpoint, client } = self;
        let started = client.start_write(endpoint, (CHUNK, offset), data.to_vec().into(), 3);
        started.expect("it is sent");
        match self.reply(3) {
            Served::Write(reply) => reply.verdict(),
            Served::Read(reply) => panic!("{reply:?}"),
        }
    }

    fn read(&mut self, offset: u64, length: usize) -> ReadReply {
        let Self { endpoint, client } = self;
        let started = client.start_read(endpoint, (CHUNK, offset), length as u32, 4);
        started.expect("it is sent");
        match self.reply(4) {
            Served::Read(reply) => reply,
            Served::Write(reply) => panic!("{reply:?}"),
        }
    }
}

struct OverGrpc {
    runtime: tokio::runtime::Runtime,
    client: SlicesClient,
}

impl OverGrpc {
    fn connect(store: impl SliceStore) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let client = runtime.block_on(async {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let (addr, serving) = serve(any, store, std::future::pending()).expect("a free port");
            tokio::spawn(serving);
            SlicesClient::connect(addr).await.expect("a server that listens")
        });
        Self { runtime, client }
    }
}

impl Client for OverGrpc {
    fn write(&mut self, offset: u64, data: &[u8]) -> Verdict {
        let written = self.client.write((CHUNK, offset), data.to_vec().into());
        self.runtime.block_on(written).expect("a reply").verdict()
    }

    fn read(&mut self, offset: u64, length: usize) -> ReadReply {
        let read = self.client.read((CHUNK, offset), length as u32);
        self.runtime.block_on(read).expect("a reply")
    }
}

/// Writes ranges of all kinds, and reads each back with what is around it.
fn exchange(client: &mut impl Client) {
    let seed = 71;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut model: Vec<u8> = Vec::new();
    for round in 0..60 {
        let offset = prng.below(20) * 4096 + prng.below(2) * prng.below(4096);
        let longest = [100, 4096, 9000, 200_000][prng.below(4) as usize];
        let mut bytes = vec![0; prng.between(1, longest) as usize];
        prng.fill(&mut bytes);
        let range = offset as usize..offset as usize + bytes.len();
        assert_eq!(client.write(offset, &bytes), Verdict::Done, "round {round}");
        model.resize(model.len().max(range.end), 0);
        model[range.clone()].copy_from_slice(&bytes);
        let from = prng.below(range.end as u64) as usize;
        let length = prng.between(1, (model.len() - from).min(200_000) as u64) as usize;
        let reply = client.read(from as u64, length);
        assert_eq!(reply.verdict(), Verdict::Done, "round {round}");
        assert!(reply.data == model[from..from + length], "round {round}");
    }
    let past = client.read(model.len() as u64, 4096);
    assert_eq!((past.verdict(), past.data.len()), (Verdict::Failed, 0), "nothing is there");
}

#[test]
fn what_is_written_over_our_rpc_is_read_again_whoever_answers() {
    let _turn = turn();
    for is_elsewhere in [false, true] {
        let server = Server::start(Kept { is_elsewhere, ..Kept::default() });
        exchange(&mut OverRpc::connect(&server));
    }
}

#[test]
fn what_is_written_over_grpc_is_read_again_whoever_answers() {
    let _turn = turn();
    for is_elsewhere in [false, true] {
        exchange(&mut OverGrpc::connect(Kept { is_elsewhere, ..Kept::default() }));
    }
}

#[test]
fn what_is_no_request_is_refused_and_the_server_goes_on() {
    let _turn = turn();
    let server = Server::start(Kept::default());
    let (mut endpoint, link, channel) = connect(server.addr);
    let mut rpc = RpcClient::new(link, channel);
    let mut ask = |method: u16, data: &[u8]| {
        let mut out = Outgoing::new(&endpoint, 0, data.len()).expect("a buffer");
        out.set_data(endpoint.copy(data).expect("a buffer"));
        let deadline = endpoint.now() + Nanos::from_secs(10);
        let call = Call { method, token: 0, deadline, ask_fate: false };
        rpc.call(&mut endpoint, call, out).expect("it is sent");
        endpoint.flush();
        loop {
            endpoint.turn(|endpoint, event| drop(rpc.on_event(endpoint, event)));
            if let Some(ended) = rpc.poll() {
                let parcel = ended.result.expect("a response");
                let data = parcel.data_pieces().flat_map(|(_, bytes)| bytes.to_vec()).collect();
                let status = parcel.header().status;
                endpoint.release(parcel.into_message());
                return (status, data);
            }
        }
    };
    let malformed: (Status, Vec<u8>) = (Status::OK, vec![8, Verdict::Malformed as u8]);
    // A length that runs past the end, and a write that names no chunk.
    assert_eq!(ask(WRITE, &[0x22, 0xff, 0xff, 0x7f, 1]), malformed);
    assert_eq!(ask(WRITE, &[0x10, 5]), malformed);
    assert_eq!(ask(7, &[1]).0, Status::UNSUPPORTED);
    let mut prng = Prng::new(72);
    for _ in 0..200 {
        let mut bytes = vec![0; prng.between(1, 300) as usize];
        prng.fill(&mut bytes);
        let (status, answer) = ask(WRITE, &bytes);
        assert!(status == Status::OK && answer != [8, Verdict::Done as u8], "{bytes:?}");
    }
    assert_eq!(OverRpc::connect(&server).write(0, b"still here"), Verdict::Done);
}

#[test]
fn the_null_store_takes_what_has_its_checksums_and_reads_zeros() {
    let _turn = turn();
    let mut client = OverGrpc::connect(NullStore);
    assert_eq!(client.write(5000, &[7; 9000]), Verdict::Done);
    let reply = client.read(5000, 9000);
    assert_eq!((reply.verdict(), reply.data), (Verdict::Done, vec![0; 9000].into()));
    let (sender, outcome) = std::sync::mpsc::channel();
    let done = Box::new(move |outcome| sender.send(outcome).expect("a test that waits"));
    let write = SliceOp::Write { chunk: CHUNK, offset: 0, slices: vec![1; 5000], crcs: vec![1] };
    NullStore.start(write, done);
    assert_eq!(outcome.recv(), Ok(SliceOutcome::Not(Verdict::Malformed)));
}

/// docs/fastpath.md section 2 has these numbers.
#[test]
fn a_byte_of_a_write_over_protobuf_is_summed_five_times_and_copied_three_times() {
    let _turn = turn();
    let server = Server::start(NullStore);
    let mut client = OverRpc::connect(&server);
    let data = vec![5; 192 << 10];
    let (mut crc, mut copy) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..20 {
        let before = Counts::now();
        assert_eq!(client.write(0, &data), Verdict::Done);
        let counted = Counts::now().since(&before);
        let of = |pass| counted.of(pass) as f64 / data.len() as f64;
        // What is sent again is touched again.
        (crc, copy) = (crc.min(of(Pass::Crc)), copy.min(of(Pass::Copy)));
    }
    println!("{crc:.3} sums, {copy:.3} copies");
    assert!((5.0..5.1).contains(&crc), "{crc}");
    assert!((3.0..3.1).contains(&copy), "{copy}");
}
