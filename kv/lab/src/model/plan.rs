//! What is run: how many clients over which transport, on which hardware, at which costs.

use towpath_kv::workload::Mix;

/// How requests and replies travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Kernel TCP.
    Tcp,
    /// SEND and RECV over reliable connections.
    Rc,
    /// SEND and RECV over unreliable connections.
    Uc,
    /// SEND and RECV by datagrams: the server has one queue pair for all clients.
    Ud,
    /// Towpath channels over UC.
    Towpath,
    /// GETs by READs over RC; what changes goes by SEND and RECV.
    OneSided,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Tcp, Self::Rc, Self::Uc, Self::Ud, Self::Towpath, Self::OneSided];

    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Towpath => "towpath",
            Self::OneSided => "one-sided",
        }
    }

    /// That of a name.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.word() == word)
    }

    /// Whether its queue pairs are RC's, which need more of a card's cache, and acknowledge.
    #[must_use]
    pub const fn is_rc(self) -> bool {
        matches!(self, Self::Rc | Self::OneSided)
    }

    /// Whether nobody but the client makes good what is lost.
    #[must_use]
    pub const fn is_raw(self) -> bool {
        matches!(self, Self::Uc | Self::Ud)
    }
}

/// What a thread does until something comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// It asks again and again, and keeps its processor for as long as it may.
    Polling,
    /// It sleeps until an event.
    Blocking,
}

impl Waiting {
    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Blocking => "blocking",
        }
    }
}

/// Whose programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// The thesis's: lists with mutexes, each SEND waited for, clients that share a lock.
    Thesis,
    /// Ours: a table without locks, completions of SENDs taken when there is time.
    Ours,
}

impl Program {
    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Thesis => "thesis",
            Self::Ours => "ours",
        }
    }
}

impl Plan {
    /// How a side waits: 0 the clients, 1 the server. Over TCP the thesis's programs wait in the
    /// kernel, whatever they do elsewhere. And a server to which only changes come need not poll.
    pub(super) fn waiting(&self, side: usize) -> Waiting {
        let is_tcp = self.transport == Transport::Tcp && self.program == Program::Thesis;
        let is_spared = self.transport == Transport::OneSided && side == 1;
        match side {
            _ if is_tcp || is_spared => Waiting::Blocking,
            0 => self.waiting,
            _ => self.server_waiting,
        }
    }

    /// Whether a sender waits until its message has gone (UC, UD) or has come (RC).
    pub(super) fn waits_for_sends(&self) -> bool {
        let completes = !matches!(self.transport, Transport::Tcp | Transport::Towpath);
        self.program == Program::Thesis && completes
    }

    /// What a message costs its sender or its receiver beside posting and reaping.
    pub(super) fn per_message(&self) -> u64 {
        match self.transport {
            Transport::Tcp => self.costs.tcp,
            Transport::Towpath => self.costs.towpath,
            _ => 0,
        }
    }

    /// What a card takes for a packet.
    pub(super) fn packet(&self) -> u64 {
        let is_slow = self.program == Program::Thesis && self.transport.is_rc();
        if is_slow { self.hardware.card_rc } else { self.hardware.card }
    }

    /// How many threads the server has.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.workers.unwrap_or(self.clients).min(self.clients).max(1)
    }

    /// How many queue pairs a card has: Towpath's clients of one machine share a link to each
    /// worker, and datagrams need one queue pair at the server.
    pub(super) fn queue_pair(&self, client: u32, at_server: bool) -> u32 {
        match self.transport {
            Transport::Towpath => client % self.threads(),
            Transport::Ud if at_server => 0,
            _ => client,
        }
    }
}

/// Machines, cards and the wire between them. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Cores of each machine, at most 32. Each has two hardware threads.
    pub cores: u32,
    /// How fast a hardware thread is while the other one of its core works, in percent.
    pub shared_percent: u64,
    /// How long a thread keeps a processor that others wait for.
    pub quantum: u64,
    /// What the one processor of a machine that gets all interrupts takes for each.
    pub interrupt: u64,
    /// From there until a sleeping thread may run.
    pub wake: u64,
    /// What a processor does for an event and the switch to the thread.
    pub event: u64,
    /// What the wire carries each way.
    pub line_gbps: u64,
    /// From one card to the other.
    pub link: u64,
    /// From a host to its card, or back.
    pub host: u64,
    /// What a card takes for one packet.
    pub card: u64,
    /// The same of RC, acknowledgements as well, with the thesis's programs.
    pub card_rc: u64,
    /// Queue pairs of UC or UD whose state a card has at hand. One of RC counts for several.
    pub cache: u64,
    /// For how many a queue pair of RC counts.
    pub cache_rc: u64,
    /// What it takes to fetch the state of one that it has not at hand, one after the other.
    pub miss: u64,
}

/// What programs and transports cost. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// What a client does beside its request, by itself.
    pub client: u64,
    /// The same, where only one client of the machine can at a time.
    pub client_serial: u64,
    /// Handing a message to a card.
    pub post: u64,
    /// Taking one that has come.
    pub reap: u64,
    /// For each thread that asks the same completion queue, when one takes something from it.
    pub crowd: u64,
    /// What a kernel's TCP takes for a message at each end, beside that.
    pub tcp: u64,
    /// And what the one processor that gets its interrupts takes for one that arrives.
    pub tcp_arrival: u64,
    /// What Towpath takes for a message at each end, acknowledgements counted in.
    pub towpath: u64,
    /// An operation of a store, beside what follows.
    pub store: u64,
    /// Going on to the next entry of a list.
    pub list: u64,
    /// A change of our table, beside `store`.
    pub change: u64,
    /// What a client takes to check what it has read by itself.
    pub check: u64,
}

/// What makes good what is lost, after how long. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Losses {
    /// The share of packets, each way.
    pub share: f64,
    /// After how long RC's hardware sends again.
    pub rc: u64,
    /// The kernel's TCP; twice as long each time.
    pub tcp: u64,
    /// Towpath; twice as long each time.
    pub towpath: u64,
    /// A client of raw UC or UD; twice as long each time.
    pub client: u64,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Over what.
    pub transport: Transport,
    /// How clients wait.
    pub waiting: Waiting,
    /// How the server's threads wait.
    pub server_waiting: Waiting,
    /// Whose programs.
    pub program: Program,
    /// How many clients, all on one machine, a thread each.
    pub clients: u32,
    /// How many threads the server has; one for each client without.
    pub workers: Option<u32>,
    /// How many operations, all clients together.
    pub operations: u64,
    /// What they are.
    pub mix: Mix,
    /// READs of a one-sided GET, at least one: a bucket with its values, or index and value.
    pub reads: u32,
    /// How many keys there are.
    pub keys: u64,
    /// How many lists the thesis's table has: fewer than its 1,024 for fewer operations, so that
    /// they become as long.
    pub lists: u32,
    /// On what.
    pub hardware: Hardware,
    /// At which costs.
    pub costs: Costs,
    /// With what losses.
    pub losses: Losses,
    /// From where everything random comes.
    pub seed: u64,
}
