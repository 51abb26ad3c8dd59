//! What handles ask the worker for, and what it answers with.

use crate::channel::{ChannelEnd, Incoming};
use crate::doorbell::Doorbell;
use crate::lane::Changes;
use crate::ops::Asked;
use crate::queue::{Receiver, Sender};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use towpath_memory::{Region, SharedMemory};
use towpath_proto::{ChannelId, Class, DownReason, GrantId, LinkStats, Rights};
use towpath_transport::LaneError;
use towpath_transport::{ChannelError, ConnectError, EndpointError, ListenError};
use towpath_transport::{LinkId, Peer};

/// A link that was asked for, or why there is none.
pub(crate) type Linked = Result<NewLink, ConnectError>;

/// A command; each answer goes to a place of its own.
pub(crate) enum Command {
    Listen {
        addr: SocketAddr,
        reply: Sender<Result<SocketAddr, ListenError>>,
    },
    Connect {
        addr: SocketAddr,
        class: Option<Class>,
        reply: Sender<Linked>,
    },
    Register {
        region: Region,
        reply: Sender<Result<(), EndpointError>>,
    },
    OpenChannel {
        link: LinkId,
        ordered: bool,
        reply: Sender<Result<NewChannel, ChannelError>>,
    },
    CloseLink {
        link: LinkId,
    },
    Grant {
        link: LinkId,
        memory: SharedMemory,
        range: Range<usize>,
        rights: Rights,
        reply: Sender<Result<GrantId, LaneError>>,
    },
    Revoke {
        link: LinkId,
        grant: GrantId,
        reply: Sender<bool>,
    },
    Operate(Asked),
    Stats {
        link: LinkId,
        reply: Sender<Option<LinkStats>>,
    },
    Shutdown,
}

impl Command {
    /// Nobody will look at it: what it holds of the caller's goes back.
    pub(super) fn refuse(self) {
        if let Self::Operate(asked) = self {
            asked.refuse_for_good();
        }
    }
}

/// A link that is up.
pub(crate) struct NewLink {
    pub(crate) id: LinkId,
    pub(crate) peer: Peer,
    /// Channels that the peer opens.
    pub(crate) channels: Receiver<NewChannel>,
    /// Somebody has asked for it to be closed.
    pub(crate) is_closing: Arc<AtomicBool>,
    /// Set when it goes down.
    pub(crate) down: Arc<OnceLock<DownReason>>,
    /// What the peer grants.
    pub(super) changes: Arc<Changes>,
    pub(super) claim: Claim,
}

/// That somebody has a handle of a link, or is to get one. A link that is never handed out is
/// closed: nobody waited for it any more.
pub(super) struct Claim {
    bell: Arc<Doorbell>,
    link: Option<LinkId>,
}

impl Claim {
    pub(super) fn new(bell: &Arc<Doorbell>, link: LinkId) -> Self {
        Self { bell: Arc::clone(bell), link: Some(link) }
    }

    /// Somebody has it.
    pub(super) fn settle(mut self) {
        self.link = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(link) = self.link {
            self.bell.leave_link(link);
        }
    }
}

/// A channel that is open. What arrives is not bounded by its queue but by its credit: each
/// message and chunk in it holds some.
pub(crate) struct NewChannel {
    pub(crate) id: ChannelId,
    pub(crate) ordered: bool,
    pub(crate) incoming: Receiver<Incoming>,
    pub(super) end: ChannelEnd,
}
