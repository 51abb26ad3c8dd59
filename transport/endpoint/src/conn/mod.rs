//! What an endpoint keeps for each link: its queue pairs, what is posted to them, and its marks.
//!
//! | file | what it has |
//! |---|---|
//! | `table` | all links, and the lists of those that have something to do |
//! | `make` | makes and destroys queue pairs |
//! | `control` | the queue pair for acks, and its buffers |
//! | `queue` | the sends that are posted to a path |
//! | `batch` | sends that wait to be posted in one call |
//! | `company` | what is copied for chunks of several messages |

mod batch;
mod company;
mod control;
mod make;
mod queue;
mod table;

pub(crate) use crate::wr_id::NO_QP;
pub(crate) use batch::Batch;
pub(crate) use company::Company;
pub(crate) use control::Control;
pub(crate) use make::{Lkeys, Queues, Receives};
pub(crate) use queue::{TxQueue, TxSlots};
pub(crate) use table::Links;

use crate::class::ClassReport;
use crate::event::Peer;
use crate::ids::LinkId;
use crate::lane::LaneQp;
use crate::secure::LinkSeal;
use crate::sends::Sends;
use crate::tcp::Tcp;
use crate::workers::Seat;
use std::net::SocketAddr;
use towpath_base::Time;
use towpath_base::serial::Psn;
use towpath_proto::wire::Hello;
use towpath_proto::{Carrier, ChannelId, Link, PathId, Rails, Side};
use towpath_secure::KnownSecret;
use towpath_verbs::{Mtu, QpNum};

/// Where a link is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Our half is made; the peer's HELLO is awaited.
    Offered,
    /// Joined.
    Up,
    /// Its queue pairs are destroyed; their last completions are awaited.
    Draining,
}

/// A path: its queue pair and what is posted to it.
pub(crate) struct Path {
    pub(crate) carrier: Carrier,
    pub(crate) qp_num: QpNum,
    /// Which of the device's source ports it leaves from.
    pub(crate) source_port: u16,
    pub(crate) tx: TxQueue,
    /// The number of its receive queue.
    pub(crate) queue: u32,
    /// Sends that wait to be posted, within a flush.
    pub(crate) batch: Option<Batch>,
    /// Its queue pair is in error, or gone: nothing is posted to it.
    pub(crate) has_failed: bool,
    /// The first packet sequence number of one that was made anew.
    pub(crate) psn: Psn,
}

/// What set-up has agreed on.
#[derive(Default)]
pub(crate) struct Agreed {
    /// Ours.
    pub(crate) hello: Option<Hello>,
    /// The smaller of both ends', once the link is up.
    pub(crate) mtu: Option<Mtu>,
    /// Packets over UC carry no ICRC.
    pub(crate) omits_icrc: bool,
    pub(crate) peer: Option<Peer>,
    /// Which NICs paths join, from our side.
    pub(crate) rails: Option<(Rails, Side)>,
    /// Where the peer's further NICs are.
    pub(crate) further_addrs: Vec<SocketAddr>,
    /// Where we connected to.
    pub(crate) dialled: Option<SocketAddr>,
    /// What our HELLO was sealed with.
    pub(crate) secret: Option<KnownSecret>,
}

impl Agreed {
    /// Where a path leads to, once the link is up.
    pub(crate) fn dest(&self, path: usize) -> Option<SocketAddr> {
        let (rails, side) = self.rails?;
        match rails.rail_of(side, path).theirs {
            0 => self.peer.map(|peer| peer.device_addr),
            further => self.further_addrs.get(usize::from(further) - 1).copied(),
        }
    }
}

/// A link among those of other classes.
#[derive(Default)]
pub(crate) struct Turn {
    /// It waits for its turn.
    pub(crate) is_in_line: bool,
    /// Bytes at the device that the order between classes knows of.
    pub(crate) counted_bytes: u64,
}

/// In which lists of the table a link is.
struct Marks {
    is_ready: bool,
    is_eventful: bool,
    /// When the table looks whether the link's timer has come; `NEVER` while it is in no list.
    filed: Time,
}

impl Default for Marks {
    fn default() -> Self {
        Self { is_ready: false, is_eventful: false, filed: Time::NEVER }
    }
}

/// A queue pair that is destroyed, while completions of it may still come.
#[derive(Clone, Copy)]
pub(crate) struct Renewing {
    pub(crate) link: LinkId,
    /// None for the queue pair of the lane.
    pub(crate) path: Option<u8>,
    /// Polls since.
    pub(crate) polls: u8,
}

/// Our half of a link that waits for the peer's HELLO. Hand it to
/// [`Endpoint::establish`](crate::Endpoint::establish) or
/// [`Endpoint::withdraw`](crate::Endpoint::withdraw); dropping it keeps its place taken.
#[derive(Debug)]
#[must_use = "a pending link holds its place until it is established or withdrawn"]
pub struct PendingLink {
    pub(crate) id: LinkId,
}

/// What an endpoint keeps for one link.
pub(crate) struct Conn {
    pub(crate) id: LinkId,
    pub(crate) phase: Phase,
    pub(crate) class: ClassReport,
    pub(crate) link: Option<Link>,
    /// Where it is sealed.
    pub(crate) seal: Option<Box<LinkSeal>>,
    pub(crate) paths: Vec<Path>,
    /// The headers of what is posted to any of them.
    pub(crate) tx_slots: TxSlots,
    /// The set-up connection, where it carries a path.
    pub(crate) tcp: Option<Tcp>,
    pub(crate) control: Control,
    pub(crate) agreed: Agreed,
    pub(crate) sends: Sends,
    /// A message was refused for want of room, and the application was not told of room since.
    pub(crate) is_refused: bool,
    /// A channel for a lane that the peer opened and may not have, until it is closed.
    pub(crate) refused_lane: Option<ChannelId>,
    /// Receive buffers that the link or the application holds.
    pub(crate) held: usize,
    pub(crate) timer: Time,
    /// Polls since its queue pairs were destroyed.
    pub(crate) drain_polls: u8,
    /// Counts it among the links of its worker, while it is up.
    pub(crate) seat: Option<Seat>,
    marks: Marks,
    pub(crate) turn: Turn,
    /// Keys of memory that is this link's alone.
    pub(crate) lkeys: Lkeys,
    /// What its one-sided operations have, once there are some.
    pub(crate) lane: Option<Box<LaneQp>>,
}

impl Conn {
    pub(crate) fn new(id: LinkId, class: ClassReport, control: Control) -> Self {
        Self {
            id,
            phase: Phase::Offered,
            class,
            link: None,
            seal: None,
            paths: Vec::new(),
            tx_slots: TxSlots::default(),
            tcp: None,
            control,
            agreed: Agreed::default(),
            sends: Sends::default(),
            is_refused: false,
            refused_lane: None,
            held: 0,
            timer: Time::NEVER,
            drain_polls: 0,
            seat: None,
            marks: Marks::default(),
            turn: Turn::default(),
            lkeys: Lkeys::default(),
            lane: None,
        }
    }

    /// A queue pair went to error. A path's ends that path; without a way for acks nothing on the
    /// link would get ahead. False when it is another link's.
    pub(crate) fn fail_qp(&mut self, now: Time, qp_num: QpNum) -> bool {
        let Some(link) = self.link.as_mut() else { return false };
        let mut is_ours = self.control.qp_num == qp_num;
        if is_ours {
            link.acks_failed();
        }
        if let Some(lane) = self.lane.as_mut().filter(|lane| lane.qp_num == qp_num) {
            lane.has_failed = true;
            link.lane_failed(now);
            is_ours = true;
        }
        for (path, id) in self.paths.iter_mut().zip(0u8..) {
            if path.qp_num == qp_num {
                path.has_failed = true;
                link.path_failed(now, PathId(id));
                is_ours = true;
            }
        }
        is_ours
    }

    /// Paths that its receive buffers are for: those with a queue pair. One without any is as one
    /// with a single path.
    pub(crate) fn qp_paths(&self) -> usize {
        self.paths.len().max(1)
    }

    /// Whether a queue pair for chunks or acks is of UC: there a send completes when it leaves.
    pub(crate) fn is_uc(&self, qp_num: QpNum) -> bool {
        let path = match qp_num == self.control.qp_num {
            true => self.paths.first(),
            false => self.paths.iter().find(|path| path.qp_num == qp_num),
        };
        path.is_some_and(|path| path.carrier == Carrier::Uc)
    }

    /// Bytes that the device has and that have not left. Only UC tells when they do.
    pub(crate) fn uc_bytes_at_device(&self) -> u64 {
        let on_uc = self.paths.iter().filter(|path| path.carrier == Carrier::Uc);
        on_uc.map(|path| path.tx.posted_bytes()).sum()
    }

    /// The path that rides on the set-up connection, by our HELLO: the one behind the last that has
    /// a queue pair.
    pub(crate) fn tcp_path(&self) -> Option<PathId> {
        let hello = self.agreed.hello.as_ref()?;
        let place = hello.paths.iter().position(|path| path.carrier == Carrier::Tcp)?;
        Some(PathId(place as u8))
    }

    /// Whether the device holds nothing of it any more but receives of its paths.
    pub(crate) fn is_drained(&self) -> bool {
        let quiet = |path: &Path| path.tx.outstanding() == 0;
        let lane_is_quiet = self.lane.as_ref().is_none_or(|lane| lane.posted == 0);
        self.control.is_drained() && lane_is_quiet && self.paths.iter().all(quiet)
    }
}
