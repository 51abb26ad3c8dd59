//! Requests over a queue pair without Towpath, by SEND and RECV.

mod reads;

use super::{Transport, TransportError, Waiting};
use crate::limits::{
    RAW_NAP, RAW_PROGRESS_BUDGET, RAW_SLEEP_MAX, RAW_UNDER_WAY_DEFAULT, UNDER_WAY_MAX,
    VALUE_BYTES_MAX,
};
use crate::raw::{End, Grant, HELLO_BYTES, HelloError, RawKind, Slots, message_bytes_max};
use reads::Landing;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Prng};
use towpath_device_roce::RoceConfig;
use towpath_device_roce::udp::UdpLink;
use towpath_memory::Region;
use towpath_transport::{RoceUdp, UdpConfig};
use towpath_verbs::{
    Connect, CqNum, Device, QpInit, QpNum, RcAttr, SendOp, SendWr, UdAddress, Wc, WcStatus,
};

/// How long a request may wait for those before it to leave.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Receives for each request under way: a reply that came twice finds one as well.
const RECVS_PER_REQUEST: u32 = 2;

/// Idle turns of a client that polls, after which it looks whether the server is there.
const LOOK_EVERY_TURNS: u32 = 4096;

/// Completions that are taken at a time: all that one request makes, and more.
const BATCH: usize = 16;

/// A wr_id of a receive has this bit; the others are the slot.
const RECV: u64 = 1 << 63;

/// A wr_id of a READ has this bit; the others are its number.
const READ: u64 = 1 << 62;

/// How a client uses queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawClientConfig {
    /// By which service.
    pub kind: RawKind,
    /// How it waits for replies.
    pub waiting: Waiting,
    /// The longest value that it asks for; the server may allow less, and a datagram does.
    pub value_bytes_max: usize,
    /// Requests that it may have under way, 1 to [`UNDER_WAY_MAX`]; the server may allow fewer.
    pub under_way: u16,
}

impl RawClientConfig {
    /// Values as long as the server allows, and the default of requests under way.
    #[must_use]
    pub fn new(kind: RawKind, waiting: Waiting) -> Self {
        let under_way = RAW_UNDER_WAY_DEFAULT;
        Self { kind, waiting, value_bytes_max: VALUE_BYTES_MAX, under_way }
    }
}

/// A queue pair to a server, on a device of its own that the calling thread drives.
pub struct RawTransport<D> {
    device: D,
    addr: SocketAddr,
    config: RawClientConfig,
    cq: CqNum,
    prng: Prng,
    line: Option<Line>,
    /// Connections so far.
    lines: u64,
    landing: Option<Landing>,
    /// READs so far.
    reads: u64,
    scratch: Vec<u8>,
    /// Turns that moved nothing, one after the other.
    idle: u32,
}

/// A queue pair that is joined to the server's.
struct Line {
    /// Its end says that the server is gone.
    stream: TcpStream,
    qp: QpNum,
    slots: Slots,
    message_bytes_max: usize,
    /// Where datagrams go, and the number in each that says whose it is.
    datagrams: Option<(UdAddress, u32)>,
    /// Slots to send from.
    free: Vec<u32>,
    /// Slots with replies, and how long each is.
    received: VecDeque<(u32, u32)>,
    grant: Option<Grant>,
    /// How the READ with the last number ended; none while it is under way.
    read: Option<bool>,
}

impl<D> fmt::Debug for RawTransport<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, config, .. } = self;
        let mut shown = f.debug_struct("RawTransport");
        shown.field("addr", addr).field("config", config).finish_non_exhaustive()
    }
}

fn connect_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TransportError {
    TransportError::Connect(error.into())
}

fn gone(error: &dyn fmt::Display) -> TransportError {
    TransportError::Gone(error.to_string())
}

impl RawTransport<RoceUdp> {
    /// Connects from the address `from` of this host, on a NIC in userspace over UDP sockets.
    ///
    /// # Errors
    /// [`TransportError::Connect`]
    pub fn udp(
        from: IpAddr,
        addr: SocketAddr,
        config: RawClientConfig,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let link = UdpLink::bind(UdpConfig::new(from)).map_err(connect_error)?;
        let seed = RandomState::new().hash_one(0u64);
        let device = RoceUdp::new(link.into(), RoceConfig::default().seed(seed));
        Self::connect(device, addr, config, timeout)
    }
}

impl<D: Device<Memory = Region>> RawTransport<D> {
    /// Connects on a device that the caller has made, and that nobody else drives.
    ///
    /// # Errors
    /// [`TransportError::Connect`]
    pub fn connect(
        mut device: D,
        addr: SocketAddr,
        config: RawClientConfig,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let under_way = config.under_way.clamp(1, UNDER_WAY_MAX as u16);
        let config = RawClientConfig {
            under_way,
            value_bytes_max: config.value_bytes_max.min(VALUE_BYTES_MAX),
            ..config
        };
        if !config.kind.is_offered(&device.caps().verbs) {
            return Err(connect_error(format!("the device has no {:?}", config.kind)));
        }
        // Those of the queue pair before it may still be there.
        let depth = 2 * (2 + RECVS_PER_REQUEST) * u32::from(under_way);
        let cq = device.create_cq(depth).map_err(connect_error)?;
        let prng = Prng::new(RandomState::new().hash_one(Instant::now()));
        let (line, scratch) = (None, Vec::new());
        let (lines, landing, reads, idle) = (0, None, 0, 0);
        let mut made =
            Self { device, addr, config, cq, prng, line, lines, landing, reads, scratch, idle };
        made.open(timeout)?;
        Ok(made)
    }

    /// The device, for what it counts.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Bytes of the longest request and reply; none where there is no connection.
    #[must_use]
    pub fn message_bytes_max(&self) -> Option<usize> {
        self.line.as_ref().map(|line| line.message_bytes_max)
    }

    fn leave(&mut self) {
        if let Some(line) = self.line.take() {
            let _ = self.device.destroy_qp(line.qp);
            line.slots.free(&mut self.device);
        }
        if let Some(landing) = self.landing.take() {
            // It was registered there, or the device is gone with all that it had.
            let _ = self.device.dereg_mr(landing.keys.lkey);
        }
        let mut wcs = [Wc::default(); BATCH];
        while self.device.poll_cq(self.cq, &mut wcs) > 0 {}
    }

    fn open(&mut self, timeout: Duration) -> Result<(), TransportError> {
        self.leave();
        let stream = TcpStream::connect_timeout(&self.addr, timeout).map_err(connect_error)?;
        let kind = self.config.kind;
        let qkey = self.prng.next_u32() >> 1;
        let requests = u32::from(self.config.under_way);
        let init = QpInit::new(kind.qp_type(), self.cq)
            .depth(requests + 1, RECVS_PER_REQUEST * requests)
            .qkey(qkey);
        let qp = self.device.create_qp(&init).map_err(connect_error)?;
        let line = self.join(stream, (qp, qkey), timeout);
        if line.is_err() {
            let _ = self.device.destroy_qp(qp);
        }
        self.line = Some(line?);
        self.lines += 1;
        Ok(())
    }

    /// Tells the server of the queue pair, and joins it to the server's.
    fn join(
        &mut self,
        stream: TcpStream,
        (qp, qkey): (QpNum, u32),
        timeout: Duration,
    ) -> Result<Line, TransportError> {
        let RawClientConfig { kind, under_way, value_bytes_max, .. } = self.config;
        let way = SocketAddr::new(self.addr.ip(), self.device.local_addr().port());
        let ours = End {
            kind,
            mtu: self.device.path_mtu(Some(way)).mtu,
            qp_num: qp,
            psn: Psn::new(self.prng.next_u32()),
            qkey,
            message_bytes_max: message_bytes_max(value_bytes_max),
            under_way,
            addr: self.device.local_addr(),
            number: 0,
            grant: None,
        };
        let theirs = exchange(&stream, &ours, timeout).map_err(connect_error)?;
        let theirs = theirs.map_err(connect_error)?;
        if theirs.kind != kind || theirs.message_bytes_max > ours.message_bytes_max {
            return Err(connect_error(HelloError::Field("server's queue pair")));
        }
        let longest = theirs.message_bytes_max;
        let requests = u32::from(under_way.min(theirs.under_way));
        let count = RECVS_PER_REQUEST * requests;
        let slots = Slots::new(&mut self.device, (count, kind.qp_type()), longest, longest);
        let slots = slots.map_err(connect_error)?;
        let connect = Connect {
            dest: theirs.addr,
            dest_qp_num: theirs.qp_num,
            rq_psn: theirs.psn,
            sq_psn: ours.psn,
            path_mtu: theirs.mtu.min(ours.mtu),
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        let recvs: Vec<_> =
            (0..count).map(|slot| slots.recv(RECV | u64::from(slot), slot)).collect();
        let posted = self.device.post_recv(qp, &recvs).map_err(|bad| bad.error);
        if let Err(error) = posted.and_then(|()| self.device.connect_qp(qp, &connect)) {
            slots.free(&mut self.device);
            return Err(connect_error(error));
        }
        // Where it cannot, the end of the server is seen at the end of each sleep.
        let _ = self.device.watch_file(stream.as_raw_fd());
        let remote =
            UdAddress { dest: theirs.addr, remote_qpn: theirs.qp_num, remote_qkey: theirs.qkey };
        Ok(Line {
            stream,
            qp,
            slots,
            message_bytes_max: longest as usize,
            datagrams: (kind == RawKind::Ud).then_some((remote, theirs.number)),
            free: (0..requests).collect(),
            received: VecDeque::new(),
            grant: theirs.grant.filter(|_| kind == RawKind::Rc),
            read: None,
        })
    }

    /// Takes in what has come; whether anything had.
    fn turn(&mut self) -> Result<bool, TransportError> {
        let Some(line) = &mut self.line else { return Err(gone(&"there is no connection")) };
        let moved = self.device.progress(RAW_PROGRESS_BUDGET);
        let mut wcs = [Wc::default(); BATCH];
        let count = self.device.poll_cq(self.cq, &mut wcs);
        for wc in wcs[..count].iter().filter(|wc| wc.qp_num == line.qp) {
            if wc.status != WcStatus::Success {
                return Err(gone(&format_args!("the queue pair failed: {:?}", wc.status)));
            }
            if wc.wr_id & READ != 0 {
                // One that was given up has another number.
                if wc.wr_id == READ | self.reads {
                    line.read = Some(true);
                }
                continue;
            }
            let slot = (wc.wr_id & !RECV) as u32;
            match wc.wr_id & RECV {
                0 => line.free.push(slot),
                _ => line.received.push_back((slot, wc.byte_len)),
            }
        }
        Ok(moved + count > 0)
    }

    /// After a turn that found nothing: sleeps, where the client does, and looks now and then
    /// whether the server is still there.
    fn rest(&mut self, until: Instant) -> Result<(), TransportError> {
        self.idle = self.idle.wrapping_add(1);
        if self.config.waiting == Waiting::Polling {
            return if self.idle.is_multiple_of(LOOK_EVERY_TURNS) { self.look() } else { Ok(()) };
        }
        // Nothing has come since the last sleep: it ended for the server's connection, or at its
        // end.
        if self.idle > 1 {
            self.look()?;
        }
        let left = Nanos::from(until.saturating_duration_since(Instant::now()));
        let span = left.min(RAW_SLEEP_MAX);
        if !self.device.wait(span) && self.device.waker().is_none() {
            std::thread::sleep(span.min(RAW_NAP).into());
        }
        Ok(())
    }

    /// Whether the server is there.
    fn look(&self) -> Result<(), TransportError> {
        let Some(line) = &self.line else { return Err(gone(&"there is no connection")) };
        match line.stream.peek(&mut [0]) {
            Ok(0) => Err(gone(&"the server closed it")),
            Ok(_) => Err(gone(&"the server said more than it should")),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(gone(&error)),
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Tells the server of an end, and hears of its own. The connection does not block afterwards.
fn exchange(
    mut stream: &TcpStream,
    ours: &End,
    timeout: Duration,
) -> io::Result<Result<End, HelloError>> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(timeout))?;
    let (mut out, mut answer, mut have) = (Vec::new(), [0; HELLO_BYTES], 0);
    ours.emit(&mut out);
    stream.write_all(&out)?;
    let until = Instant::now() + timeout;
    while have < HELLO_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut answer[have..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if let Err(error) = End::parse(&answer[..have])
            && !matches!(error, HelloError::Short(_))
        {
            return Ok(Err(error));
        }
    }
    stream.set_nonblocking(true)?;
    Ok(End::parse(&answer))
}

impl<D: Device<Memory = Region> + Send> Transport for RawTransport<D> {
    fn send(&mut self, request: &[u8]) -> Result<(), TransportError> {
        let until = Instant::now() + SEND_TIMEOUT;
        let slot = loop {
            let Some(line) = &mut self.line else { return Err(gone(&"there is no connection")) };
            let (bytes, max) = (request.len(), line.message_bytes_max);
            if bytes > max {
                return Err(TransportError::TooLong { bytes, max });
            }
            if let Some(slot) = line.free.pop() {
                break slot;
            }
            if Instant::now() >= until {
                return Err(gone(&"no request has left for long"));
            }
            if !self.turn()? {
                self.rest(until)?;
            }
        };
        let Some(line) = &mut self.line else { return Err(gone(&"there is no connection")) };
        let list = line.slots.put(slot, request).ok_or_else(|| gone(&"there is no slot for it"))?;
        let op = match line.datagrams {
            Some((_, imm_data)) => SendOp::SendWithImm { imm_data },
            None => SendOp::Send,
        };
        let mut wr = SendWr::new(u64::from(slot), op, list);
        wr.ud = line.datagrams.map(|(remote, _)| remote);
        wr.flags.solicited = true;
        self.device.post_send(line.qp, &[wr]).map_err(|bad| gone(&bad))?;
        self.device.progress(0);
        Ok(())
    }

    fn receive(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let until = Instant::now() + timeout;
        loop {
            let Some(line) = &mut self.line else { return Err(gone(&"there is no connection")) };
            if let Some((slot, byte_len)) = line.received.pop_front() {
                self.idle = 0;
                self.scratch.clear();
                line.slots.take(slot, byte_len, &mut self.scratch);
                let recv = line.slots.recv(RECV | u64::from(slot), slot);
                self.device.post_recv(line.qp, &[recv]).map_err(|bad| gone(&bad))?;
                take(&self.scratch);
                return Ok(true);
            }
            if self.turn()? {
                continue;
            }
            if Instant::now() >= until {
                self.look()?;
                return Ok(false);
            }
            self.rest(until)?;
        }
    }

    fn renew(&mut self, timeout: Duration) -> Result<(), TransportError> {
        self.open(timeout)
    }
}
