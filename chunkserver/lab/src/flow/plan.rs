//! What is sent, and what receivers do with it.

/// Picoseconds: at 400 Gb/s a byte takes 20.
pub type Ps = u64;

/// Nanoseconds.
#[must_use]
pub const fn ns(ns: u64) -> Ps {
    ns * 1_000
}

/// Time that depends on bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Whatever there is.
    pub fixed: Ps,
    /// For each 1,024 bytes.
    pub per_kib: Ps,
}

impl Cost {
    /// The same for any number of bytes.
    #[must_use]
    pub const fn fixed(fixed: Ps) -> Self {
        Self { fixed, per_kib: 0 }
    }

    /// For so many bytes.
    #[must_use]
    pub const fn of(self, bytes: u64) -> Ps {
        self.fixed + self.per_kib * bytes / 1_024
    }
}

/// What a body job is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    /// One packet.
    Packet,
    /// The message, once all of it is there.
    Message,
}

/// What a receiver does with a stream.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// What a body job is about.
    pub granule: Granule,
    /// Which of the receiver's pools of units does the jobs.
    pub pool: usize,
    /// From the card to where a unit can take it: of each packet, and they do not wait for each
    /// other.
    pub into: Cost,
    /// The head job, once for each stream.
    pub head: Ps,
    /// A body job, until its bytes may be passed on.
    pub body: Cost,
    /// What it does after that.
    pub after: Cost,
    /// The tail job, once for each stream.
    pub tail: Ps,
    /// From a unit to the card: of what is passed on.
    pub out: Ps,
    /// Whether a unit is busy until the port has sent what it passes on; only where `out` is zero.
    pub holds: bool,
    /// From the end of a body job's first part until its bytes are stored.
    pub store: Ps,
    /// From a unit to the card: of an acknowledgement.
    pub ack_out: Ps,
    /// What an acknowledgement from further on costs here.
    pub ack_in: Ps,
}

/// Who is told when a stream is stored, and all streams that were passed on from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Node 0.
    Client,
    /// Who sent it.
    Sender,
    /// Node 0, once for all streams with this number.
    Joined(usize),
    /// Nobody.
    Nobody,
}

/// A message from one node to another.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Which node sends it.
    pub from: usize,
    /// Which node receives it.
    pub to: usize,
    /// Bytes of data; none still makes one packet.
    pub bytes: u64,
    /// Headers of the first packet, beside those of each packet.
    pub first_header: u64,
    /// What the receiver does.
    pub service: Service,
    /// Streams whose packets are passed on from this one's: each with the packet of the same
    /// number and as much data, or all at once where the granule is the message.
    pub next: Vec<usize>,
    /// Who is told.
    pub ack: Ack,
}

/// Streams that node 0 sends by itself, all at once.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Which.
    pub roots: Vec<usize>,
    /// Whether a packet of each is sent in turn, or one stream after the other.
    pub in_turn: bool,
    /// The group whose acknowledgements must all be there before.
    pub after: Option<usize>,
    /// When it begins, if it need not wait for another.
    pub at: Ps,
}

/// Links and cards.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    /// What a byte takes at a port.
    pub ps_per_byte: Ps,
    /// From one port to any other.
    pub link: Ps,
    /// What a card takes for a packet on its way in, and again on its way out.
    pub card: Ps,
    /// Bytes of a packet at most, headers included.
    pub mtu: u64,
    /// Headers of each packet.
    pub header: u64,
    /// An acknowledgement, headers included.
    pub ack: u64,
}

impl Wire {
    /// Bytes of data in each packet of a message.
    #[must_use]
    pub fn packets(&self, bytes: u64, first_header: u64) -> Vec<u64> {
        let room = self.mtu.saturating_sub(self.header).max(1);
        let first = bytes.min(room.saturating_sub(first_header));
        let mut packets = vec![first];
        let mut left = bytes - first;
        while left > 0 {
            packets.push(left.min(room));
            left -= left.min(room);
        }
        packets
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Links and cards.
    pub wire: Wire,
    /// The units of each pool of each node; as many as it takes where it is `None`. Node 0 is the
    /// client.
    pub pools: Vec<Vec<Option<u32>>>,
    /// The streams.
    pub streams: Vec<Stream>,
    /// The groups.
    pub groups: Vec<Group>,
    /// From the client's program to its card.
    pub client_out: Ps,
    /// From the client's card to its program.
    pub client_in: Ps,
}
