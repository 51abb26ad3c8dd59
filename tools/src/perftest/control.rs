//! The set-up connection: lines of JSON over TCP, on which the ends agree, start rows together and
//! compare what they have counted.

use super::carrier::raw::RawEnd;
use super::error::{Differences, RunError};
use super::limits::{
    CONTROL_VERSION, DIAL_TIMEOUT, LAST_NOTES_MAX, NOTE_BYTES_MAX, PEER_TIMEOUT, WHY_WAIT,
};
use super::settings::Flag;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// What the ends tell each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub(crate) enum Note {
    /// First from both: how it was started.
    Hello { version: u32, flags: Vec<Flag> },
    /// From the server: connect your data here.
    Listening { addr: SocketAddr },
    /// This end's raw queue pairs.
    Raw(RawEnd),
    /// Where this end's data is.
    Address { text: String },
    /// Ready for the row of that number.
    Ready { row: u64 },
    /// Everything that this end sends in this row was delivered.
    Done { messages: u64, digest: u64 },
    /// What this end counted in this row.
    Counted(Counted),
    /// This end failed.
    Failed { why: String },
}

/// What an end tells of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Messages per second that it sent, in the measured part.
    pub(crate) sent_per_second: f64,
    /// The same for the best stretch; 0 where it was not looked for.
    pub(crate) peak_per_second: f64,
    /// Packets lost by its faults and in its socket; none where its device does not tell.
    pub(crate) packets_lost: Option<u64>,
    /// Chunks that it sent, and those of them that it sent again.
    pub(crate) chunks_sent: u64,
    pub(crate) chunks_retransmitted: u64,
    /// Ack frames that it sent, and tail-loss probes.
    pub(crate) acks_sent: u64,
    pub(crate) tail_probes: u64,
    /// Its retransmission timeouts.
    pub(crate) rtos: u64,
    /// Chunks that came to it twice.
    pub(crate) chunks_duplicate: u64,
    /// Times that its traffic, or the acks of it, left a path for another.
    pub(crate) reroutes: u64,
    /// Raw messages that never came to it; none where it cannot tell.
    pub(crate) messages_lost: Option<u64>,
    /// Processor time of the thread of an end that was only acted upon, in nanoseconds.
    pub(crate) serving_cpu_ns: Option<u64>,
}

impl Note {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "Hello",
            Self::Listening { .. } => "Listening",
            Self::Raw(_) => "Raw",
            Self::Address { .. } => "Address",
            Self::Ready { .. } => "Ready",
            Self::Done { .. } => "Done",
            Self::Counted(_) => "Counted",
            Self::Failed { .. } => "Failed",
        }
    }
}

/// One end of the set-up connection.
#[derive(Debug)]
pub(crate) struct Control {
    stream: TcpStream,
    inbox: Vec<u8>,
    blocking: bool,
}

const READ: &str = "reading from the set-up connection";
const WRITE: &str = "writing to the set-up connection";

impl Control {
    pub(crate) fn new(stream: TcpStream) -> Result<Self, RunError> {
        let prepared = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(PEER_TIMEOUT)))
            .and_then(|()| stream.set_nonblocking(false));
        prepared.map_err(|source| RunError::Socket { what: "preparing a socket", source })?;
        Ok(Self { stream, inbox: Vec::new(), blocking: true })
    }

    /// The two addresses of the connection, ours first.
    pub(crate) fn addrs(&self) -> Result<(IpAddr, IpAddr), RunError> {
        let both = self.stream.local_addr().and_then(|ours| Ok((ours, self.stream.peer_addr()?)));
        let (ours, theirs) = both.map_err(|source| RunError::socket(READ, source))?;
        Ok((ours.ip().to_canonical(), theirs.ip().to_canonical()))
    }

    /// What is readable when a note is there, or the peer has gone.
    pub(crate) fn file(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// The same file, for who waits for it and others.
    pub(crate) fn file_to_keep(&self) -> Result<OwnedFd, RunError> {
        let file = self.stream.as_fd().try_clone_to_owned();
        file.map_err(|source| RunError::socket(READ, source))
    }

    pub(crate) fn send(&mut self, note: &Note) -> Result<(), RunError> {
        let mut line = serde_json::to_vec(note).map_err(RunError::NotOurs)?;
        line.push(b'\n');
        self.block(true)?;
        self.stream.write_all(&line).map_err(|source| RunError::socket(WRITE, source))
    }

    /// Tells the peer that this end has failed. It may be gone: that is no further error.
    pub(crate) fn send_failure(&mut self, error: &RunError) {
        let _told = self.send(&Note::Failed { why: error.to_string() });
    }

    /// The next note, if it is there.
    pub(crate) fn try_recv(&mut self) -> Result<Option<Note>, RunError> {
        loop {
            if let Some(note) = self.take()? {
                return Ok(Some(note));
            }
            self.block(false)?;
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next note, within the time that a living peer needs.
    pub(crate) fn recv(&mut self) -> Result<Note, RunError> {
        loop {
            if let Some(note) = self.take()? {
                return Ok(note);
            }
            self.block(true)?;
            if !self.fill()? {
                return Err(RunError::PeerSilent(PEER_TIMEOUT));
            }
        }
    }

    /// What a peer that has left said had failed, if it said so.
    pub(crate) fn last_words(&mut self) -> Option<RunError> {
        // It may live, and wait for ours.
        self.stream.set_read_timeout(Some(WHY_WAIT)).ok()?;
        for _ in 0..LAST_NOTES_MAX {
            match self.recv() {
                Ok(_) => {}
                Err(error @ RunError::PeerFailed(_)) => return Some(error),
                Err(_) => break,
            }
        }
        None
    }

    /// The next note, which must be one that `pick` wants.
    pub(crate) fn expect<T>(
        &mut self,
        wanted: &'static str,
        pick: impl FnOnce(&Note) -> Option<T>,
    ) -> Result<T, RunError> {
        let note = self.recv()?;
        pick(&note).ok_or_else(|| RunError::OutOfTurn { wanted, got: note.name() })
    }

    fn block(&mut self, blocking: bool) -> Result<(), RunError> {
        if self.blocking != blocking {
            let set = self.stream.set_nonblocking(!blocking);
            set.map_err(|source| RunError::socket(READ, source))?;
            self.blocking = blocking;
        }
        Ok(())
    }

    /// Reads once; false when nothing is there.
    fn fill(&mut self) -> Result<bool, RunError> {
        let mut bytes = [0; 4096];
        match uninterrupted(|| self.stream.read(&mut bytes)) {
            Ok(0) => Err(RunError::PeerGone("it closed the set-up connection".to_owned())),
            Ok(count) => {
                self.inbox.extend_from_slice(&bytes[..count]);
                Ok(true)
            }
            Err(error) if is_pause(&error) => Ok(false),
            Err(error) => Err(RunError::socket(READ, error)),
        }
    }

    /// Takes a whole line from what was read.
    fn take(&mut self) -> Result<Option<Note>, RunError> {
        let Some(end) = self.inbox.iter().position(|&byte| byte == b'\n') else {
            let too_long = self.inbox.len() > NOTE_BYTES_MAX;
            return if too_long { Err(RunError::BadFrame) } else { Ok(None) };
        };
        let note = serde_json::from_slice(&self.inbox[..end]).map_err(RunError::NotOurs)?;
        self.inbox.drain(..=end);
        match note {
            Note::Failed { why } => Err(RunError::PeerFailed(why)),
            note => Ok(Some(note)),
        }
    }
}

/// Whether a socket call only says that there is nothing to do yet.
pub(crate) fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut)
}

/// Does a socket call again that a signal interrupted. One with a timeout ends so when the process
/// was stopped and goes on, without any handler: its time is not over then.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ended => return ended,
        }
    }
}

/// Listens on `bind`, or on every address that the system has.
pub(crate) fn listen(bind: Option<IpAddr>, port: u16) -> Result<TcpListener, RunError> {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let any_v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let error = |addr: SocketAddr, source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => RunError::PortInUse(addr),
        _ => RunError::Listen { addr, source },
    };
    match bind {
        Some(ip) => {
            let addr = SocketAddr::from((ip, port));
            TcpListener::bind(addr).map_err(|source| error(addr, source))
        }
        // Without IPv6 in the kernel the first is refused; a port in use is refused by both.
        None => TcpListener::bind(any)
            .or_else(|_| TcpListener::bind(any_v4))
            .map_err(|source| error(any_v4, source)),
    }
}

/// A host that has no port of its own.
fn bracketed(host: &str) -> String {
    let is_v6 = host.contains(':') && !host.starts_with('[');
    if is_v6 { format!("[{host}]") } else { host.to_owned() }
}

/// Connects to the server, and asks again for a while where nobody listens yet.
pub(crate) fn dial(host: &str, port: u16) -> Result<TcpStream, RunError> {
    let resolve = |source| RunError::Resolve { host: host.to_owned(), source };
    let addrs: Vec<SocketAddr> =
        towpath_transport::resolve(&bracketed(host), Some(port)).map_err(resolve)?;
    let start = Instant::now();
    loop {
        match TcpStream::connect(&addrs[..]) {
            Ok(stream) => return Ok(stream),
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && start.elapsed() < DIAL_TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(source) => {
                return Err(RunError::Dial { host: host.to_owned(), port, source });
            }
        }
    }
}

/// The first words: both ends say how they were started, and both compare.
pub(crate) fn agree(control: &mut Control, ours: Vec<Flag>, client: bool) -> Result<(), RunError> {
    control.send(&Note::Hello { version: CONTROL_VERSION, flags: ours.clone() })?;
    let (version, theirs) = control.expect("Hello", |note| match note {
        Note::Hello { version, flags } => Some((*version, flags.clone())),
        _ => None,
    })?;
    if version != CONTROL_VERSION {
        return Err(RunError::Version { ours: CONTROL_VERSION, theirs: version });
    }
    let differences = if client {
        Differences::between(&ours, &theirs)
    } else {
        Differences::between(&theirs, &ours)
    };
    if differences.0.is_empty() { Ok(()) } else { Err(RunError::Disagree(differences)) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Both ends of a set-up connection.
    pub(crate) fn pair() -> (Control, Control) {
        let listener = listen(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (Control::new(near).unwrap(), Control::new(far).unwrap())
    }

    impl Control {
        /// Until something of the peer's is there to be read.
        pub(crate) fn wait_for_a_note(&mut self) {
            self.block(true).unwrap();
            self.stream.peek(&mut [0]).unwrap();
        }
    }

    #[test]
    fn a_call_that_a_signal_interrupts_is_made_again_and_its_time_is_not_over() {
        let mut ends = [io::ErrorKind::Interrupted, io::ErrorKind::Interrupted].into_iter();
        let got = uninterrupted(|| ends.next().map_or(Ok(7), |kind| Err(kind.into())));
        assert_eq!(got.ok(), Some(7));
        let late = uninterrupted(|| -> io::Result<()> { Err(io::ErrorKind::TimedOut.into()) });
        assert!(late.is_err_and(|error| is_pause(&error)));
        assert!(!is_pause(&io::ErrorKind::Interrupted.into()));
    }

    #[test]
    fn notes_arrive_in_order_and_nothing_is_there_afterwards() {
        let (mut near, mut far) = pair();
        assert_eq!(far.try_recv().unwrap(), None);
        near.send(&Note::Ready { row: 1 }).unwrap();
        near.send(&Note::Done { messages: 5, digest: u64::MAX }).unwrap();
        assert_eq!(far.recv().unwrap(), Note::Ready { row: 1 });
        assert_eq!(far.recv().unwrap(), Note::Done { messages: 5, digest: u64::MAX });
        assert_eq!(far.try_recv().unwrap(), None);
    }

    #[test]
    fn a_failure_and_an_end_are_errors_that_say_so() {
        let (mut near, mut far) = pair();
        near.send_failure(&RunError::Digest);
        assert!(matches!(far.recv(), Err(RunError::PeerFailed(_))));
        near.send(&Note::Ready { row: 1 }).unwrap();
        near.send_failure(&RunError::Digest);
        assert!(matches!(far.last_words(), Some(RunError::PeerFailed(_))));
        drop(near);
        assert!(far.last_words().is_none());
        assert!(matches!(far.recv(), Err(RunError::PeerGone(_))));
    }

    #[test]
    fn what_is_no_note_is_refused() {
        let (mut near, mut far) = pair();
        near.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(matches!(far.recv(), Err(RunError::NotOurs(_))));
    }

    #[test]
    fn a_line_without_end_is_refused_at_the_limit() {
        let (mut near, mut far) = pair();
        let sender = std::thread::spawn(move || near.stream.write_all(&vec![b' '; 2 << 16]));
        assert!(matches!(far.recv(), Err(RunError::BadFrame)));
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn flags_that_differ_are_named_at_both_ends() {
        let flag = |value: &str| vec![Flag { name: "-s".to_owned(), value: value.to_owned() }];
        let (mut near, mut far) = pair();
        let server = std::thread::spawn(move || agree(&mut far, flag("4096"), false));
        let client = agree(&mut near, flag("65536"), true);
        let text = "the ends do not agree (-s: client 65536, server 4096); start both with the \
                    same flags";
        assert_eq!(client.unwrap_err().to_string(), text);
        assert_eq!(server.join().unwrap().unwrap_err().to_string(), text);
    }

    #[test]
    fn a_port_in_use_is_said_so() {
        let first = listen(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
        let port = first.local_addr().unwrap().port();
        let second = listen(Some(Ipv4Addr::LOCALHOST.into()), port);
        assert!(matches!(second, Err(RunError::PortInUse(_))));
    }
}
