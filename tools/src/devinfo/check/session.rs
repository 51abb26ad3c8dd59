//! One link to the end that serves, and what is tried on it.

use super::rows::{Figure, Tried};
use super::{ANSWER_BYTES_MAX, Opened, PROTOCOL, open_device};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use towpath_transport::{
    Buf, CarrierChoice, ChannelId, DeviceChoice, Endpoint, EndpointConfig, Event, Fallback, Grant,
    LinkId, Nanos, OpOptions, OpOutcome, Outcome, PathState, Place, SendOptions,
};
use towpath_verbs::{Device, QpState};

/// How long anything may take before it counts as not working.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long long messages are sent, and how many bytes at most.
const LOAD_TIME: Duration = Duration::from_secs(1);
const LOAD_BYTES_MAX: u64 = 1 << 30;

/// Bytes of a long message, and how many are under way at a time.
const LONG_BYTES: usize = 64 << 10;
const LONG_DEPTH: usize = 32;

/// Round trips that a median is of, or as many as fit in this time.
const ROUND_TRIPS: usize = 1_000;
const ROUND_TRIPS_TIME: Duration = Duration::from_secs(1);

/// Messages that have to come back as they were.
const ECHOES: usize = 64;

/// Bytes that are written to the peer's memory and read back, and where the word lies behind them.
const RANGE_BYTES: usize = 4096;
const WORD_AT: u32 = RANGE_BYTES as u32;

pub(super) struct Session {
    endpoint: Endpoint<Opened>,
    link: Option<LinkId>,
    channel: Option<ChannelId>,
    grant: Option<Grant>,
    under_way: usize,
    answers: Vec<Vec<u8>>,
    done: Option<(OpOutcome, Option<u64>, Option<Buf>)>,
    failed: Option<String>,
}

impl Session {
    /// A link over this carrier and nothing else.
    pub(super) fn open(
        choice: &DeviceChoice,
        (local, peer): (SocketAddr, SocketAddr),
        carrier: CarrierChoice,
    ) -> Result<Self, String> {
        let config = EndpointConfig::new()
            .app_protocol(PROTOCOL)
            .carrier(carrier)
            .fallback(Fallback::None)
            .links_max(1)
            .icrc(choice.icrc)
            .send_pools(&[(ANSWER_BYTES_MAX, 64), (LONG_BYTES, LONG_DEPTH)]);
        let device = open_device(choice, local.ip(), &config)?;
        let mut endpoint = Endpoint::new(device, config).map_err(|error| error.to_string())?;
        endpoint.connect(peer).map_err(|error| error.to_string())?;
        let mut session = Self {
            endpoint,
            link: None,
            channel: None,
            grant: None,
            under_way: 0,
            answers: Vec::new(),
            done: None,
            failed: None,
        };
        session.until("a link with a channel", true, |session| session.channel.is_some())?;
        Ok(session)
    }

    pub(super) fn endpoint(&self) -> &Endpoint<Opened> {
        &self.endpoint
    }

    pub(super) fn link(&self) -> Result<LinkId, String> {
        self.link.ok_or_else(|| "there is no link".to_owned())
    }

    fn turn(&mut self) -> bool {
        let Self { endpoint, link, channel, grant, under_way, answers, done, failed } = self;
        endpoint.turn(|endpoint, event| match event {
            Event::Connected { link: up, .. } => {
                *link = Some(up);
                if let Err(error) = endpoint.open_channel(up, true) {
                    *failed = Some(error.to_string());
                }
            }
            Event::ConnectFailed { error, .. } => *failed = Some(error.to_string()),
            Event::ChannelOpened { channel: opened, .. } => *channel = Some(opened),
            Event::Granted { grant: given, .. } => *grant = Some(given),
            Event::Sent { outcome, .. } => {
                *under_way -= 1;
                if outcome != Outcome::Delivered {
                    *failed = Some(format!("a message was not delivered: {outcome:?}"));
                }
            }
            Event::Message(message) => {
                answers.push(message.to_vec());
                endpoint.release(message);
            }
            Event::OpDone { outcome, word, buf, .. } => *done = Some((outcome, word, buf)),
            Event::LinkDown { reason, .. } => {
                *failed = Some(format!("the link is down: {reason:?}"));
            }
            _ => {}
        })
    }

    /// Goes on until `done`, asleep or polling where there is nothing to do.
    fn until(
        &mut self,
        what: &str,
        sleeps: bool,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        let start = Instant::now();
        while !done(self) {
            if let Some(why) = self.failed.take() {
                return Err(why);
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("waited {} s in vain for {what}", PATIENCE.as_secs()));
            }
            if !self.turn() && sleeps {
                self.endpoint.wait(Nanos::from_millis(10));
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (link, channel) = (self.link()?, self.channel.ok_or("there is no channel")?);
        let buf = self.endpoint.copy(bytes).map_err(|error| error.to_string())?;
        let sent = self.endpoint.send(link, channel, buf, SendOptions::new());
        sent.map_err(|rejected| rejected.to_string())?;
        self.under_way += 1;
        Ok(())
    }

    /// Sends bytes that come back as they were.
    fn ask(&mut self, bytes: &[u8], sleeps: bool) -> Result<(), String> {
        self.answers.clear();
        self.send(bytes)?;
        self.until("an answer", sleeps, |session| !session.answers.is_empty())?;
        if self.answers[0] == bytes {
            Ok(())
        } else {
            Err("an answer has other bytes than the question".to_owned())
        }
    }

    /// Messages of all lengths that are answered come back as they were, one after another.
    fn ask_many(&mut self) -> Result<(), String> {
        for number in 0..ECHOES {
            let len = 1 + number * (ANSWER_BYTES_MAX - 1) / (ECHOES - 1);
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + number) as u8).collect();
            self.ask(&bytes, true)?;
        }
        Ok(())
    }

    /// Messages that come back, and long ones one way as fast as it goes.
    pub(super) fn load(&mut self) -> Tried {
        self.ask_many()?;
        let (start, bytes, mut sent) = (Instant::now(), vec![7; LONG_BYTES], 0);
        while start.elapsed() < LOAD_TIME && sent < LOAD_BYTES_MAX {
            while self.under_way < LONG_DEPTH && self.send(&bytes).is_ok() {
                sent += LONG_BYTES as u64;
            }
            let before = self.under_way;
            self.until("room", true, |session| session.under_way < before)?;
        }
        self.until("the last messages", true, |session| session.under_way == 0)?;
        let gbit_s = sent as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9;
        let stats = self.endpoint.stats(self.link()?).unwrap_or_default();
        let note = format!(
            "{ECHOES} messages came back as they were; {} MiB one way in messages of 64 KiB, {} of \
             {} chunks sent again",
            sent >> 20,
            stats.chunks_retransmitted,
            stats.chunks_sent
        );
        Ok((Some(Figure { value: gbit_s, unit: "Gb/s" }), note))
    }

    /// The median of round trips of eight bytes, polling or asleep in between.
    pub(super) fn round_trip(&mut self, sleeps: bool) -> Tried {
        let (start, mut spans) = (Instant::now(), Vec::new());
        while spans.len() < ROUND_TRIPS && (spans.is_empty() || start.elapsed() < ROUND_TRIPS_TIME)
        {
            let asked = Instant::now();
            self.ask(&[5; 8], sleeps)?;
            spans.push(asked.elapsed());
        }
        spans.sort_unstable();
        let median = spans[spans.len() / 2].as_secs_f64() * 1e6;
        let how = if sleeps { "the device woke this end each time" } else { "this end polled" };
        let note = format!("median of {} round trips of 8 bytes, {how}", spans.len());
        Ok((Some(Figure { value: median, unit: "us" }), note))
    }

    /// How many paths are good, once all had time to be.
    pub(super) fn paths(&mut self) -> Tried {
        let link = self.link()?;
        let is_good = |session: &Self| {
            session.endpoint.paths(link).all(|path| path.facts.state == PathState::Good)
        };
        // Some are held back on purpose where ports are fixed: they are asked for nothing.
        let is_used = |session: &Self| {
            session
                .endpoint
                .paths(link)
                .all(|path| matches!(path.facts.state, PathState::Good | PathState::Spare))
        };
        let _ = self.until("all paths", true, is_used);
        let count =
            |state| self.endpoint.paths(link).filter(|path| path.facts.state == state).count();
        let (good, spare) = (count(PathState::Good), count(PathState::Spare));
        let all = self.endpoint.paths(link).count();
        let ports: Vec<_> =
            self.endpoint.paths(link).map(|path| path.source_port.to_string()).collect();
        let mut note = format!("{good} of {all} paths are good, from ports {}", ports.join(", "));
        if spare > 0 {
            note += &format!("; {spare} held back");
        }
        if is_used(self) || is_good(self) {
            Ok((Some(Figure { value: good as f64, unit: "paths" }), note))
        } else {
            Err(note)
        }
    }

    /// The packets that the paths carry.
    pub(super) fn mtu(&self) -> Tried {
        let link = self.link()?;
        let agreed = self.endpoint.mtu_of(link).ok_or("the link has none")?;
        let found = self.endpoint.paths(link).map(|path| path.facts.mtu).min();
        let found = found.ok_or("the link has no paths")?;
        let note = format!("both ends can do {agreed}, the narrowest path carries {found}");
        if found < agreed {
            return Err(note);
        }
        Ok((Some(Figure { value: f64::from(found.bytes()), unit: "bytes" }), note))
    }

    /// Changes the source port of the first path's queue pair while it runs.
    pub(super) fn change_port(&mut self) -> Tried {
        let link = self.link()?;
        let used: Vec<u16> = self.endpoint.paths(link).map(|path| path.source_port).collect();
        let first = self.endpoint.paths(link).next().ok_or("the link has no paths")?;
        let free =
            (0..self.endpoint.device().caps().source_ports).find(|port| !used.contains(port));
        let port = free.ok_or("all source ports are taken by paths")?;
        let changed = self.endpoint.device_mut().set_source_port(first.qp_num, port);
        changed.map_err(|error| error.to_string())?;
        self.ask_many()?;
        let still_good = self.endpoint.paths(link).next().map(|path| path.facts.state);
        if still_good != Some(PathState::Good) {
            return Err("the device took the call, and the path does not work since".to_owned());
        }
        let _ = self.endpoint.device_mut().set_source_port(first.qp_num, first.source_port);
        let note = format!(
            "from port {} to {port} while it ran, and {ECHOES} messages came back since; which one \
             packets bear on the wire is not seen here",
            first.source_port
        );
        Ok((None, note))
    }

    /// Ends the queue pair of the last path, which both ends then replace.
    pub(super) fn replace_queue_pair(&mut self) -> Tried {
        let link = self.link()?;
        let (index, last) =
            self.endpoint.paths(link).enumerate().last().ok_or("the link has no paths")?;
        if index == 0 {
            return Err("the link has one path: no other one to tell the peer on".to_owned());
        }
        let before = last.facts.renewals;
        let start = Instant::now();
        let ended = self.endpoint.device_mut().modify_qp(last.qp_num, QpState::Err);
        ended.map_err(|error| error.to_string())?;
        // Messages go on meanwhile: a queue pair without receives of its own shows its error only
        // when something is sent on it.
        let is_replaced = |session: &Self| {
            session.endpoint.paths(link).nth(index).is_some_and(|path| {
                let works = matches!(path.facts.state, PathState::Good | PathState::Spare);
                path.facts.renewals > before && works
            })
        };
        while !is_replaced(self) {
            if start.elapsed() > PATIENCE {
                return Err(format!("no other one answered within {} s", PATIENCE.as_secs()));
            }
            self.ask(&[6; 1_000], true)?;
        }
        let took = start.elapsed().as_secs_f64() * 1e3;
        self.ask_many()?;
        let note = format!(
            "the queue pair of path {index} was put in error; both ends made another, which answers"
        );
        Ok((Some(Figure { value: took, unit: "ms" }), note))
    }

    /// Waits for the memory that the peer lets us reach.
    pub(super) fn reach(&mut self) -> Result<(), String> {
        self.until("the peer's memory", true, |session| session.grant.is_some())
    }

    /// Whether one-sided operations went as messages, which the peer's processor carries out.
    pub(super) fn goes_by_messages(&self) -> bool {
        let lane = self.link.and_then(|link| self.endpoint.lane(link));
        lane.is_some_and(|lane| lane.is_by_messages)
    }

    fn place(&self, offset: u32) -> Result<Place, String> {
        let grant = self.grant.as_ref().ok_or("the peer grants no memory")?;
        Ok(Place { link: self.link()?, grant: grant.id, offset })
    }

    fn outcome(&mut self) -> Result<(Option<u64>, Option<Buf>), String> {
        self.until("an operation", true, |session| session.done.is_some())?;
        match self.done.take() {
            Some((OpOutcome::Executed, word, buf)) => Ok((word, buf)),
            Some((outcome, ..)) => Err(format!("it ended so: {outcome:?}")),
            None => Err("it did not end".to_owned()),
        }
    }

    /// WRITE of a range, and READ of the same.
    pub(super) fn write_and_read(&mut self) -> Tried {
        let place = self.place(0)?;
        let bytes: Vec<u8> = (0..RANGE_BYTES).map(|at| (at * 7 + 3) as u8).collect();
        let start = Instant::now();
        let buf = self.endpoint.copy(&bytes).map_err(|error| error.to_string())?;
        let written = self.endpoint.write(place, buf, OpOptions::new());
        written.map_err(|rejected| rejected.to_string())?;
        let (_, buf) = self.outcome()?;
        let mut buf = buf.ok_or("a WRITE did not give its buffer back")?;
        buf.fill(0);
        let read = self.endpoint.read(place, RANGE_BYTES as u32, buf, OpOptions::new());
        read.map_err(|rejected| rejected.to_string())?;
        let (_, buf) = self.outcome()?;
        let took = start.elapsed().as_secs_f64() * 1e6;
        if buf.is_none_or(|buf| buf[..RANGE_BYTES] != bytes[..]) {
            return Err("what was read is not what was written".to_owned());
        }
        let note = format!("{RANGE_BYTES} bytes written to the peer and read back, at first use");
        Ok((Some(Figure { value: took, unit: "us" }), note))
    }

    /// FETCH_ADD and CMP_SWAP of a word of the peer.
    pub(super) fn atomics(&mut self) -> Tried {
        let place = self.place(WORD_AT)?;
        let mut words = Vec::new();
        for add in [5, 7] {
            let added = self.endpoint.fetch_add(place, add, OpOptions::new());
            added.map_err(|error| error.to_string())?;
            words.push(self.outcome()?.0);
        }
        let swapped = self.endpoint.cmp_swap(place, (12, 100), OpOptions::new());
        swapped.map_err(|error| error.to_string())?;
        words.push(self.outcome()?.0);
        if words != [Some(0), Some(5), Some(12)] {
            return Err(format!("a word was seen as {words:?}, and ought to be 0, 5 and 12"));
        }
        Ok((None, "two FETCH_ADDs and a CMP_SWAP of a word of the peer".to_owned()))
    }
}
