//! All that was collected as families of metrics.

use std::collections::BTreeMap;

use towpath_fastpath::cap::Denied;
use towpath_fastpath::health::Phase;
use towpath_fastpath::qos::wire::{QosReply, TenantReport};
use towpath_transport::Class;
use towpath_transport::keys::{Mode, Refusal, Refusals};

use super::ALL_TENANTS;
use super::collect::{Collected, Disk};
use super::control::interference;
use super::histogram::{BOUNDS, Counts, bound_seconds};
use super::meter::{METHODS, TENANTS_SHOWN};
use super::text::Text;
use crate::service::{Handler, ScrubProgress, ServerStats, StopReason, WorkerFigures};
use crate::store::core::DiskState;
use crate::store::{ReadOnly, StoreStats};

/// Stands for all tenants that have no place of their own.
const OTHER_TENANTS: &str = "other";

/// A family with one line for each of many things: its name, its help, and the figure of a thing.
type Of<T, V = u64> = (&'static str, &'static str, fn(&T) -> V);

/// All families.
pub(super) fn export(all: &Collected<'_>) -> String {
    let mut text = Text::default();
    about(&mut text, all);
    phases(&mut text, all);
    requests(&mut text, all);
    disks(&mut text, &all.disks);
    if all.disks.iter().any(|disk| disk.stats.is_some()) {
        stores(&mut text, &all.disks);
    }
    integrity(&mut text, all);
    scrub(&mut text, &all.disks);
    if let Some(stats) = all.stats() {
        links(&mut text, all, &stats);
        protection(&mut text, all);
        pools(&mut text, all, &stats);
        interference(&mut text, all.told().find_map(|figures| figures.interference.as_ref()));
    }
    if let Some(qos) = all.told().find_map(|figures| figures.qos.as_ref()) {
        reservations(&mut text, qos);
    }
    text.into_string()
}

impl Collected<'_> {
    /// The figures of the workers that told them.
    fn told(&self) -> impl Iterator<Item = &WorkerFigures> {
        self.workers.iter().filter_map(|(_, figures)| figures.as_ref())
    }

    /// What these counted, all together; none where none told.
    fn stats(&self) -> Option<ServerStats> {
        let stats = self.told().map(|figures| figures.stats);
        stats.reduce(|mut sum, stats| {
            sum += stats;
            sum
        })
    }
}

fn about(text: &mut Text, all: &Collected<'_>) {
    let version = [([env!("CARGO_PKG_VERSION")], 1)];
    text.family("towpath_build_info", "The program; always 1.", ["version"], version);
    let help = "When the server began, since 1970.";
    text.one("towpath_start_time_seconds", help, all.started_s);
    let disks = all.disks.iter();
    let disks = disks.map(|disk| ([format!("disk {}", disk.name)], disk.stats.is_some()));
    let workers = all.workers.iter().enumerate();
    let workers = workers.map(|(at, (_, told))| ([format!("worker {at}")], told.is_some()));
    text.family(
        "towpath_collect_success",
        "Whether a part of the server told its figures in time; those of one that did not are left \
         out.",
        ["part"],
        disks.chain(workers).map(|(part, is_told)| (part, u8::from(is_told))),
    );
}

/// Phases by tenant and class: a tenant's place differs from worker to worker, its name does not.
fn phases(text: &mut Text, all: &Collected<'_>) {
    let names = all.told().next().map_or(&[][..], |figures| &figures.tenants);
    let mut found: Vec<((&str, Class, Phase), Counts)> = Vec::new();
    for (meter, _) in &all.workers {
        meter.each(|tenant, class, phase, counts| {
            let name = match tenant {
                None => OTHER_TENANTS,
                Some(0) if names.is_empty() => ALL_TENANTS,
                // A worker that is stuck does not tell the name.
                Some(tenant) => names.get(tenant).map_or(OTHER_TENANTS, String::as_str),
            };
            let whose = (name, class, phase);
            match found.iter_mut().find(|(known, _)| *known == whose) {
                Some((_, sum)) => sum.add(&counts),
                None => found.push((whose, counts)),
            }
        });
    }
    let name = "towpath_request_phase_seconds";
    let help = "Time of requests in each phase: receive, check, queue, disk, flush, answer.";
    text.head(name, "histogram", help);
    for ((tenant, class, phase), counts) in found {
        let class = class.to_string();
        let labels = [("phase", phase.name()), ("class", &class), ("tenant", tenant)].into_iter();
        let (bucket, mut total) = (format!("{name}_bucket"), 0);
        for (at, count) in counts.coarse().into_iter().enumerate() {
            total += count;
            let bound = (at < BOUNDS).then(|| bound_seconds(at).to_string());
            let bound = ("le", bound.as_deref().unwrap_or("+Inf"));
            text.line(&bucket, labels.clone().chain([bound]), total);
        }
        text.line(&format!("{name}_sum"), labels.clone(), counts.sum_ns as f64 / 1e9);
        text.line(&format!("{name}_count"), labels, total);
    }
}

fn requests(text: &mut Text, all: &Collected<'_>) {
    let counts = METHODS.iter().enumerate().flat_map(|(method, word)| {
        let counts = all.workers.iter().map(|(meter, _)| meter.requests(method));
        let [good, bad] = counts.fold([0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
        [([*word, "done"], good), ([*word, "failed"], bad)]
    });
    let help = "Requests that were answered, by method and result.";
    text.family("towpath_requests_total", help, ["method", "result"], counts);
    let slow: u64 = all.workers.iter().map(|(meter, _)| meter.slow()).sum();
    let help = "Requests that took `slow_after_ms` or more.";
    text.one("towpath_requests_slow_total", help, slow);
    let Some(stats) = all.stats() else { return };
    text.family(
        "towpath_requests_given_up_total",
        "Requests that the store never saw, by reason.",
        ["reason"],
        [
            (["expired"], stats.expired),
            (["cancelled"], stats.cancelled),
            (["fenced"], stats.fenced),
            (["malformed"], stats.malformed + stats.rpc.malformed),
            (["busy"], stats.rpc.busy),
            (["too long"], stats.rpc.too_long),
        ],
    );
    let help = "Requests that no capability allowed, by reason.";
    let denied = Denied::ALL.map(|why| ([why.label()], stats.denied[why as usize]));
    text.family("towpath_requests_denied_total", help, ["reason"], denied);
    let help = "Requests that stopped half-way, by reason.";
    let stopped = StopReason::ALL.map(|why| ([why.label()], stats.stopped[why as usize]));
    text.family("towpath_requests_stopped_total", help, ["reason"], stopped);
    // Counted only where the settings ask for it.
    let handlers = stats.handlers;
    if handlers.calls.iter().any(|calls| *calls > 0) {
        let help = "Calls of handlers of requests with data.";
        let calls = Handler::ALL.map(|of| ([of.word()], handlers.calls[of as usize]));
        text.family("towpath_handler_calls_total", help, ["handler"], calls);
        let took = Handler::ALL.map(|of| ([of.word()], handlers.ns[of as usize] as f64 / 1e9));
        let help = "What all of them took.";
        text.family("towpath_handler_seconds_total", help, ["handler"], took);
    }
    let sum = |what: fn(&WorkerFigures) -> u64| all.told().map(what).sum::<u64>();
    text.one("towpath_requests_under_way", "Requests being served.", sum(|f| f.under_way));
    text.one("towpath_requests_waiting", "Requests that wait for the store.", sum(|f| f.waiting));
    let oldest_ns = all.told().map(|figures| figures.oldest_ns).max().unwrap_or(0);
    let help = "How long the oldest request is here.";
    text.one("towpath_request_oldest_seconds", help, oldest_ns as f64 / 1e9);
    text.one("towpath_read_bytes_total", "Bytes of reads answered.", stats.read_bytes);
    text.one("towpath_write_bytes_total", "Bytes of writes acknowledged.", stats.write_bytes);
    let help = "Writes that this server passed on, and that those behind have made.";
    text.one("towpath_writes_passed_on_total", help, stats.passed_on);
    let help = "Bytes of their data, once for each server that they were passed on to.";
    text.one("towpath_passed_on_bytes_total", help, stats.passed_on_bytes);
}

fn disks(text: &mut Text, disks: &[Disk<'_>]) {
    let states = [
        (DiskState::Serving, "serving"),
        (DiskState::ReadOnly, "read-only"),
        (DiskState::Failed, "failed"),
    ];
    let help = "1 for the state that a disk is in, 0 for the others.";
    let rows = disks.iter().flat_map(|disk| {
        states.map(|(state, word)| ([disk.name, word], u8::from(disk.state == state)))
    });
    text.family("towpath_disk_state", help, ["disk", "state"], rows);
}

/// What is told of each store, by disk: all families but those with a label of their own.
const OF_STORE: &[Of<StoreStats>] = &[
    ("towpath_store_capacity_bytes", "Bytes of slices that fit in all.", |s| s.capacity_bytes),
    ("towpath_store_chunks", "Chunks.", |s| s.chunks),
    ("towpath_store_log_bytes", "Bytes of the log in use.", |s| s.log_bytes),
    ("towpath_resident_bytes", "Bytes of slices of resident chunks in memory.", |s| {
        s.resident_bytes
    }),
    ("towpath_resident_max_bytes", "The most that may be.", |s| s.resident_bytes_max),
    ("towpath_store_commits_total", "Groups of changes made durable.", |s| s.commits),
    ("towpath_store_checkpoints_total", "Checkpoints written.", |s| s.checkpoints),
    ("towpath_store_reads_total", "Reads served from the disk.", |s| s.reads),
    ("towpath_store_no_space_total", "Changes refused for want of space.", |s| s.no_space),
    (
        "towpath_store_reads_retried_total",
        "Slices read a second time: an error, or a wrong checksum.",
        |s| s.reads_retried,
    ),
];

fn stores(text: &mut Text, disks: &[Disk<'_>]) {
    let told = || disks.iter().filter_map(|disk| Some((disk.name, disk.stats.as_ref()?)));
    text.family(
        "towpath_store_space_bytes",
        "Bytes of the disk: raw (all), reserved (no slice can have them), used (by slices), \
         retired (free soon), free.",
        ["disk", "kind"],
        told().flat_map(|(disk, stats)| {
            [
                ([disk, "raw"], stats.raw_bytes),
                ([disk, "reserved"], stats.reserved_bytes),
                ([disk, "used"], stats.live_bytes),
                ([disk, "retired"], stats.retired_bytes),
                ([disk, "free"], stats.free_bytes),
            ]
        }),
    );
    let help = "Whether the store takes no changes, by reason.";
    let rows = told().flat_map(|(disk, stats)| {
        let why = stats.read_only.map(ReadOnly::name);
        ReadOnly::NAMES.map(|reason| ([disk, reason], u8::from(why == Some(reason))))
    });
    text.family("towpath_store_read_only", help, ["disk", "reason"], rows);
    let help = "Changes that are durable, by what they are.";
    let rows = told().flat_map(|(disk, stats)| {
        let StoreStats { creates, writes, deletes, .. } = *stats;
        [([disk, "create"], creates), ([disk, "write"], writes), ([disk, "delete"], deletes)]
    });
    text.family("towpath_store_changes_total", help, ["disk", "change"], rows);
    for (name, help, of) in OF_STORE {
        text.family(name, help, ["disk"], told().map(|(disk, stats)| ([disk], of(stats))));
    }
}

/// What is told of the scrub of each disk.
const OF_SCRUB: &[Of<ScrubProgress, f64>] = &[
    (
        "towpath_scrub_rate_bytes",
        "Bytes a second of the background scrub; 0: there is none.",
        |s| s.rate as f64,
    ),
    ("towpath_scrub_progress_ratio", "The part of its pass that is done; 0 between passes.", |s| {
        s.checked as f64 / s.expected.max(s.checked).max(1) as f64
    }),
    (
        "towpath_scrub_last_pass_time_seconds",
        "When its last whole pass ended, since 1970; 0: never.",
        |s| s.last_pass_s as f64,
    ),
    ("towpath_scrub_read_bytes_total", "Bytes that it read.", |s| s.bytes as f64),
];

fn scrub(text: &mut Text, disks: &[Disk<'_>]) {
    for (name, help, of) in OF_SCRUB {
        let rows = disks.iter().map(|disk| ([disk.name], of(&disk.scrub)));
        text.family(name, help, ["disk"], rows);
    }
    let help = "Slices that it found bad, by what is wrong.";
    let rows = disks.iter().flat_map(|Disk { name, scrub, .. }| {
        [([*name, "checksum"], scrub.damaged), ([*name, "unreadable"], scrub.unreadable)]
    });
    text.family("towpath_scrub_bad_slices_total", help, ["disk", "fault"], rows);
}

/// By where it was seen; a part that did not tell is left out.
fn integrity(text: &mut Text, all: &Collected<'_>) {
    let stores = || all.disks.iter().filter_map(|disk| disk.stats.as_ref());
    let on_disk = stores().map(|stats| stats.slices_corrupt).reduce(|sum, more| sum + more);
    let on_disk = on_disk.map(|count| (["disk"], count));
    let on_wire = all.stats().map(|stats| {
        let in_store: u64 = stores().map(|stats| stats.wire_corrupt).sum();
        [
            (["write"], stats.wire_corrupt + in_store),
            (["chunk"], stats.links.payloads_bad),
            (["header"], stats.links.headers_bad),
        ]
    });
    text.family(
        "towpath_crc_mismatches_total",
        "Checksums that were wrong: of slices on the disk, of slices of writes that came, of \
         chunks and of their headers on the way.",
        ["where"],
        on_disk.into_iter().chain(on_wire.into_iter().flatten()),
    );
}

fn links(text: &mut Text, all: &Collected<'_>, stats: &ServerStats) {
    let count: u64 = all.told().map(|figures| figures.links).sum();
    text.one("towpath_links", "Clients that are connected.", count);
    let mut causes = BTreeMap::new();
    for (cause, count) in all.told().flat_map(|figures| &figures.degraded) {
        *causes.entry([cause]).or_insert(0) += count;
    }
    let help = "Links that are degraded, by cause (docs/health.md).";
    text.family("towpath_links_degraded", help, ["cause"], causes);
    text.family(
        "towpath_links_total",
        "Set-ups of links, and ends.",
        ["event"],
        [
            (["accepted"], stats.links_accepted),
            (["refused"], stats.links_refused),
            (["ended"], stats.links_down),
        ],
    );
    let links = stats.links;
    text.one("towpath_transport_chunks_sent_total", "Chunks sent.", links.chunks_sent);
    let name = "towpath_transport_chunks_retransmitted_total";
    text.one(name, "Chunks sent again.", links.chunks_retransmitted);
    text.one("towpath_transport_sent_bytes_total", "Bytes sent.", links.bytes_sent);
    text.one("towpath_transport_received_bytes_total", "Bytes received.", links.bytes_received);
    text.one("towpath_transport_timeouts_total", "Timeouts without any word.", links.rtos);
    let name = "towpath_transport_duplicates_total";
    text.one(name, "Chunks that came twice.", links.chunks_duplicate);
    text.one("towpath_transport_paths_failed_total", "Paths abandoned.", links.paths_failed);
}

/// Who can read and forge what links carry, and who has tried.
fn protection(text: &mut Text, all: &Collected<'_>) {
    let keys = all.told().find_map(|figures| figures.keys);
    let mode = keys.map_or(Mode::Open, |(mode, _)| mode).to_string();
    let help = "How links are protected (docs/secure-links.md); always 1.";
    text.family("towpath_protection_info", help, ["mode"], [([mode], 1)]);
    let Some((_, tally)) = keys else { return };
    let mut refused = Refusals::default();
    all.told().for_each(|figures| refused.add(&figures.refused));
    let help = "Packets that the seals of links have refused, by kind.";
    let kinds = refused.iter().filter(|(kind, _)| *kind != Refusal::UnknownSecret);
    let kinds = kinds.map(|(kind, count)| ([kind.name()], count));
    text.family("towpath_seal_refusals_total", help, ["kind"], kinds);
    text.family(
        "towpath_handshakes_total",
        "Handshakes of hosts: those that made a secret, those that failed, and HELLOs that named a \
         secret which is not known here, or had a wrong tag.",
        ["outcome"],
        [
            (["made"], tally.handshakes),
            (["failed"], tally.handshakes_failed),
            (["unknown_secret"], tally.unknown_secrets),
            (["forged"], tally.hellos_forged),
        ],
    );
    let help = "Links that ended because their peer was not trusted any more.";
    text.one("towpath_links_revoked_total", help, tally.links_revoked);
}

/// The buffers that links share. Of each pool the one peer is named that holds most.
fn pools(text: &mut Text, all: &Collected<'_>, stats: &ServerStats) {
    let told = || {
        let workers = all.workers.iter().enumerate();
        workers.filter_map(|(worker, (_, figures))| Some((worker.to_string(), figures.as_ref()?)))
    };
    let pools = || {
        told().flat_map(|(worker, figures)| {
            figures.pools.iter().map(move |pool| (worker.clone(), pool.name(), pool))
        })
    };
    let help = "Buffers that links share: out, and all of them (max).";
    let rows = pools().flat_map(|(worker, name, pool)| {
        [("out", pool.out), ("max", pool.max)]
            .map(|(state, count)| ([worker.clone(), name.to_string(), state.into()], count))
    });
    text.family("towpath_pool_buffers", help, ["worker", "pool", "state"], rows);
    let help = "What the link holds that holds most of a pool, and its peer.";
    let rows = pools().map(|(worker, name, pool)| {
        let peer = pool.most.and_then(|most| most.peer).map(|peer| peer.to_string());
        let held = pool.most.map_or(0, |most| most.held);
        ([worker, name.to_string(), peer.unwrap_or_default()], held)
    });
    text.family("towpath_pool_most_held_buffers", help, ["worker", "pool", "peer"], rows);
    let help = "Refusals and fates that were not sent, because their links take none in.";
    text.one("towpath_refusals_dropped_total", help, stats.rpc.notes_dropped);
    let help = "Those of the connected client to whom most were not sent.";
    let rows = told().map(|(worker, figures)| {
        let (peer, count) = figures.most_dropped.clone().unwrap_or_default();
        ([worker, peer], count)
    });
    text.family("towpath_refusals_dropped_most", help, ["worker", "peer"], rows);
}

/// What is told of each tenant.
const OF_TENANT: &[Of<TenantReport>] = &[
    ("towpath_qos_tenant_reserved", "Tokens a second that are reserved.", |t| t.reserve.into()),
    ("towpath_qos_tenant_requests_total", "Requests that took tokens.", |t| t.requests),
    ("towpath_qos_tenant_reserved_used_total", "Own tokens used.", |t| t.used_reserved),
    ("towpath_qos_tenant_pooled_used_total", "Tokens of the pool used.", |t| t.used_pooled),
    (
        "towpath_qos_tenant_missed_periods_total",
        "Periods in which less was done than is reserved, though there was demand.",
        |t| t.missed_periods,
    ),
    (
        "towpath_qos_tenant_cut_off_total",
        "How often its client was cut off for I/O without tokens.",
        |t| t.cut_off,
    ),
];

/// Of so many tenants as have a place on a worker, in the order of the file of tenants.
fn reservations(text: &mut Text, qos: &QosReply) {
    let help = "Capacity as it is estimated, a period.";
    text.one("towpath_qos_estimated_tokens", help, qos.estimate);
    text.one("towpath_qos_reserved_tokens", "Tokens a period that are reserved.", qos.reserved);
    let refused = qos.refused.len();
    text.one("towpath_qos_refused_tenants", "Tenants that are not admitted.", refused);
    text.one("towpath_qos_periods_total", "Periods that have begun.", qos.periods);
    for (name, help, of) in OF_TENANT {
        let tenants = qos.tenants.iter().take(TENANTS_SHOWN);
        text.family(name, help, ["tenant"], tenants.map(|tenant| ([&tenant.name], of(tenant))));
    }
}
