//! `towpath links`: what the workers and links of a running process use, beside their limits.

use towpath_status::{LinkStatus, PoolStatus, ProcessStatus, ServedStatus, WorkerStatus};

use super::{asked, heading, unnamed};
use crate::cli::args::StatusArgs;
use crate::cli::bytes::{show_count, show_size};
use crate::cli::error::CliError;
use crate::cli::{print_json, print_text};
use crate::columns::columns;

/// Shows what the workers of a process, and its links, use now.
pub(crate) fn links(args: &StatusArgs) -> Result<(), CliError> {
    let status = asked(&args.socket)?;
    if args.json { print_json(&status) } else { print_text(&links_text(&status)) }
}

fn links_text(status: &ProcessStatus) -> String {
    let mut text = heading(status);
    if status.per_worker.is_empty() {
        return text + "it does not tell what it uses: its version is an older one\n";
    }
    text += &format!("processor time of the process {} s\n\n", seconds(status.cpu_ns));
    let rows: Vec<_> = status.per_worker.iter().map(worker_row).collect();
    text += &columns(WORKER_HEAD, &[], &rows);
    let pools = status.per_worker.iter().flat_map(|of| of.pools.iter().map(move |pool| (of, pool)));
    let rows: Vec<_> = pools.map(|(worker, pool)| pool_row(worker, pool)).collect();
    if !rows.is_empty() {
        text += &format!("\n{}", columns(POOL_HEAD, &[0, 4], &rows));
    }
    if status.links.is_empty() {
        return text;
    }
    let rows: Vec<_> = status.links.iter().map(link_row).collect();
    text += &format!("\n{}", columns(LINK_HEAD, &[2, 3, 4], &rows));
    text += &protections(status);
    let rows: Vec<_> = status.links.iter().filter(|link| has_lane(link)).map(lane_row).collect();
    if !rows.is_empty() {
        text += &format!("\n{}", columns(LANE_HEAD, &[2], &rows));
    }
    text + &unnamed(status)
}

const WORKER_HEAD: [&str; 7] = [
    "worker",
    "cpu s",
    "links",
    "queue pairs",
    "receives posted",
    "receive buffers",
    "send buffers out",
];

fn worker_row(worker: &WorkerStatus) -> [String; 7] {
    [
        worker.worker.to_string(),
        seconds(worker.cpu_ns),
        within(worker.links, worker.links_max),
        within(worker.qps, worker.qps_max),
        within(worker.receives_posted, worker.receives_wanted),
        within(worker.receive_buffers, worker.receive_buffers_max),
        within(worker.send_buffers_out, worker.send_buffers_max),
    ]
}

const POOL_HEAD: [&str; 6] =
    ["buffers: for, bytes", "worker", "out", "most held by link", "peer", "which holds"];

fn pool_row(worker: &WorkerStatus, pool: &PoolStatus) -> [String; 6] {
    let none = || String::from("-");
    [
        pool.name.clone(),
        worker.worker.to_string(),
        within(pool.out, pool.max),
        pool.most_link.map_or_else(none, |link| link.to_string()),
        pool.most_peer.map_or_else(none, |peer| peer.to_string()),
        show_count(pool.most_held),
    ]
}

const LINK_HEAD: [&str; 14] = [
    "link",
    "worker",
    "peer",
    "class",
    "over",
    "qps",
    "channels",
    "credit given",
    "left",
    "messages",
    "queued",
    "bytes",
    "flight",
    "window",
];

fn link_row(link: &LinkStatus) -> [String; 14] {
    [
        link.index.to_string(),
        link.worker.to_string(),
        link.peer.map_or_else(|| String::from("?"), |peer| peer.to_string()),
        link.class.to_string(),
        link.carrier.to_string(),
        link.qps.to_string(),
        within(link.channels, link.channels_max),
        within(link.credit_given, link.credit_given_max),
        show_count(link.credit_left),
        within(link.sends, link.sends_max),
        show_count(link.messages_queued),
        show_size(link.queued_bytes),
        show_size(link.in_flight_bytes),
        show_size(link.window_bytes),
    ]
}

const PROTECTION_HEAD: [&str; 5] =
    ["protection: link", "worker", "peer", "packets refused", "protected by"];

/// How links are protected: in a line where none is. A process of an older version does not tell.
fn protections(status: &ProcessStatus) -> String {
    let told = || status.links.iter().filter(|link| !link.protection.is_empty());
    let Some(first) = told().next() else { return String::new() };
    if told().all(|link| link.protection == first.protection && link.protection.starts_with("open"))
    {
        return format!("\nall links are {}\n", first.protection);
    }
    let rows: Vec<_> = told().map(protection_row).collect();
    format!("\n{}", columns(PROTECTION_HEAD, &[2, 3, 4], &rows))
}

fn protection_row(link: &LinkStatus) -> [String; 5] {
    let refused = link.refused.iter().map(|(kind, count)| format!("{} {kind}", show_count(*count)));
    let refused: Vec<_> = refused.collect();
    [
        link.index.to_string(),
        link.worker.to_string(),
        link.peer.map_or_else(|| String::from("?"), |peer| peer.to_string()),
        if refused.is_empty() { String::from("none") } else { refused.join(", ") },
        link.protection.clone(),
    ]
}

/// Whether memory of it was granted, or one-sided operations were asked for.
fn has_lane(link: &LinkStatus) -> bool {
    link.operations_max > 0
}

const LANE_HEAD: [&str; 14] = [
    "one-sided: link",
    "worker",
    "peer",
    "grants",
    "asked for",
    "at the device",
    "executed",
    "denied",
    "not executed",
    "unknown",
    "refused",
    "read here",
    "written here",
    "atomics here",
];

fn lane_row(link: &LinkStatus) -> [String; 14] {
    let served = |show: fn(&ServedStatus) -> String| {
        link.served.as_ref().map_or_else(|| String::from("-"), show)
    };
    [
        link.index.to_string(),
        link.worker.to_string(),
        link.peer.map_or_else(|| String::from("?"), |peer| peer.to_string()),
        show_count(link.grants),
        within(link.operations, link.operations_max),
        show_count(link.operations_posted),
        show_count(link.operations_executed),
        show_count(link.operations_denied),
        show_count(link.operations_not_executed),
        show_count(link.operations_unknown),
        show_count(link.operations_refused),
        served(|served| of_size(served.reads, served.read_bytes)),
        served(|served| of_size(served.writes, served.write_bytes)),
        served(|served| show_count(served.atomics)),
    ]
}

fn within(used: u64, most: u64) -> String {
    format!("{} of {}", show_count(used), show_count(most))
}

fn of_size(count: u64, bytes: u64) -> String {
    format!("{} ({})", show_count(count), show_size(bytes))
}

fn seconds(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_shown_beside_its_limit() {
        let status = r#"{"program":"p","pid":7,"device":"10.0.0.1:4791","carrier":"UC",
            "workers":2,"workers_silent":1,"cpu_ns":3456000000,"link_count":1003,
            "per_worker":[{"worker":1,"cpu_ns":1234000000,"links":3,"links_max":1000,"qps":6,
              "qps_max":2000,"receives_posted":1500,"receives_wanted":1596,"receive_buffers":1600,
              "receive_buffers_max":140000,"send_buffers_out":2,"send_buffers_max":6432,
              "pools":[{"name":"send 256","out":1300,"max":4096,"most_link":4,
                "most_peer":"10.0.0.2:4791","most_held":1200},
                {"name":"receive 61440","max":131072}]}],
            "links":[{"index":4,"worker":1,"peer":"10.0.0.2:4791","class":"gold","carrier":"UC",
              "qps":2,"channels":3,"channels_max":1024,"credit_given":384,"credit_given_max":4096,
              "credit_left":120,"sends":17,"sends_max":4096,"messages_queued":12,
              "queued_bytes":1572864,"in_flight_bytes":4096,"window_bytes":65536,"grants":2,
              "operations":64,"operations_posted":16,"operations_max":256,
              "operations_executed":123456,"operations_denied":1,"operations_not_executed":2,
              "operations_unknown":3,"operations_refused":4,
              "served":{"reads":1025,"read_bytes":4198400,"reads_again":1,"read_again_bytes":4096,
                "writes":2,"write_bytes":16,"atomics":70000}},
              {"index":6,"worker":1,"class":"gold","carrier":"UC","grants":1,
              "operations_max":256},
              {"index":5,"worker":1,"class":"gold","carrier":"UC"}]}"#;
        let text = links_text(&serde_json::from_str(status).expect("a status"));
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = text.lines().map(words).collect();
        let expected = [
            "p, process 7, device 10.0.0.1:4791: 1,003 links, new ones over UC",
            "2 workers, 1 of them silent",
            "processor time of the process 3.46 s",
            "",
            "worker cpu s links queue pairs receives posted receive buffers send buffers out",
            "1 1.23 3 of 1,000 6 of 2,000 1,500 of 1,596 1,600 of 140,000 2 of 6,432",
            "",
            "buffers: for, bytes worker out most held by link peer which holds",
            "send 256 1 1,300 of 4,096 4 10.0.0.2:4791 1,200",
            "receive 61440 1 0 of 131,072 - - 0",
            "",
            "link worker peer class over qps channels credit given left messages queued bytes \
             flight window",
            "4 1 10.0.0.2:4791 gold UC 2 3 of 1,024 384 of 4,096 120 17 of 4,096 12 1.5 MiB \
             4 KiB 64 KiB",
            "6 1 ? gold UC 0 0 of 0 0 of 0 0 0 of 0 0 0 bytes 0 bytes 0 bytes",
            "5 1 ? gold UC 0 0 of 0 0 of 0 0 0 of 0 0 0 bytes 0 bytes 0 bytes",
            "",
            "one-sided: link worker peer grants asked for at the device executed denied not \
             executed unknown refused read here written here atomics here",
            "4 1 10.0.0.2:4791 2 64 of 256 16 123,456 1 2 3 4 1,025 (4.0 MiB) 2 (16 bytes) 70,000",
            "6 1 ? 1 0 of 256 0 0 0 0 0 0 - - -",
            "",
            "and 1,000 more links",
        ];
        assert_eq!(lines, expected);
        let widths: Vec<_> = text.lines().map(str::len).collect();
        assert_eq!(
            (widths[4], widths[11]),
            (widths[5], widths[12]),
            "columns are straight\n{text}"
        );
    }

    #[test]
    fn what_protects_links_is_told_of_each_or_that_nothing_does() {
        let status = |links: &str| {
            let text = format!(r#"{{"per_worker":[{{}}],"links":[{links}]}}"#);
            links_text(&serde_json::from_str(&text).expect("a status"))
        };
        let open = r#"{"index":4,"protection":"open: everybody may read it"}"#;
        let text = status(&format!("{open},{open}"));
        assert!(text.contains("\nall links are open: everybody may read it\n"), "{text}");
        let sealed = r#"{"index":5,"protection":"encrypted, peer b","refused":{"replay":1200}}"#;
        let text = status(&format!("{sealed},{open}"));
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = text.lines().map(words).collect();
        for line in [
            "protection: link worker peer packets refused protected by",
            "5 0 ? 1,200 replay encrypted, peer b",
            "4 0 ? none open: everybody may read it",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_process_of_an_older_version_is_not_shown_as_one_that_uses_nothing() {
        let old = r#"{"program":"p","pid":7,"workers":1,"link_count":1,"links":[{"index":4}]}"#;
        let text = links_text(&serde_json::from_str(old).expect("fields may be missing"));
        assert!(text.ends_with("its version is an older one\n"), "{text}");
        assert!(!text.contains("0 of 0"), "{text}");
    }
}
