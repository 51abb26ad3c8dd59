//! All that was collected as families of metrics.

use towpath_fastpath::cap::Denied;
use towpath_fastpath::qos::wire::{QosReply, TenantReport};
use towpath_transport::Class;

use super::ALL_TENANTS;
use super::collect::{Collected, Disk};
use super::control::interference;
use super::histogram::{BOUNDS, Counts, bound_seconds};
use super::meter::{METHODS, Phase, TENANTS_SHOWN};
use super::text::{Kind, Labels, Text};
use crate::service::{
    Handler, HandlerTimes, ScrubProgress, ServerStats, StopReason, WorkerFigures,
};
use crate::store::core::DiskState;
use crate::store::{ReadOnly, StoreStats};

/// Stands for all tenants that have no place of their own.
const OTHER_TENANTS: &str = "other";

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
    let told = || all.workers.iter().filter_map(|(_, figures)| figures.as_ref());
    if told().count() > 0 {
        links(&mut text, told);
        pools(&mut text, all);
    }
    if told().count() > 0 {
        interference(&mut text, told().find_map(|figures| figures.interference.as_ref()));
    }
    if let Some(qos) = told().find_map(|figures| figures.qos.as_ref()) {
        reservations(&mut text, qos);
    }
    text.into_string()
}

fn about(text: &mut Text, all: &Collected<'_>) {
    text.family("towpath_build_info", Kind::Gauge, "The program; always 1.");
    text.line("towpath_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let (name, help) = ("towpath_start_time_seconds", "When the server began, since 1970.");
    text.one(name, Kind::Gauge, help, all.started_s);
    let name = "towpath_collect_success";
    let help = "Whether a part of the server told its figures in time; those of one that did not \
                are left out.";
    text.family(name, Kind::Gauge, help);
    for disk in &all.disks {
        let part = format!("disk {}", disk.name);
        text.line(name, &[("part", &part)], u8::from(disk.stats.is_some()));
    }
    for (index, (_, figures)) in all.workers.iter().enumerate() {
        let part = format!("worker {index}");
        text.line(name, &[("part", &part)], u8::from(figures.is_some()));
    }
}

/// Whose histogram it is.
type Whose = (String, Class, Phase);

fn phases(text: &mut Text, all: &Collected<'_>) {
    let names = all.workers.iter().find_map(|(_, figures)| figures.as_ref());
    let names: &[String] = names.map_or(&[], |figures| &figures.tenants);
    let mut found: Vec<(Whose, Counts)> = Vec::new();
    for (meter, _) in &all.workers {
        meter.each(|tenant, class, phase, counts| {
            let name = match tenant {
                None => OTHER_TENANTS,
                Some(0) if names.is_empty() => ALL_TENANTS,
                // A worker that is stuck does not tell the name.
                Some(tenant) => names.get(tenant).map_or(OTHER_TENANTS, String::as_str),
            };
            let whose = |known: &(Whose, Counts)| {
                known.0.0 == name && known.0.1 == class && known.0.2 == phase
            };
            match found.iter_mut().find(|known| whose(known)) {
                Some((_, sum)) => sum.add(&counts),
                None => found.push(((name.to_owned(), class, phase), counts)),
            }
        });
    }
    let name = "towpath_request_phase_seconds";
    let help = "Time of requests in each phase: receive, check, queue, disk, flush, answer.";
    text.family(name, Kind::Histogram, help);
    for ((tenant, class, phase), counts) in found {
        let class = class.to_string();
        let labels = [("phase", phase.name()), ("class", &class), ("tenant", &tenant)];
        histogram(text, name, labels, &counts);
    }
}

fn histogram(text: &mut Text, name: &str, labels: [(&str, &str); 3], counts: &Counts) {
    let [one, two, three] = labels;
    let (bucket, mut total) = (format!("{name}_bucket"), 0);
    for (at, count) in counts.buckets.iter().enumerate() {
        total += count;
        let bound = if at == BOUNDS { String::from("+Inf") } else { bound_seconds(at).to_string() };
        text.line(&bucket, &[one, two, three, ("le", &bound)], total);
    }
    text.line(&format!("{name}_sum"), &labels, counts.sum_ns as f64 / 1e9);
    text.line(&format!("{name}_count"), &labels, total);
}

fn requests(text: &mut Text, all: &Collected<'_>) {
    let name = "towpath_requests_total";
    text.family(name, Kind::Counter, "Requests that were answered, by method and result.");
    for (method, word) in METHODS.iter().enumerate() {
        let counts = all.workers.iter().map(|(meter, _)| meter.requests(method));
        let [good, bad] = counts.fold([0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
        text.line(name, &[("method", word), ("result", "done")], good);
        text.line(name, &[("method", word), ("result", "failed")], bad);
    }
    let slow: u64 = all.workers.iter().map(|(meter, _)| meter.slow()).sum();
    let (name, help) =
        ("towpath_requests_slow_total", "Requests that took `slow_after_ms` or more.");
    text.one(name, Kind::Counter, help, slow);
    let told = || all.workers.iter().filter_map(|(_, figures)| figures.as_ref());
    if told().count() == 0 {
        return;
    }
    let stats = sum(told());
    let name = "towpath_requests_given_up_total";
    text.family(name, Kind::Counter, "Requests that the store never saw, by reason.");
    for (why, count) in [
        ("expired", stats.expired),
        ("cancelled", stats.cancelled),
        ("fenced", stats.fenced),
        ("malformed", stats.malformed + stats.rpc.malformed),
        ("busy", stats.rpc.busy),
        ("too long", stats.rpc.too_long),
    ] {
        text.line(name, &[("reason", why)], count);
    }
    let name = "towpath_requests_denied_total";
    text.family(name, Kind::Counter, "Requests that no capability allowed, by reason.");
    for why in Denied::ALL {
        text.line(name, &[("reason", why.label())], stats.denied[why as usize]);
    }
    let name = "towpath_requests_stopped_total";
    text.family(name, Kind::Counter, "Requests that stopped half-way, by reason.");
    for reason in StopReason::ALL {
        text.line(name, &[("reason", reason.label())], stats.stopped[reason as usize]);
    }
    handlers(text, &stats);
    let gauge = |what: fn(&WorkerFigures) -> u64| told().map(what).sum::<u64>();
    let oldest = told().map(|figures| figures.oldest_ns).max().unwrap_or(0);
    ones(
        text,
        Kind::Gauge,
        &[
            ("towpath_requests_under_way", "Requests being served.", gauge(|f| f.under_way)),
            ("towpath_requests_waiting", "Requests that wait for the store.", gauge(|f| f.waiting)),
        ],
    );
    let (name, help) = ("towpath_request_oldest_seconds", "How long the oldest request is here.");
    text.one(name, Kind::Gauge, help, oldest as f64 / 1e9);
    ones(
        text,
        Kind::Counter,
        &[
            ("towpath_read_bytes_total", "Bytes of reads answered.", stats.read_bytes),
            ("towpath_write_bytes_total", "Bytes of writes acknowledged.", stats.write_bytes),
            (
                "towpath_writes_passed_on_total",
                "Writes that this server passed on, and that those behind have made.",
                stats.passed_on,
            ),
            (
                "towpath_passed_on_bytes_total",
                "Bytes of their data, once for each server that they were passed on to.",
                stats.passed_on_bytes,
            ),
        ],
    );
}

/// What the handlers of requests with data took, where that is counted.
fn handlers(text: &mut Text, stats: &ServerStats) {
    let HandlerTimes { calls, ns, .. } = stats.handlers;
    if calls.iter().all(|calls| *calls == 0) {
        return;
    }
    let name = "towpath_handler_calls_total";
    text.family(name, Kind::Counter, "Calls of handlers of requests with data.");
    for handler in Handler::ALL {
        text.line(name, &[("handler", handler.word())], calls[handler as usize]);
    }
    let name = "towpath_handler_seconds_total";
    text.family(name, Kind::Counter, "What all of them took.");
    for handler in Handler::ALL {
        text.line(name, &[("handler", handler.word())], ns[handler as usize] as f64 / 1e9);
    }
}

fn sum<'a>(told: impl Iterator<Item = &'a WorkerFigures>) -> ServerStats {
    told.fold(ServerStats::default(), |mut sum, figures| {
        sum += figures.stats;
        sum
    })
}

fn ones(text: &mut Text, kind: Kind, lines: &[(&str, &str, u64)]) {
    for (name, help, value) in lines {
        text.one(name, kind, help, value);
    }
}

fn labelled(text: &mut Text, kind: Kind, (name, help): (&str, &str), lines: &[(Labels<'_>, u64)]) {
    text.family(name, kind, help);
    for (labels, value) in lines {
        text.line(name, labels, value);
    }
}

fn disks(text: &mut Text, disks: &[Disk<'_>]) {
    let name = "towpath_disk_state";
    text.family(name, Kind::Gauge, "1 for the state that a disk is in, 0 for the others.");
    for disk in disks {
        for (state, word) in [
            (DiskState::Serving, "serving"),
            (DiskState::ReadOnly, "read-only"),
            (DiskState::Failed, "failed"),
        ] {
            let labels = [("disk", disk.name), ("state", word)];
            text.line(name, &labels, u8::from(disk.state == state));
        }
    }
}

/// What is told of each store, by disk: all families but those with a label of their own.
type OfStore = (&'static str, Kind, &'static str, fn(&StoreStats) -> u64);

const OF_STORE: &[OfStore] = &[
    ("towpath_store_capacity_bytes", Kind::Gauge, "Bytes of slices that fit in all.", |s| {
        s.capacity_bytes
    }),
    ("towpath_store_chunks", Kind::Gauge, "Chunks.", |s| s.chunks),
    ("towpath_store_log_bytes", Kind::Gauge, "Bytes of the log in use.", |s| s.log_bytes),
    ("towpath_resident_bytes", Kind::Gauge, "Bytes of slices of resident chunks in memory.", |s| {
        s.resident_bytes
    }),
    ("towpath_resident_max_bytes", Kind::Gauge, "The most that may be.", |s| s.resident_bytes_max),
    ("towpath_store_commits_total", Kind::Counter, "Groups of changes made durable.", |s| {
        s.commits
    }),
    ("towpath_store_checkpoints_total", Kind::Counter, "Checkpoints written.", |s| s.checkpoints),
    ("towpath_store_reads_total", Kind::Counter, "Reads served from the disk.", |s| s.reads),
    ("towpath_store_no_space_total", Kind::Counter, "Changes refused for want of space.", |s| {
        s.no_space
    }),
    (
        "towpath_store_reads_retried_total",
        Kind::Counter,
        "Slices read a second time: an error, or a wrong checksum.",
        |s| s.reads_retried,
    ),
];

fn stores(text: &mut Text, disks: &[Disk<'_>]) {
    let told = || disks.iter().filter_map(|disk| Some((disk.name, disk.stats.as_ref()?)));
    let name = "towpath_store_space_bytes";
    let help = "Bytes of the disk: raw (all), reserved (no slice can have them), used (by slices), \
                retired (free soon), free.";
    text.family(name, Kind::Gauge, help);
    for (disk, stats) in told() {
        for (kind, bytes) in [
            ("raw", stats.raw_bytes),
            ("reserved", stats.reserved_bytes),
            ("used", stats.live_bytes),
            ("retired", stats.retired_bytes),
            ("free", stats.free_bytes),
        ] {
            text.line(name, &[("disk", disk), ("kind", kind)], bytes);
        }
    }
    let name = "towpath_store_read_only";
    text.family(name, Kind::Gauge, "Whether the store takes no changes, by reason.");
    for (disk, stats) in told() {
        for reason in ReadOnly::NAMES {
            let is_it = stats.read_only.is_some_and(|why| why.name() == reason);
            text.line(name, &[("disk", disk), ("reason", reason)], u8::from(is_it));
        }
    }
    let name = "towpath_store_changes_total";
    text.family(name, Kind::Counter, "Changes that are durable, by what they are.");
    for (disk, stats) in told() {
        for (change, count) in
            [("create", stats.creates), ("write", stats.writes), ("delete", stats.deletes)]
        {
            text.line(name, &[("disk", disk), ("change", change)], count);
        }
    }
    for (name, kind, help, of) in OF_STORE {
        text.family(name, *kind, help);
        told().for_each(|(disk, stats)| text.line(name, &[("disk", disk)], of(stats)));
    }
}

/// What is told of the scrub of each disk.
type OfScrub = (&'static str, Kind, &'static str, fn(&ScrubProgress) -> f64);

const OF_SCRUB: &[OfScrub] = &[
    (
        "towpath_scrub_rate_bytes",
        Kind::Gauge,
        "Bytes a second of the background scrub; 0: there is none.",
        |s| s.rate as f64,
    ),
    (
        "towpath_scrub_progress_ratio",
        Kind::Gauge,
        "The part of its pass that is done; 0 between passes.",
        |s| s.checked as f64 / s.expected.max(s.checked).max(1) as f64,
    ),
    (
        "towpath_scrub_last_pass_time_seconds",
        Kind::Gauge,
        "When its last whole pass ended, since 1970; 0: never.",
        |s| s.last_pass_s as f64,
    ),
    ("towpath_scrub_read_bytes_total", Kind::Counter, "Bytes that it read.", |s| s.bytes as f64),
];

fn scrub(text: &mut Text, disks: &[Disk<'_>]) {
    for (name, kind, help, of) in OF_SCRUB {
        text.family(name, *kind, help);
        disks.iter().for_each(|disk| text.line(name, &[("disk", disk.name)], of(&disk.scrub)));
    }
    let name = "towpath_scrub_bad_slices_total";
    text.family(name, Kind::Counter, "Slices that it found bad, by what is wrong.");
    for Disk { name: disk, scrub, .. } in disks {
        for (fault, count) in [("checksum", scrub.damaged), ("unreadable", scrub.unreadable)] {
            text.line(name, &[("disk", disk), ("fault", fault)], count);
        }
    }
}

/// By where it was seen; a part that did not tell is left out.
fn integrity(text: &mut Text, all: &Collected<'_>) {
    let name = "towpath_crc_mismatches_total";
    let help = "Checksums that were wrong: of slices on the disk, of slices of writes that came, \
                of chunks and of their headers on the way.";
    text.family(name, Kind::Counter, help);
    let stores = || all.disks.iter().filter_map(|disk| disk.stats.as_ref());
    if stores().count() > 0 {
        let count: u64 = stores().map(|stats| stats.slices_corrupt).sum();
        text.line(name, &[("where", "disk")], count);
    }
    let told = all.workers.iter().filter_map(|(_, figures)| figures.as_ref());
    let stats = sum(told);
    if all.workers.iter().any(|(_, figures)| figures.is_some()) {
        let in_store: u64 = stores().map(|stats| stats.wire_corrupt).sum();
        text.line(name, &[("where", "write")], stats.wire_corrupt + in_store);
        text.line(name, &[("where", "chunk")], stats.links.payloads_bad);
        text.line(name, &[("where", "header")], stats.links.headers_bad);
    }
}

fn links<'a, I: Iterator<Item = &'a WorkerFigures>>(text: &mut Text, told: impl Fn() -> I) {
    let stats = sum(told());
    ones(
        text,
        Kind::Gauge,
        &[("towpath_links", "Clients that are connected.", told().map(|f| f.links).sum())],
    );
    let mut causes: Vec<(&str, u64)> = Vec::new();
    for (cause, count) in told().flat_map(|figures| &figures.degraded) {
        match causes.iter_mut().find(|(known, _)| known == cause) {
            Some((_, sum)) => *sum += count,
            None => causes.push((cause, *count)),
        }
    }
    let name = "towpath_links_degraded";
    text.family(name, Kind::Gauge, "Links that are degraded, by cause (docs/health.md).");
    for (cause, count) in causes {
        text.line(name, &[("cause", cause)], count);
    }
    let help = "Set-ups of links, and ends.";
    labelled(
        text,
        Kind::Counter,
        ("towpath_links_total", help),
        &[
            (&[("event", "accepted")], stats.links_accepted),
            (&[("event", "refused")], stats.links_refused),
            (&[("event", "ended")], stats.links_down),
        ],
    );
    let links = stats.links;
    ones(
        text,
        Kind::Counter,
        &[
            ("towpath_transport_chunks_sent_total", "Chunks sent.", links.chunks_sent),
            (
                "towpath_transport_chunks_retransmitted_total",
                "Chunks sent again.",
                links.chunks_retransmitted,
            ),
            ("towpath_transport_sent_bytes_total", "Bytes sent.", links.bytes_sent),
            ("towpath_transport_received_bytes_total", "Bytes received.", links.bytes_received),
            ("towpath_transport_timeouts_total", "Timeouts without any word.", links.rtos),
            (
                "towpath_transport_duplicates_total",
                "Chunks that came twice.",
                links.chunks_duplicate,
            ),
            ("towpath_transport_paths_failed_total", "Paths abandoned.", links.paths_failed),
        ],
    );
}

/// The buffers that links share. Of each pool the one peer is named that holds most.
fn pools(text: &mut Text, all: &Collected<'_>) {
    let told = || {
        let workers = all.workers.iter().enumerate();
        workers.filter_map(|(worker, (_, figures))| Some((worker.to_string(), figures.as_ref()?)))
    };
    let name = "towpath_pool_buffers";
    text.family(name, Kind::Gauge, "Buffers that links share: out, and all of them (max).");
    for (worker, figures) in told() {
        for pool in &figures.pools {
            let pool_name = pool.name();
            for (state, count) in [("out", pool.out), ("max", pool.max)] {
                text.line(
                    name,
                    &[("worker", &worker), ("pool", &pool_name), ("state", state)],
                    count,
                );
            }
        }
    }
    let name = "towpath_pool_most_held_buffers";
    let help = "What the link holds that holds most of a pool, and its peer.";
    text.family(name, Kind::Gauge, help);
    for (worker, figures) in told() {
        for pool in &figures.pools {
            let peer = pool.most.and_then(|most| most.peer);
            let peer = peer.map_or_else(String::new, |peer| peer.to_string());
            let held = pool.most.map_or(0, |most| most.held);
            text.line(name, &[("worker", &worker), ("pool", &pool.name()), ("peer", &peer)], held);
        }
    }
    let dropped = sum(told().map(|(_, figures)| figures)).rpc.notes_dropped;
    let name = "towpath_refusals_dropped_total";
    let help = "Refusals and fates that were not sent, because their links take none in.";
    text.one(name, Kind::Counter, help, dropped);
    let name = "towpath_refusals_dropped_most";
    let help = "Those of the connected client to whom most were not sent.";
    text.family(name, Kind::Gauge, help);
    for (worker, figures) in told() {
        let (peer, count) = figures.most_dropped.clone().unwrap_or_default();
        text.line(name, &[("worker", &worker), ("peer", &peer)], count);
    }
}

/// What is told of each tenant.
type OfTenant = (&'static str, Kind, &'static str, fn(&TenantReport) -> u64);

const OF_TENANT: &[OfTenant] = &[
    ("towpath_qos_tenant_reserved", Kind::Gauge, "Tokens a second that are reserved.", |t| {
        t.reserve.into()
    }),
    ("towpath_qos_tenant_requests_total", Kind::Counter, "Requests that took tokens.", |t| {
        t.requests
    }),
    ("towpath_qos_tenant_reserved_used_total", Kind::Counter, "Own tokens used.", |t| {
        t.used_reserved
    }),
    ("towpath_qos_tenant_pooled_used_total", Kind::Counter, "Tokens of the pool used.", |t| {
        t.used_pooled
    }),
    (
        "towpath_qos_tenant_missed_periods_total",
        Kind::Counter,
        "Periods in which less was done than is reserved, though there was demand.",
        |t| t.missed_periods,
    ),
    (
        "towpath_qos_tenant_cut_off_total",
        Kind::Counter,
        "How often its client was cut off for I/O without tokens.",
        |t| t.cut_off,
    ),
];

/// Of so many tenants as have a place on a worker, in the order of the file of tenants.
fn reservations(text: &mut Text, qos: &QosReply) {
    ones(
        text,
        Kind::Gauge,
        &[
            (
                "towpath_qos_estimated_tokens",
                "Capacity as it is estimated, a period.",
                qos.estimate.into(),
            ),
            ("towpath_qos_reserved_tokens", "Tokens a period that are reserved.", qos.reserved),
            (
                "towpath_qos_refused_tenants",
                "Tenants that are not admitted.",
                qos.refused.len() as u64,
            ),
        ],
    );
    ones(
        text,
        Kind::Counter,
        &[("towpath_qos_periods_total", "Periods that have begun.", qos.periods)],
    );
    for (name, kind, help, of) in OF_TENANT {
        text.family(name, *kind, help);
        for tenant in qos.tenants.iter().take(TENANTS_SHOWN) {
            text.line(name, &[("tenant", &tenant.name)], of(tenant));
        }
    }
}
