//! What can go wrong, whose fault it is, and what to do about it.

use super::args::values::Connection;
use super::settings::Flag;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use towpath_memory::MemoryError;
use towpath_status::SocketError;
use towpath_transport::{
    ChannelError, ConnectError, DeviceName, DownReason, EndpointError, LaneError, ListenError,
    OpOutcome, Outcome, PollFdError, SubmitError,
};
use towpath_verbs::{BadWr, Mtu, PathMtu, QpNum, VerbError, WcStatus};

/// A command line that cannot be meant.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum UsageError {
    /// Too much under way.
    #[error("-q {qps} times -t {tx_depth} is more than {max} messages under way; lower one")]
    UnderWay { qps: u32, tx_depth: u32, max: u32 },
    /// The margins eat the run.
    #[error("-f {margin:?} at each end leaves nothing of -D {span:?}; lower -f or raise -D")]
    Margin { span: Duration, margin: Duration },
    /// Faults belong to our packet link.
    #[error(
        "--loss and the other faults are for -c UC; for kernel TCP use `tc qdisc ... netem` on \
         the interface"
    )]
    TcpFaults,
    /// Nor can a real device be told to lose packets.
    #[error(
        "--loss and the other faults are for -d roce; for {0} use `tc qdisc ... netem` on its \
         network interface"
    )]
    DeviceFaults(DeviceName),
    /// READ and atomics are RC's.
    #[error(
        "raw READ and atomics need RC queue pairs, whose device makes them reliable: use -c RC \
         instead of {0}, or leave --raw out"
    )]
    RcOnly(Connection),
    /// A lane is of a link.
    #[error(
        "READ and atomics do not go over kernel TCP: use -c UC or RC, the link that they belong to"
    )]
    LaneTcp,
    /// And each link has one.
    #[error("-q {qps} applies to --raw: a link has one lane for READs and atomics; leave -q out")]
    LaneQps { qps: u32 },
    /// Nor does it take more.
    #[error("-t {tx_depth} is more than the {max} READs and atomics that a link takes; lower it")]
    LaneDepth { tx_depth: u32, max: u32 },
    /// Towpath rides on connections.
    #[error("reliable messages go over UC, RC or TCP; add --raw for plain datagrams")]
    RawOnly,
    /// Only a link has paths.
    #[error("--status reports links and their paths: leave out --raw, and use -c UC or RC")]
    StatusOfNoLink,
    /// As there.
    #[error("--paths and --fallback apply to links: leave out --raw, and use -c UC or RC")]
    PathsOfNoLink,
    /// TCP has no verbs.
    #[error("--raw applies to queue pairs: use -c RC, UC or UD, or leave --raw out for TCP")]
    RawTcp,
    /// Datagrams are sent.
    #[error("there is no WRITE on UD: use tow_send_bw, or -c RC or UC")]
    WriteOnUd,
    /// Nobody looks at what is written.
    #[error(
        "the receiver of a raw WRITE gets no completion and cannot check the data: leave out \
         --raw or --data_validation, or use tow_send_bw or tow_send_lat"
    )]
    BlindWrite,
    /// Atomics have one size.
    #[error("an atomic works on 8 bytes: leave -s and -a out")]
    AtomicSize,
    /// A datagram is one packet.
    #[error("a datagram of {size} bytes does not fit a packet of {mtu}: lower -s or raise -m")]
    Datagram { size: u32, mtu: u32 },
}

/// A flag that the ends have set differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) flag: String,
    pub(crate) client: String,
    pub(crate) server: String,
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Differences(pub(crate) Vec<Difference>);

impl Differences {
    /// What differs between two ends; a flag that only one has counts.
    pub(crate) fn between(client: &[Flag], server: &[Flag]) -> Self {
        let value = |flags: &[Flag], name: &str| {
            let found = flags.iter().find(|flag| flag.name == name);
            found.map_or_else(|| "unknown".to_owned(), |flag| flag.value.clone())
        };
        let only_server = server.iter().filter(|flag| client.iter().all(|c| c.name != flag.name));
        let differences = client.iter().chain(only_server).map(|flag| Difference {
            flag: flag.name.clone(),
            client: value(client, &flag.name),
            server: value(server, &flag.name),
        });
        Self(differences.filter(|d| d.client != d.server).collect())
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Difference { flag, client, server }) in self.0.iter().enumerate() {
            let comma = if at > 0 { "; " } else { "" };
            write!(f, "{comma}{flag}: client {client}, server {server}")?;
        }
        Ok(())
    }
}

/// What made a run fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// See [`UsageError`].
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// The set-up port is taken.
    #[error(
        "port {} of {} is in use: another server may be waiting there; stop it or choose \
         another port with -p at both ends",
        .0.port(),
        .0.ip()
    )]
    PortInUse(SocketAddr),
    /// The server cannot listen.
    #[error("cannot listen on {addr}: {source}")]
    Listen { addr: SocketAddr, source: io::Error },
    /// The name means no address.
    #[error("cannot resolve {host}: {source}")]
    Resolve { host: String, source: io::Error },
    /// Nobody answers.
    #[error(
        "cannot connect to {host} port {port}: {source}; start the server first, with the same \
         flags and no host"
    )]
    Dial { host: String, port: u16, source: io::Error },
    /// The ends were started with different flags.
    #[error("the ends do not agree ({0}); start both with the same flags")]
    Disagree(Differences),
    /// Something else listens there.
    #[error("the peer does not speak the set-up protocol of this tool: {0}")]
    NotOurs(#[source] serde_json::Error),
    /// It speaks another version of it.
    #[error("the peer's tool has set-up version {theirs}, this one {ours}; update the older one")]
    Version { ours: u32, theirs: u32 },
    /// It says something out of turn.
    #[error("the peer sent {got} where {wanted} was expected; do both ends have the same version?")]
    OutOfTurn { wanted: &'static str, got: &'static str },
    /// The peer went away.
    #[error("the peer is gone ({0}); see what it printed, then start both again")]
    PeerGone(String),
    /// The peer does nothing.
    #[error("the peer sent nothing for {0:?} although it should have; is it stopped?")]
    PeerSilent(Duration),
    /// The peer gave up and said why.
    #[error("the peer failed: {0}")]
    PeerFailed(String),
    /// The link ended.
    #[error("the link went down: {}", end_of(*reason, *status))]
    LinkDown { reason: DownReason, status: Option<WcStatus> },
    /// A socket call failed.
    #[error("{what} failed: {source}")]
    Socket { what: &'static str, source: io::Error },
    /// An endpoint could not be had.
    #[error("{0}")]
    Endpoint(#[from] EndpointError),
    /// It could not listen.
    #[error("{0}")]
    EndpointListen(#[from] ListenError),
    /// It could not connect.
    #[error("{0}")]
    EndpointConnect(#[from] ConnectError),
    /// Nobody could ask.
    #[error("{0}")]
    Status(#[from] SocketError),
    /// A channel could not be had.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// A message was not taken.
    #[error("a message was not accepted: {0}")]
    Submit(#[from] SubmitError),
    /// A one-sided operation was not taken.
    #[error("a one-sided operation was not accepted: {0}")]
    Lane(#[from] LaneError),
    /// It was not carried out, though the link is up.
    #[error(
        "a one-sided operation ended as {0:?} instead of Executed: its queue pair was lost, or the \
         peer has taken its grant back; see what the peer printed"
    )]
    Operation(OpOutcome),
    /// An end that serves cannot sleep.
    #[error("{0}")]
    PollFd(#[from] PollFdError),
    /// Buffers for the messages could not be had.
    #[error("no send buffer of {bytes} bytes; lower -t or -s")]
    NoBuffer { bytes: u32 },
    /// A message was given up.
    #[error(
        "a message ended as {0:?} instead of Delivered, though its link is up: a defect of the \
         transport"
    )]
    Outcome(Outcome),
    /// A message has the wrong length.
    #[error(
        "a message of {got} bytes came where {wanted} were expected: a defect of the transport"
    )]
    Length { wanted: u32, got: u32 },
    /// A message has the wrong content.
    #[error("byte {offset} of a message is {got:#04x} instead of {wanted:#04x}: corrupted data")]
    Content { offset: usize, wanted: u8, got: u8 },
    /// The counts of both ends do not match.
    #[error("{sent} messages were sent and {received} received: a defect of the transport")]
    Count { sent: u64, received: u64 },
    /// As many came as were sent, but not the same ones.
    #[error("some message came twice and another one never: a defect of the transport")]
    Digest,
    /// A fetched number is not what it was left at.
    #[error("an atomic found {got} where {wanted} was expected: not exactly once, or not in order")]
    Atomic { wanted: u64, got: u64 },
    /// A verb failed.
    #[error("{0}")]
    Verb(#[from] VerbError),
    /// A batch was refused.
    #[error("{0}")]
    BadWr(#[from] BadWr),
    /// A work request failed.
    #[error("a work request of {qp_num} ended as {status:?} (vendor error {vendor_err:#x}){}",
        advice(*status))]
    Completion { qp_num: QpNum, status: WcStatus, vendor_err: u32 },
    /// The way to the peer carries no packets as long as were asked for.
    #[error(
        "an MTU of {asked} bytes is too large: the path to the peer carries {way}; lower -m to {} \
         or leave it out",
        .way.mtu
    )]
    Mtu { asked: Mtu, way: PathMtu },
    /// Memory could not be had.
    #[error("no memory for the messages: {0}; lower -t, -r or -s")]
    Memory(#[from] MemoryError),
    /// A round was lost.
    #[error(
        "a message or its answer was lost, and raw {0} does not send again: leave --raw out, or \
         use -c RC"
    )]
    Lost(Connection),
    /// The peer has not as many queue pairs as it agreed to.
    #[error("the peer has {theirs} queue pairs, but {ours} were agreed: is its version the same?")]
    QueuePairs { ours: usize, theirs: usize },
    /// A frame on TCP that is none.
    #[error("the peer sent an invalid frame; do both ends have the same version?")]
    BadFrame,
    /// The report could not be written.
    #[error("cannot write {path}: {source}; results above are complete")]
    Write { path: String, source: io::Error },
}

impl RunError {
    /// 2 for a command line that is wrong, 3 for ends that do not agree, else 1.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) => 2,
            Self::Disagree(_) | Self::Version { .. } => 3,
            _ => 1,
        })
    }

    /// Itself: tells the compiler that it ends the run, so that what handles it stays away from
    /// what each message passes.
    #[cold]
    #[inline(never)]
    pub(crate) fn ends_run(self) -> Self {
        self
    }

    /// A socket error, with those told apart that mean that the peer is gone.
    pub(crate) fn socket(what: &'static str, source: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match source.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => {
                Self::PeerGone(format!("{what}: {source}"))
            }
            _ => Self::Socket { what, source },
        }
    }
}

/// Why a link ended, and what to do about it. `status` is how the last work request failed, if one
/// did.
fn end_of(reason: DownReason, status: Option<WcStatus>) -> String {
    match (reason, status) {
        (DownReason::PathsFailed, Some(WcStatus::RetryExcErr)) => {
            "the peer's host acknowledged nothing for as long as RC waits (RetryExcErr): it has no \
             processor, or packets do not get through; raise -u at both ends, or use -c UC, which \
             waits 10 s"
                .to_owned()
        }
        (DownReason::PathsFailed, Some(status)) => {
            format!("its queue pairs failed, last with {status:?}; a driver tells the kernel's log")
        }
        (DownReason::PathsFailed, None) => {
            "its queue pairs failed; see what the peer printed, and the kernel's log".to_owned()
        }
        (DownReason::Silent(span), _) => format!(
            "no sign of life came from the peer for {span} although one was due: it was stopped, \
             has no processor, or packets do not get through"
        ),
        (DownReason::PeerGone | DownReason::Goodbye, _) => {
            "the peer is gone; see what it printed, then start both again".to_owned()
        }
        (DownReason::Local, _) => "this end has left".to_owned(),
        (reason @ (DownReason::Untrusted | DownReason::KeysUsedUp), _) => reason.to_string(),
    }
}

/// What may help after a work request failed.
fn advice(status: WcStatus) -> &'static str {
    match status {
        WcStatus::RetryExcErr => ": the peer did not answer; is it running, and reachable?",
        WcStatus::RnrRetryExcErr => ": the peer had no receive posted; raise its -r",
        _ => "",
    }
}
