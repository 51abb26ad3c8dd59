//! What is told: a process, its links, their paths.

use crate::limits::LINKS_MAX;
use crate::worker::{WorkerStatus, cpu_ns_of_process};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use towpath_base::Nanos;
use towpath_memory::Region;
use towpath_transport::keys::Refusals;
use towpath_transport::{Endpoint, LinkId, PathReport, PathState};
use towpath_verbs::{Device, Served};

/// A process and its links. Fields may be added; those that a side does not know are left out or
/// taken as zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProcessStatus {
    /// The program.
    pub program: String,
    /// The process.
    pub pid: u32,
    /// Where its device receives.
    pub device: Option<SocketAddr>,
    /// What carries new links: `UC`, `RC` or `TCP`.
    pub carrier: String,
    /// Threads that own an endpoint each.
    pub workers: u64,
    /// Of those, the ones that did not come by to answer: their links are missing here.
    pub workers_silent: u64,
    /// Processor time of the process, in user and system mode, in nanoseconds.
    pub cpu_ns: u64,
    /// What each worker uses that came by to answer.
    pub per_worker: Vec<WorkerStatus>,
    /// Times that a path was found to drop packets of its size and to deliver shorter ones, and
    /// went on in shorter packets, over all links that there were. The log names the peers.
    pub mtu_lowered: u64,
    /// Links that are up.
    pub link_count: u64,
    /// At most [`LINKS_MAX`] of them: those with a path that is not good first, then by index.
    pub links: Vec<LinkStatus>,
}

/// How one link stands. Counters are from its beginning, and only grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LinkStatus {
    /// Its number with its worker; used again when the link is gone.
    pub index: u64,
    /// Whose it is: the number of a worker.
    pub worker: u64,
    /// Where the device at the other end receives.
    pub peer: Option<SocketAddr>,
    /// `good`, or why it is degraded; none where nobody judges links.
    pub health: Option<String>,
    /// What it is for: `gold`, `silver` or `copper`.
    pub class: String,
    /// Messages that came in under another DSCP than the peer gave them: something on the way
    /// rewrites it.
    pub dscp_changed: u64,
    /// The last such DSCP.
    pub dscp_seen: Option<u8>,
    /// What it rides on: `UC`, `RC` or `TCP`.
    pub carrier: String,
    /// Its packets over UC carry no ICRC, as both ends agreed.
    pub omits_icrc: bool,
    /// How it is protected: `encrypted, AES-128-GCM, keys of 12 minutes, peer rack4-a`, or that it
    /// is open.
    pub protection: String,
    /// Packets that its seal has refused, by kind, those that were.
    pub refused: BTreeMap<String, u64>,
    /// Times that it went to a worse carrier.
    pub fallbacks: u64,
    /// The smoothed round-trip time of all paths together in nanoseconds, once there is one.
    pub rtt_ns: Option<u64>,
    /// Chunks of data sent, retransmissions included.
    pub chunks_sent: u64,
    /// Chunks of data sent again.
    pub chunks_retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Times that traffic, or the acks of it, left a path for another.
    pub reroutes: u64,
    /// Paths that were good again after a quarantine.
    pub path_returns: u64,
    /// Probes of paths sent.
    pub path_probes: u64,
    /// Messages given up.
    pub messages_abandoned: u64,
    /// I/Os that were not answered in time; none where nobody watches them.
    pub slow: Option<u64>,
    /// Queue pairs that it has, the one for acks included, those in error left out.
    pub qps: u64,
    /// Its channels, whoever opened them.
    pub channels: u64,
    /// The most of them.
    pub channels_max: u64,
    /// Pieces of messages that the peer is allowed to have sent or held here, over all channels.
    pub credit_given: u64,
    /// The most of them.
    pub credit_given_max: u64,
    /// Pieces of messages that may still be sent to the peer, over all channels.
    pub credit_left: u64,
    /// Messages being sent: queued, under way, or with an outcome that was not taken.
    pub sends: u64,
    /// The most of them.
    pub sends_max: u64,
    /// Messages of which something was not sent yet.
    pub messages_queued: u64,
    /// Bytes of those that were not sent yet.
    pub queued_bytes: u64,
    /// Bytes in flight, as windows count them.
    pub in_flight_bytes: u64,
    /// What may be in flight as far as congestion control goes, in bytes.
    pub window_bytes: u64,
    /// One-sided operations: waiting, under way, or with an outcome that was not taken.
    pub operations: u64,
    /// Those of them that the device has.
    pub operations_posted: u64,
    /// The most one-sided operations that may be asked for at a time.
    pub operations_max: u64,
    /// One-sided operations that were carried out.
    pub operations_executed: u64,
    /// Those that the peer, or its device, denied.
    pub operations_denied: u64,
    /// Those that were given up and not carried out.
    pub operations_not_executed: u64,
    /// Those of which it is not known whether they were.
    pub operations_unknown: u64,
    /// Those that this end refused at once: no such grant, its range or rights, no room.
    pub operations_refused: u64,
    /// Ranges of memory that the peer may reach.
    pub grants: u64,
    /// What the peer did to them, and to earlier ones, by itself; none where there were none, and
    /// where the device does not count.
    pub served: Option<ServedStatus>,
    /// Its paths, by number.
    pub paths: Vec<PathStatus>,
}

/// What a peer did by one-sided operations to memory that was granted to it. Each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ServedStatus {
    /// READ requests answered, those that were answered before included; a long READ is several.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Of the READs, those that were answered before, at least in part.
    pub reads_again: u64,
    /// Bytes of those.
    pub read_again_bytes: u64,
    /// WRITEs that are in memory whole.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// FETCH_ADDs and CMP_SWAPs.
    pub atomics: u64,
}

impl From<Served> for ServedStatus {
    fn from(served: Served) -> Self {
        let Served {
            reads,
            read_bytes,
            reads_again,
            read_again_bytes,
            writes,
            write_bytes,
            atomics,
        } = served;
        Self { reads, read_bytes, reads_again, read_again_bytes, writes, write_bytes, atomics }
    }
}

/// How one path stands. Counters are from its beginning, and only grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PathStatus {
    /// Its number within the link.
    pub index: u8,
    /// What carries it.
    pub carrier: String,
    /// `good`, `suspect`, `dead` (in quarantine), `probing`, `spare` (held back) or `failed` (its
    /// queue pair is made anew).
    pub state: String,
    /// For how long it has been that, in nanoseconds.
    pub for_ns: u64,
    /// Its queue pair here.
    pub qp_num: u32,
    /// Which of the device's source ports it leaves from.
    pub source_port: u16,
    /// Its smoothed round-trip time in nanoseconds, once there is one.
    pub rtt_ns: Option<u64>,
    /// Transmissions: data, control and probes, again or for the first time.
    pub sent: u64,
    /// Those of them that were declared lost.
    pub lost: u64,
    /// Bytes in flight, as windows count them.
    pub in_flight_bytes: u64,
    /// How often it was doubted.
    pub doubts: u64,
    /// How often it was put in quarantine.
    pub quarantines: u64,
    /// How often its source port was changed.
    pub moves: u64,
    /// How often its queue pair was made anew.
    pub renewals: u64,
    /// Acks go this way.
    pub carries_acks: bool,
    /// Payload bytes of its packets: the RDMA MTU in use.
    pub mtu: u32,
    /// Where the search for it stands: `base` (nothing longer was asked for yet), `searching`,
    /// `complete`, or `error` (not even 1,024 bytes get through).
    pub mtu_phase: String,
    /// Why it is no larger: `agreed` (nothing was asked), `probed` (a probe of this size was
    /// answered), or `swallowed` (longer packets are dropped while short ones get through).
    pub mtu_reason: String,
}

/// The kinds of which there were some.
fn refused(refusals: &Refusals) -> BTreeMap<String, u64> {
    let counts = refusals.iter().filter(|(_, count)| *count > 0);
    counts.map(|(kind, count)| (kind.name().to_owned(), count)).collect()
}

impl ProcessStatus {
    /// How the links of an endpoint stand now. Takes time in proportion to the links that are up:
    /// not for the data path, but short enough to be called between two turns.
    #[must_use]
    #[cold]
    pub fn of<D: Device<Memory = Region>>(endpoint: &Endpoint<D>, program: &str) -> Self {
        Self::with(endpoint, program, |_, _| {})
    }

    /// The same; `judge` adds to each link what the caller knows of it.
    #[must_use]
    pub fn with<D: Device<Memory = Region>>(
        endpoint: &Endpoint<D>,
        program: &str,
        mut judge: impl FnMut(LinkId, &mut LinkStatus),
    ) -> Self {
        let is_well = |link: LinkId| endpoint.paths(link).all(|path| is_sound(&path));
        let mut links: Vec<_> = endpoint.links().collect();
        let link_count = links.len() as u64;
        links.sort_by_cached_key(|&link| (Reverse(!is_well(link)), link.index()));
        links.truncate(LINKS_MAX);
        let status = |link| {
            let mut status = LinkStatus::of(endpoint, link);
            judge(link, &mut status);
            status
        };
        Self {
            program: program.to_owned(),
            pid: std::process::id(),
            device: Some(endpoint.device().local_addr()),
            carrier: endpoint.carrier().to_string(),
            workers: 1,
            workers_silent: 0,
            per_worker: vec![WorkerStatus::of(endpoint)],
            // Behind that of the thread, so that it is never less.
            cpu_ns: cpu_ns_of_process(),
            mtu_lowered: endpoint.stats_of_all_links().mtu_lowered,
            link_count,
            links: links.into_iter().map(status).collect(),
        }
    }
}

impl ProcessStatus {
    /// What several of `workers` threads tell of themselves, by their numbers, as one; none when
    /// none of them has told anything.
    pub(crate) fn merge(mut told: Vec<(usize, Self)>, workers: usize) -> Option<Self> {
        told.sort_by_key(|&(worker, _)| worker);
        let silent = workers.saturating_sub(told.len());
        let mut links = Vec::new();
        let (mut link_count, mut cpu_ns, mut mtu_lowered) = (0, 0, 0);
        let mut per_worker = Vec::new();
        for (worker, status) in &mut told {
            link_count += status.link_count;
            mtu_lowered += status.mtu_lowered;
            // They are asked one after the other: the last reading.
            cpu_ns = status.cpu_ns.max(cpu_ns);
            let of_worker = |told| WorkerStatus { worker: *worker as u64, ..told };
            per_worker.extend(status.per_worker.drain(..).map(of_worker));
            links.extend(
                status.links.drain(..).map(|link| LinkStatus { worker: *worker as u64, ..link }),
            );
        }
        // By the words of the report, since their endpoints are elsewhere; the order stays else.
        links.sort_by_key(LinkStatus::is_well);
        links.truncate(LINKS_MAX);
        let (_, first) = told.into_iter().next()?;
        let (workers, workers_silent) = (workers as u64, silent as u64);
        Some(Self {
            workers,
            workers_silent,
            cpu_ns,
            per_worker,
            mtu_lowered,
            link_count,
            links,
            ..first
        })
    }
}

impl LinkStatus {
    fn is_well(&self) -> bool {
        let good = PathState::Good.to_string();
        self.paths.iter().all(|path| path.state == good)
    }

    fn of<D: Device<Memory = Region>>(endpoint: &Endpoint<D>, link: LinkId) -> Self {
        let stats = endpoint.stats(link).unwrap_or_default();
        let usage = endpoint.link_usage(link).unwrap_or_default();
        let (class, lane) = (endpoint.class_of(link), endpoint.lane(link));
        let counts = lane.map(|lane| lane.counts).unwrap_or_default();
        Self {
            index: link.index() as u64,
            worker: 0,
            peer: endpoint.peer(link).map(|peer| peer.device_addr),
            health: None,
            class: class.map_or_else(String::new, |of| of.class.to_string()),
            dscp_changed: class.map_or(0, |of| of.dscp_changed),
            dscp_seen: class.and_then(|of| of.dscp_seen),
            carrier: endpoint.carrier_of(link).map_or_else(String::new, |of| of.to_string()),
            omits_icrc: endpoint.omits_icrc(link).unwrap_or_default(),
            protection: endpoint.protection(link),
            refused: endpoint.security(link).map_or_else(BTreeMap::new, |of| refused(of.refusals)),
            fallbacks: stats.carrier_falls,
            rtt_ns: endpoint.rtt(link).map(|rtt| rtt.0),
            chunks_sent: stats.chunks_sent,
            chunks_retransmitted: stats.chunks_retransmitted,
            timeouts: stats.rtos,
            reroutes: stats.reroutes(),
            path_returns: stats.path_returns,
            path_probes: stats.path_probes,
            messages_abandoned: stats.messages_abandoned,
            slow: None,
            qps: endpoint.qps_of(link) as u64,
            channels: u64::from(usage.channels),
            channels_max: u64::from(usage.channels_max),
            credit_given: u64::from(usage.credit_given),
            credit_given_max: u64::from(usage.credit_given_max),
            credit_left: usage.credit_left,
            sends: usage.sends as u64,
            sends_max: usage.sends_max as u64,
            messages_queued: usage.messages_queued as u64,
            queued_bytes: usage.queued_bytes,
            in_flight_bytes: usage.in_flight_bytes,
            window_bytes: usage.window_bytes,
            operations: lane.map_or(0, |lane| lane.operations as u64),
            operations_posted: lane.map_or(0, |lane| lane.posted as u64),
            operations_max: lane.map_or(0, |lane| lane.operations_max as u64),
            operations_executed: counts.executed,
            operations_denied: counts.denied,
            operations_not_executed: counts.not_executed,
            operations_unknown: counts.unknown,
            operations_refused: counts.refused,
            grants: lane.map_or(0, |lane| lane.grants as u64),
            served: lane.and_then(|_| endpoint.served(link)).map(ServedStatus::from),
            paths: PathStatus::all_of(endpoint, link),
        }
    }
}

impl PathStatus {
    /// How each path of a link stands now that has a queue pair; none when the link is gone.
    #[must_use]
    pub fn all_of<D: Device<Memory = Region>>(endpoint: &Endpoint<D>, link: LinkId) -> Vec<Self> {
        let now = endpoint.now();
        let paths = endpoint.paths(link);
        paths.map(|path| Self::new(&path, now.since(path.facts.since))).collect()
    }

    fn new(path: &PathReport, held: Nanos) -> Self {
        let facts = &path.facts;
        Self {
            index: facts.path.0,
            carrier: facts.carrier.to_string(),
            state: facts.state.to_string(),
            for_ns: held.0,
            qp_num: path.qp_num.0,
            source_port: path.source_port,
            rtt_ns: facts.srtt.map(|rtt| rtt.0),
            sent: facts.sent,
            lost: facts.lost,
            in_flight_bytes: facts.in_flight_bytes,
            doubts: facts.doubts,
            quarantines: facts.quarantines,
            moves: facts.moves,
            renewals: u64::from(facts.renewals),
            carries_acks: facts.carries_acks,
            mtu: facts.mtu.bytes(),
            mtu_phase: facts.mtu_phase.to_string(),
            mtu_reason: facts.mtu_reason.to_string(),
        }
    }
}

fn is_sound(path: &PathReport) -> bool {
    matches!(path.facts.state, PathState::Good | PathState::Spare)
}
