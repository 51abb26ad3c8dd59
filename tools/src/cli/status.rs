//! `towpath paths` and `links`: what a running process on this machine tells of its links.

mod links;

use std::fmt::Write as _;
use std::path::Path;

use towpath_status::limits::STATUS_NAME;
use towpath_status::{LinkStatus, ProcessStatus, ask};

use super::args::StatusArgs;
use super::bytes::show_count;
use super::error::CliError;
use super::{print_json, print_text};
use crate::path_table::{path_table, us};

pub(crate) use links::links;

/// Shows how the paths of each link of a process stand.
pub(crate) fn paths(args: &StatusArgs) -> Result<(), CliError> {
    let status = asked(&args.socket)?;
    if args.json { print_json(&status) } else { print_text(&paths_text(&status)) }
}

fn asked(socket: &Path) -> Result<ProcessStatus, CliError> {
    let within = socket.join(STATUS_NAME);
    Ok(ask(if socket.is_dir() { &within } else { socket })?)
}

fn paths_text(status: &ProcessStatus) -> String {
    let mut text = heading(status);
    for link in &status.links {
        text += &link_text(link, status.workers > 1);
    }
    text + &unnamed(status)
}

/// Which process it is.
fn heading(status: &ProcessStatus) -> String {
    let ProcessStatus { program, pid, device, carrier, workers, link_count, .. } = status;
    let device = device.map_or_else(|| String::from("?"), |device| device.to_string());
    let mut text = format!(
        "{program}, process {pid}, device {device}: {} links, new ones over {carrier}\n",
        show_count(*link_count)
    );
    if *workers > 1 {
        text += &format!("{workers} workers, {} of them silent\n", status.workers_silent);
    }
    text
}

/// The links that it did not name.
fn unnamed(status: &ProcessStatus) -> String {
    match status.link_count.saturating_sub(status.links.len() as u64) {
        0 => String::new(),
        more => format!("\nand {} more links\n", show_count(more)),
    }
}

fn link_text(link: &LinkStatus, with_worker: bool) -> String {
    let peer = link.peer.map_or_else(|| String::from("?"), |peer| peer.to_string());
    let mut text = format!("\nlink {}", link.index);
    if with_worker {
        text += &format!(" of worker {}", link.worker);
    }
    text += &format!(" to {peer}");
    if !link.class.is_empty() {
        text += &format!(", {}", link.class);
    }
    if let Some(health) = &link.health {
        text += &format!(", {health}");
    }
    // Writing to a text cannot fail.
    let _ = writeln!(
        text,
        " over {}{}: rtt {} us, {} chunks, {} again, {} timeouts, {} reroutes, {} fallbacks",
        link.carrier,
        if link.omits_icrc { " without ICRC" } else { "" },
        us(link.rtt_ns),
        show_count(link.chunks_sent),
        show_count(link.chunks_retransmitted),
        show_count(link.timeouts),
        show_count(link.reroutes),
        show_count(link.fallbacks),
    );
    if let Some(seen) = link.dscp_seen {
        let count = show_count(link.dscp_changed);
        let _ = writeln!(text, "{count} came in under another DSCP than was sent, the last {seen}");
    }
    text + &path_table(&link.paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_paths_are_shown_with_what_is_unknown_as_a_dash() {
        let paths = r#"[
            {"index":0,"carrier":"UC","state":"good","for_ns":2500000000,"qp_num":17,
             "source_port":49152,"rtt_ns":12300,"sent":2000,"lost":30,"in_flight_bytes":4096,
             "carries_acks":true,"mtu":1024,"mtu_phase":"complete","mtu_reason":"swallowed"},
            {"index":1,"carrier":"RC","state":"dead","doubts":3,"quarantines":2,"moves":1,
             "renewals":4}]"#;
        let status = format!(
            r#"{{"program":"p","pid":7,"device":"10.0.0.1:4791","carrier":"UC","link_count":1003,
               "links":[{{"index":4,"peer":"10.0.0.2:4791","health":"rerouted","carrier":"RC",
               "class":"copper","dscp_changed":5000,"dscp_seen":0,
               "fallbacks":2,"reroutes":1234,"paths":{paths}}}]}}"#
        );
        let text = paths_text(&serde_json::from_str(&status).expect("a status"));
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        let mut lines: Vec<_> = text.lines().map(words).collect();
        let said = "p, process 7, device 10.0.0.1:4791: 1,003 links, new ones over UC";
        assert_eq!(lines[0].join(" "), said);
        let said = "link 4 to 10.0.0.2:4791, copper, rerouted over RC: rtt - us, 0 chunks, \
                    0 again, 0 timeouts, 1,234 reroutes, 2 fallbacks";
        assert_eq!(lines[2].join(" "), said);
        let said = "5,000 came in under another DSCP than was sent, the last 0";
        assert_eq!(lines.remove(3).join(" "), said);
        let good = ["0", "UC", "good", "2.5", "17", "49152", "12.3", "2,000", "1.50"];
        assert_eq!(lines[4][..9], good);
        assert_eq!(lines[4][11..13], ["1,024", "swallowed"]);
        assert_eq!(lines[4].last().map(String::as_str), Some("here"));
        assert_eq!(lines[5][..7], ["1", "RC", "dead", "0.0", "0", "0", "-"]);
        assert_eq!(lines[5][lines[5].len() - 4..], ["3", "2", "1", "4"]);
        assert_eq!(lines[7].join(" "), "and 1,002 more links");
        let several = r#"{"workers":3,"workers_silent":1,"link_count":1,
            "links":[{"index":4,"worker":2,"peer":"10.0.0.2:4791","carrier":"UC",
            "omits_icrc":true}]}"#;
        let text = paths_text(&serde_json::from_str(several).expect("a status"));
        assert!(text.contains("3 workers, 1 of them silent\n"), "{text}");
        let said = "\nlink 4 of worker 2 to 10.0.0.2:4791 over UC without ICRC: rtt";
        assert!(text.contains(said), "{text}");
    }
}
