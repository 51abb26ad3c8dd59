//! What can go wrong, what to do next, and exit codes.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use towpath_chunkserver::daemon::DaemonError;
use towpath_chunkserver::qos::WhatIfError;
use towpath_fastpath::cap::{GrantError, KeyError, MintError};
use towpath_fastpath::{ErrorKind, ErrorReply};
use towpath_lab::studies::StudyError;
use towpath_spread::{ChangeError, LayoutError, Node, PartError, SpreadError};
use towpath_status::AskError;

use super::bench::StoreError;
use super::demo::DemoError;
use super::interrupt::{EXIT_INTERRUPTED, Interrupted};
use super::secure::TrustError;
use super::session::SessionError;
use crate::bench::load::ChildError;
use crate::device::DeviceArgs;
use towpath_transport::{DeviceName, EndpointError, SecureError};

/// What was done to a local file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileVerb {
    /// Make it.
    Create,
    /// Read it.
    Read,
    /// Write to it.
    Write,
}

impl std::fmt::Display for FileVerb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Write => "write to",
        })
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CliError {
    /// Bytes came back changed.
    #[error("the data that came back differs from the data that was sent, first at byte {offset}")]
    Changed {
        /// The first byte of the request in which it was seen.
        offset: u64,
    },
    /// A scrub found damage.
    #[error(
        "{} damaged: of each chunk that is named, fetch another copy, remove the chunk with \
         `towpath rm CHUNK`, and store the copy with `towpath put FILE --chunk CHUNK`",
        match damaged {
            1 => String::from("1 slice is"),
            _ => format!("{damaged} slices are"),
        }
    )]
    Damaged {
        /// How many.
        damaged: u64,
    },
    /// The demo.
    #[error("the demo failed")]
    Demo(#[from] DemoError),
    /// A local file.
    #[error("cannot {verb} {}", path.display())]
    File {
        /// What was done.
        verb: FileVerb,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A pipe, a device or a directory, where a file is to be stored.
    #[error(
        "{0} is not a regular file: `towpath put - < {0}` stores what comes out of a pipe",
        path.display()
    )]
    NotRegular {
        /// Its path.
        path: PathBuf,
    },
    /// The output is there.
    #[error("{} exists: choose another name, or replace it with --force", path.display())]
    FileExists {
        /// The file.
        path: PathBuf,
    },
    /// The last word of `put` is neither a file nor a server.
    #[error(
        "`{name}` is neither a file nor the name of a server: give files that exist, then HOST or \
         HOST:PORT"
    )]
    NoFileNoServer {
        /// The word.
        name: String,
    },
    /// Words of `put` that do not go together.
    #[error("{0}")]
    Put(&'static str),
    /// Somebody asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// Loss was asked of a device that has none of its own.
    #[error("{device} cannot lose packets on purpose: leave {flag} out, or use -d roce")]
    NoLossOfItsOwn {
        /// Which device.
        device: DeviceName,
        /// How it was asked.
        flag: &'static str,
    },
    /// A scrub did not check every slice, or checked some more than once.
    #[error(
        "checked {checked} slices of {live}: another scrub took part of this one; \
         run one at a time"
    )]
    ScrubShared {
        /// Slices checked.
        checked: u64,
        /// Slices that were there all the time.
        live: u64,
    },
    /// A study measured less than it should.
    #[error("{missed} of {of} targets missed; the table says which and by how much")]
    Missed {
        /// How many.
        missed: usize,
        /// Of how many.
        of: usize,
    },
    /// The server of a bench.
    #[error("the server of the bench ended")]
    BenchServer(#[source] DaemonError),
    /// A class of a bench.
    #[error("a class of the bench ended")]
    BenchClass(#[source] ChildError),
    /// The key-value server of a bench.
    #[error("the server of the bench ended")]
    BenchKvServer(#[source] towpath_kv::daemon::DaemonError),
    /// The clients of a bench.
    #[error("the clients of the bench ended")]
    BenchKv(#[source] crate::bench::kv::LoadError),
    /// Load on a chunk server.
    #[error(transparent)]
    BenchStore(#[from] StoreError),
    /// A tenant of a bench.
    #[error("a tenant of the bench ended")]
    BenchTenant(#[source] ChildError),
    /// An end of a bench of the fast path.
    #[cfg(feature = "baseline")]
    #[error("an end of the bench ended")]
    BenchFastpath(#[from] crate::bench::fastpath::LoadError),
    /// The server keeps no reservations.
    #[error("the server keeps no reservations: start it with --qos-iops (docs/qos.md)")]
    NoReservations,
    /// A tenant could not have what was asked for.
    #[error("tenant {tenant} would be refused: {reason}")]
    WouldBeRefused {
        /// The tenant.
        tenant: String,
        /// Why, and what would be admitted.
        reason: String,
    },
    /// A file is no capability.
    #[error("{} holds no capability: {error}", path.display())]
    Grant {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: GrantError,
    },
    /// A file is none of keys.
    #[error("the keys in {}: {error}", path.display())]
    Keys {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: KeyError,
    },
    /// The keys of this host.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// A host is not trusted.
    #[error("{0}")]
    Trust(TrustError),
    /// No capability was made.
    #[error(transparent)]
    Mint(MintError),
    /// A file is no layout.
    #[error("{} is no layout that can be used: {error}", path.display())]
    Layout {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: LayoutError,
    },
    /// A file on several servers was not stored, read or repaired.
    #[error(transparent)]
    Spread(#[from] SpreadFailed),
    /// A file on several servers has damage.
    #[error("{advice}")]
    BadParts {
        /// Which, and what mends them.
        advice: String,
    },
    /// A file on several servers can be read, and does not bear as much as its policy says.
    #[error("{advice}. Until then the file is read from its other parts")]
    Degraded {
        /// Which parts are missing, and what makes them.
        advice: String,
    },
    /// A file on several servers has places that nothing makes anew.
    #[error(
        "{} lost, {}at byte {at} of the file: too many of the parts are missing or damaged there. \
         No repair mends that: store the file anew from another copy, or start servers that are \
         away",
        match stripes {
            1 => String::from("1 stripe is"),
            _ => format!("{stripes} stripes are"),
        },
        if *stripes == 1 { "" } else { "the first " }
    )]
    Lost {
        /// Stripes.
        stripes: u64,
        /// Where the first begins.
        at: u64,
    },
    /// A file on several servers has parts that do not belong together.
    #[error(
        "in {stripes} stripes the parts are each whole and do not belong together, and {parts} \
         parts are missing or damaged; nothing tells which parts are wrong, so that no repair \
         mends it: store the file anew from another copy"
    )]
    Torn {
        /// Stripes.
        stripes: u64,
        /// Parts that are missing or damaged.
        parts: usize,
    },
    /// Not all parts of a file were removed.
    #[error(
        "parts of it are left, on servers that do not answer or refuse it: {}; run it again when \
         they do; the layout is kept",
        left.iter().map(Node::to_string).collect::<Vec<_>>().join(", ")
    )]
    PartsLeft {
        /// Which.
        left: Vec<Node>,
    },
    /// There is no answer to what would be.
    #[error(transparent)]
    WhatIf(WhatIfError),
    /// Asking a process for its status.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// Talking to the server.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Signals cannot be caught.
    #[error("cannot catch SIGINT, SIGTERM and SIGHUP")]
    Signals(#[source] io::Error),
    /// Nobody takes the results.
    #[error("cannot write to stdout")]
    Stdout(#[source] io::Error),
    /// A study has no report.
    #[error("the study {study} did not finish")]
    Study {
        /// Its name.
        study: &'static str,
        /// Why.
        #[source]
        source: StudyError,
    },
}

impl CliError {
    /// The exit code for wrong flags.
    pub(crate) const USAGE: u8 = 2;

    pub(super) fn file(verb: FileVerb, path: &Path, source: io::Error) -> Self {
        Self::File { verb, path: path.into(), source }
    }

    /// Of a file that is to be stored.
    pub(super) fn input(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::InvalidInput => Self::NotRegular { path: path.into() },
            _ => Self::file(FileVerb::Read, path, source),
        }
    }

    /// The exit code; `towpath --help` lists them.
    #[must_use]
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Ask(_) => 3,
            Self::BenchStore(error) => of_bench_store(error),
            Self::Changed { .. } | Self::Damaged { .. } => 1,
            Self::Demo(error) => of_demo(error),
            Self::File { .. }
            | Self::FileExists { .. }
            | Self::NotRegular { .. }
            | Self::Grant { .. }
            | Self::Layout { .. }
            | Self::Keys { .. }
            | Self::Secure(_)
            | Self::Stdout(_) => 7,
            Self::Trust(TrustError::NoKey { .. }) => 3,
            Self::Trust(_) => Self::USAGE,
            Self::Interrupted(_) => EXIT_INTERRUPTED,
            Self::Session(error) => of_session(error),
            Self::Spread(SpreadFailed(error)) => of_spread(error),
            Self::BadParts { .. } | Self::Torn { .. } | Self::Lost { .. } => 1,
            Self::Degraded { .. } => 10,
            Self::PartsLeft { .. } => 5,
            Self::ScrubShared { .. } | Self::NoReservations | Self::WouldBeRefused { .. } => 5,
            Self::Missed { .. } => 9,
            Self::Study { source: StudyError::Params { .. }, .. } => Self::USAGE,
            Self::NoLossOfItsOwn { .. } | Self::Put(_) | Self::Mint(_) => Self::USAGE,
            Self::NoFileNoServer { .. } => 3,
            #[cfg(feature = "baseline")]
            Self::BenchFastpath(_) => 8,
            Self::BenchClass(_)
            | Self::BenchKv(_)
            | Self::BenchKvServer(_)
            | Self::BenchServer(_)
            | Self::BenchTenant(_)
            | Self::Signals(_)
            | Self::Study { .. }
            | Self::WhatIf(_) => 8,
        }
    }

    /// The error and what is below it, in one line.
    #[must_use]
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut below = self.source();
        while let Some(error) = below {
            let part = error.to_string();
            // Transparent and embedded sources have said their part already.
            if !text.contains(&part) {
                text.push_str(": ");
                text.push_str(&part);
            }
            below = error.source();
        }
        text
    }

    /// Whether it leaves open what became of an operation.
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.exit_code(), 6 | EXIT_INTERRUPTED)
    }

    /// Whether the reader of stdout went away.
    #[must_use]
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Refuses faults for any device but the userspace NIC: the first of these flags that is given.
pub(super) fn check_faults<const N: usize>(
    device: &DeviceArgs,
    flags: [(&'static str, bool); N],
) -> Result<(), CliError> {
    let given = flags.into_iter().find(|&(_, is_given)| is_given);
    match (&device.device, given) {
        (DeviceName::Verbs(_), Some((flag, _))) => {
            Err(CliError::NoLossOfItsOwn { device: device.device.clone(), flag })
        }
        _ => Ok(()),
    }
}

/// Whether a share of packets is to be lost.
pub(super) fn loses(loss: Option<f64>) -> bool {
    loss.is_some_and(|loss| loss > 0.0)
}

fn of_demo(error: &DemoError) -> u8 {
    match error {
        DemoError::Dir { .. } | DemoError::Input { .. } => 7,
        DemoError::Interrupted(_) => EXIT_INTERRUPTED,
        DemoError::Session(error) => of_session(error),
        DemoError::Daemon(error) => error.exit_code(),
        _ => 8,
    }
}

fn of_bench_store(error: &StoreError) -> u8 {
    match error {
        StoreError::Wrong { .. } => 1,
        StoreError::Latencies(_) => 8,
        _ => CliError::USAGE,
    }
}

fn of_session(error: &SessionError) -> u8 {
    match error {
        SessionError::Client(error) => of_kind(&error.kind),
        SessionError::ChannelClosed { .. } | SessionError::Full { .. } => 5,
        SessionError::ReplicaDiffers { .. } => 1,
        SessionError::Channel { .. } | SessionError::Down { .. } => 6,
        SessionError::Connect { .. }
        | SessionError::NotThere { .. }
        | SessionError::NoRoute { .. }
        | SessionError::Resolve { .. } => 3,
        SessionError::Interrupted(_) => EXIT_INTERRUPTED,
        SessionError::Endpoint(EndpointError::Mtu { .. }) | SessionError::Unfit { .. } => {
            CliError::USAGE
        }
        SessionError::Endpoint(_) | SessionError::Link(_) | SessionError::OtherOutput => 8,
    }
}

fn of_kind(kind: &ErrorKind) -> u8 {
    match kind {
        ErrorKind::Refused(reply) => of_reply(reply),
        ErrorKind::ReplyCorrupt { .. } => 1,
        ErrorKind::Busy => 5,
        ErrorKind::TimedOut { .. } | ErrorKind::Cancelled { .. } | ErrorKind::PeerGone { .. } => 6,
        ErrorKind::Call(_) => 8,
        // Whatever is left says that the two do not understand each other.
        _ => 3,
    }
}

fn of_spread(error: &SpreadError) -> u8 {
    match error {
        SpreadError::Source { .. } | SpreadError::Sink { .. } | SpreadError::Layout(_) => 7,
        SpreadError::ServerCount { .. }
        | SpreadError::SameServer { .. }
        | SpreadError::Least { .. }
        | SpreadError::Unit { .. } => CliError::USAGE,
        SpreadError::TooFew { source, .. }
        | SpreadError::Unreadable { source, .. }
        | SpreadError::NotMade { source, .. } => of_part(source),
        SpreadError::Left { source, .. } => of_spread(source),
        SpreadError::Change { source, .. } => of_change(source),
        SpreadError::NoServer { .. } => 3,
        _ => 8,
    }
}

fn of_change(error: &ChangeError) -> u8 {
    match error {
        ChangeError::Beyond { .. } => CliError::USAGE,
        ChangeError::Missing { source, .. } => of_part(source),
        ChangeError::Unsure { .. } => 6,
        _ => 5,
    }
}

/// Why a server has no part: an answer that did not come leaves nothing open, since whatever a file
/// is made of has a name that nobody else knows.
fn of_part(error: &PartError) -> u8 {
    match error {
        _ if error.is_gone() => 3,
        PartError::Client(error) => of_kind(&error.kind),
        PartError::Gone | PartError::Told(_) => 3,
        _ => 1,
    }
}

/// Why a file on several servers was not stored, read or repaired.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct SpreadFailed(Box<SpreadError>);

impl From<SpreadError> for SpreadFailed {
    fn from(error: SpreadError) -> Self {
        Self(Box::new(error))
    }
}

fn of_reply(error: &ErrorReply) -> u8 {
    match error {
        ErrorReply::NoSuchChunk { .. } | ErrorReply::ChunkExists { .. } => 4,
        ErrorReply::SliceCorrupt { .. } | ErrorReply::WireCorrupt { .. } => 1,
        ErrorReply::CommitFailed => 6,
        _ => 5,
    }
}
