//! Reliable connections: Go-Back-N in a requester, a responder and a completer.
//!
//! Packets and times come in as arguments, packets go out into the batch that the engine offers to
//! the link. Inside, packets are numbered by 64 bits from the first one of the connection; a PSN is
//! such a number in 24 bits. A message has its numbers from the moment it is posted, a READ as many
//! as its response has packets.
//!
//! The InfiniBand specification was not at hand. Each rule names its source where it stands: the
//! Linux rxe driver, the manual pages of libibverbs and vendors, or a choice of our own. All of
//! them with their tests are listed in `docs/rc-conformance.md`.

mod completer;
mod plain;
mod requester;
mod requests;
mod resources;
mod responder;

use crate::limits::{RC_ACK_INTERVAL_PACKETS, RC_READ_PIECES};
use crate::qp::Qp;
use crate::requester::{Batch, Planned, Sender, What};
use crate::responder::Surroundings;
use crate::wire::Packet;
use plain::IcrcFor;
pub(crate) use requester::Requester;
pub(crate) use responder::Responder;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Time};
use towpath_verbs::{Connect, RcAttr, RxPacket};

/// What a connection was made with.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) attr: RcAttr,
    pub(crate) mtu: u32,
    /// Packets under way at most.
    pub(crate) window: u32,
}

impl Terms {
    /// Packets that are asked for at once of a READ of so many: all where two such READs fit the
    /// window, else so few that the next request travels while responses keep coming.
    fn read_piece(&self, packets: u64) -> u64 {
        let pieces = u32::from(self.attr.max_rd_atomic).clamp(1, RC_READ_PIECES);
        let window = u64::from(self.window);
        if 2 * packets <= window { packets } else { (window / u64::from(pieces)).max(1) }
    }

    /// Packets after which an acknowledgement is asked for within a message.
    fn ack_interval(&self) -> u32 {
        (self.window / 4).clamp(1, RC_ACK_INTERVAL_PACKETS)
    }

    /// How long an acknowledgement may take; `None` for ever. The encoding is that of the
    /// `timeout` of `ibv_modify_qp(3)`.
    fn timeout(&self) -> Option<Nanos> {
        (self.attr.timeout > 0).then(|| Nanos(4_096 << self.attr.timeout))
    }
}

/// What came of planning a queue pair's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing more can be sent now.
    Idle,
    /// The turn is over before the work is.
    More,
    /// The memory of the oldest work request is gone.
    SendMemoryGone,
    /// What a peer reads is not open any more; the number of the packet that cannot be sent.
    ReadMemoryGone(u64),
}

impl Qp {
    /// A packet for this RC queue pair: sound, from its peer.
    #[inline(never)]
    pub(crate) fn on_rc(
        &mut self,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
        now: Time,
        s: &mut Surroundings<'_>,
    ) {
        if packet.opcode.is_answer() {
            self.on_rc_answer(packet, rx, now, s);
        } else {
            self.on_rc_request(packet, rx, s);
        }
    }
}

/// The RC half of a queue pair.
pub(crate) struct Rc {
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    icrc: IcrcFor,
}

impl Rc {
    pub(crate) fn new(depth: u32, max_send_sge: u32) -> Self {
        let requester = Requester::new(depth, max_send_sge);
        let responder = Responder::default();
        Self { requester, responder, icrc: IcrcFor::default() }
    }

    pub(crate) fn start(&mut self, connect: &Connect, window: u32) {
        let terms = Terms { attr: connect.rc, mtu: connect.path_mtu.bytes(), window };
        self.requester.start(connect.sq_psn, terms);
        self.responder = self.responder.start(connect.rq_psn, terms);
        self.icrc = IcrcFor::default();
    }

    /// After the source address changed.
    pub(crate) fn forget_source(&mut self) {
        self.icrc = IcrcFor::default();
    }

    /// Whether packets wait to be sent.
    pub(crate) fn has_work(&self) -> bool {
        self.responder.owes() || self.requester.can_send()
    }

    /// Adds up to `packets_max` packets to the batch: answers first, but no more than half of them
    /// while requests wait too, so that neither direction starves the other.
    #[inline(never)]
    pub(crate) fn plan(
        &mut self,
        sender: &Sender<'_>,
        packets_max: usize,
        batch: &mut Batch<'_>,
        planned: &mut Vec<Planned>,
    ) -> Turn {
        let base = self.icrc.base(sender);
        let end = planned.len() + packets_max;
        let answers_max =
            if self.requester.can_send() { packets_max.div_ceil(2) } else { packets_max };
        let turn = self.responder.plan(sender, &base, answers_max, batch, planned);
        if turn != Turn::Idle && turn != Turn::More {
            return turn;
        }
        let left = end - planned.len();
        match self.requester.plan(sender, &base, left, batch, planned) {
            Turn::Idle => turn,
            other => other,
        }
    }

    /// The link took this packet; true when it had gone out before.
    pub(crate) fn on_taken(&mut self, what: What, now: Time) -> bool {
        match what {
            What::Request { end, .. } => return self.requester.on_taken(end, now),
            What::Reply { seq } => self.responder.on_reply_taken(seq),
            What::Answer => self.responder.on_answer_taken(),
            What::Message { .. } => {}
        }
        false
    }

    /// The link did not take this packet.
    pub(crate) fn undo(&mut self, what: What) {
        match what {
            What::Request { seq, .. } => self.requester.undo(seq),
            What::Reply { seq } => self.responder.undo_reply(seq),
            What::Answer => self.responder.undo_answer(),
            What::Message { .. } => {}
        }
    }
}

/// A sequence number and its PSN.
#[derive(Clone, Copy, Default)]
struct Numbering {
    zero: Psn,
}

impl Numbering {
    fn psn(self, seq: u64) -> Psn {
        self.zero.plus(seq as u32)
    }

    /// The number nearest to `near` with this PSN; `None` where it lies before the first.
    fn seq(self, psn: Psn, near: u64) -> Option<u64> {
        near.checked_add_signed(i64::from(psn.distance(self.psn(near))))
    }
}
