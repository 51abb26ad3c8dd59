//! The ways in which requests can go, and what is asked.

use towpath_kv::client::ClientConfig;
use towpath_kv::workload::Mix;

/// The longest value of queue pairs without Towpath: those that are measured are shorter, and each
/// client has buffers of this length.
const RAW_VALUES: &str = "--raw-value-kib=4";

/// Room for YCSB's values.
const PUBLISHED_SLOT: &str = "--publish-slot-bytes=1100";

/// Clients that share a link.
pub(super) const SHARING: u16 = 1000;

/// That, as a flag.
const LINKS_SHARED: &str = "--links-shared=1000";

/// Clients that have a thread, a device and some 20 files each: of these one process has no more.
pub(super) const ALONE_MAX: usize = 500;

/// What to change where all are left out because of that.
pub(super) const NO_ROOM: &str = "at most 500 over --transports where each client has a thread of \
                                  its own; towpath-shared has room for more";
const _: () = assert!(ALONE_MAX == 500, "NO_ROOM says so");

/// What carries requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Kernel TCP.
    Tcp,
    /// Reliable connections without Towpath: the device sends again what is lost.
    Rc,
    /// Unreliable connections without Towpath: clients repeat what is lost.
    Uc,
    /// Datagrams: one queue pair of the server for all clients, which repeat what is lost.
    Ud,
    /// A Towpath channel on UC, whose losses are mended in software.
    TowpathUc,
    /// The same, many clients on one link, which a thread of its own drives.
    TowpathShared,
    /// The same, where clients read values by themselves from memory that the server granted.
    OneSided,
    /// A Towpath channel on RC.
    TowpathRc,
    /// A Towpath channel on kernel TCP.
    TowpathTcp,
}

impl Way {
    /// All.
    pub(super) const ALL: [Self; 9] = [
        Self::Tcp,
        Self::Rc,
        Self::Uc,
        Self::Ud,
        Self::TowpathUc,
        Self::TowpathShared,
        Self::OneSided,
        Self::TowpathRc,
        Self::TowpathTcp,
    ];

    /// Its name.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::TowpathUc => "towpath-uc",
            Self::TowpathShared => "towpath-shared",
            Self::OneSided => "one-sided",
            Self::TowpathRc => "towpath-rc",
            Self::TowpathTcp => "towpath-tcp",
        }
    }

    /// That of a name.
    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.word() == word)
    }

    /// Flags by which the server listens for it, beside its front for TCP.
    pub(super) const fn server_words(self) -> &'static [&'static str] {
        match self {
            Self::Tcp => &[],
            Self::Rc => &["--raw=127.0.0.1:0", "--raw-transport=rc", RAW_VALUES],
            Self::Uc => &["--raw=127.0.0.1:0", "--raw-transport=uc", RAW_VALUES],
            Self::Ud => &["--raw=127.0.0.1:0", "--raw-transport=ud", RAW_VALUES],
            Self::TowpathUc => &["--links=127.0.0.1:0", "--carrier=uc"],
            Self::TowpathShared => &["--links=127.0.0.1:0", "--carrier=uc", LINKS_SHARED],
            Self::OneSided => {
                &["--links=127.0.0.1:0", "--carrier=uc", "--publish-mib=64", PUBLISHED_SLOT]
            }
            Self::TowpathRc => &["--links=127.0.0.1:0", "--carrier=rc"],
            Self::TowpathTcp => &["--links=127.0.0.1:0", "--carrier=tcp"],
        }
    }

    /// How its clients ask.
    pub(super) fn client_config(self) -> ClientConfig {
        match self {
            Self::Uc | Self::Ud => ClientConfig::for_losses(),
            _ => ClientConfig::default(),
        }
    }

    /// Whether many of its clients may share a thread.
    pub(super) const fn shares_threads(self) -> bool {
        matches!(self, Self::Tcp | Self::TowpathShared)
    }

    /// Whether a process may have so many of its clients.
    pub(super) const fn has_room_for(self, clients: usize) -> bool {
        self.shares_threads() || clients <= ALONE_MAX
    }

    /// Whether its packets are those of a device, and can be lost on purpose.
    pub(super) const fn has_packets(self) -> bool {
        !matches!(self, Self::Tcp | Self::TowpathTcp)
    }
}

/// What clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Reads and changes of records.
    Mix(Mix),
    /// Each operation adds one to a number: what is done twice, or not at all, shows at the end.
    Count,
}

impl Load {
    /// Its name.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Mix(mix) => mix.word(),
            Self::Count => "count",
        }
    }

    /// That of a name.
    pub(super) fn of(word: &str) -> Option<Self> {
        if word == Self::Count.word() { Some(Self::Count) } else { Mix::of(word).map(Self::Mix) }
    }
}
