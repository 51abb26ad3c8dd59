//! `towpath health`: how the network is, as a server sees it.

use serde::Serialize;
use towpath_fastpath::health::{HealthReply, LinkHealthReply, PoolReply};

use super::breakdown::breakdown;
use super::open;
use crate::cli::args::HealthArgs;
use crate::cli::bytes::show_count;
use crate::cli::error::CliError;
use crate::cli::interrupt::Interrupt;
use crate::cli::{print_json, print_text};
use crate::columns::columns;

/// The JSON object of `towpath health`.
#[derive(Debug, Serialize)]
struct HealthReport {
    /// From here to the server and back.
    rtt_us: Option<f64>,
    /// How the link to the server is protected.
    protection: Option<String>,
    slow: u64,
    slow_after_ms: u64,
    oldest_us: u64,
    given_up: u64,
    link_count: u64,
    links: Vec<LinkReport>,
    pools: Vec<PoolReport>,
    notes_dropped: u64,
    most_dropped_peer: String,
    most_dropped: u64,
}

#[derive(Debug, Serialize)]
struct PoolReport {
    name: String,
    out: u64,
    max: u64,
    most_peer: String,
    most_held: u64,
}

impl From<PoolReply> for PoolReport {
    fn from(pool: PoolReply) -> Self {
        let PoolReply { name, out, max, most_peer, most_held } = pool;
        Self { name, out, max, most_peer, most_held }
    }
}

#[derive(Debug, Serialize)]
struct LinkReport {
    peer: String,
    state: &'static str,
    rtt_us: Option<f64>,
    rtt_least_us: Option<f64>,
    loss: f64,
    chunks_sent: u64,
    chunks_retransmitted: u64,
    timeouts: u64,
    reroutes: u64,
    carrier: &'static str,
    class: &'static str,
    dscp_changed: u64,
    fallbacks: u64,
    paths: u32,
    paths_good: u32,
    messages_abandoned: u64,
    slow: u64,
    degradations: u64,
}

impl From<LinkHealthReply> for LinkReport {
    fn from(link: LinkHealthReply) -> Self {
        let us = |ns: u64| (ns > 0).then_some(ns as f64 / 1e3);
        Self {
            state: link.state_name(),
            rtt_us: us(link.rtt_ns),
            rtt_least_us: us(link.rtt_least_ns),
            loss: f64::from(link.loss_ppm) / 1e6,
            chunks_sent: link.chunks_sent,
            chunks_retransmitted: link.chunks_retransmitted,
            timeouts: link.timeouts,
            reroutes: link.reroutes,
            carrier: link.carrier_name(),
            class: link.class_name(),
            dscp_changed: link.dscp_changed,
            fallbacks: link.fallbacks,
            paths: link.paths,
            paths_good: link.paths_good,
            messages_abandoned: link.messages_abandoned,
            slow: link.slow,
            degradations: link.degradations,
            peer: link.peer,
        }
    }
}

/// Shows how the links of a server are, and what was slow there.
pub(crate) fn health(args: &HealthArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    if args.breakdown {
        return breakdown(args, interrupt);
    }
    let args = &args.server;
    let mut session = open(args, None, interrupt)?;
    let reply = session.health()?;
    let rtt_us = session.rtt().map(|rtt| rtt.0 as f64 / 1e3);
    let protection = session.protection();
    session.close()?;
    let report = HealthReport::new((rtt_us, protection), reply);
    if args.link.json { print_json(&report) } else { print_text(&report.text()) }
}

const POOL_HEAD: [&str; 4] = ["buffers: for, bytes", "out", "most held by", "which holds"];

const HEAD: [&str; 11] = [
    "peer", "class", "state", "rtt us", "least us", "loss %", "chunks", "again", "timeouts",
    "paths", "slow",
];

impl HealthReport {
    fn new((rtt_us, protection): (Option<f64>, Option<String>), reply: HealthReply) -> Self {
        let HealthReply { slow, slow_after_ms, oldest_us, given_up, link_count, .. } = reply;
        Self {
            rtt_us,
            protection,
            slow,
            slow_after_ms,
            oldest_us,
            given_up,
            link_count,
            links: reply.links.into_iter().map(LinkReport::from).collect(),
            pools: reply.pools.into_iter().map(PoolReport::from).collect(),
            notes_dropped: reply.notes_dropped,
            most_dropped_peer: reply.most_dropped_peer,
            most_dropped: reply.most_dropped,
        }
    }

    fn text(&self) -> String {
        let us = |us: Option<f64>| us.map_or_else(|| String::from("-"), |us| format!("{us:.1}"));
        let mut text = format!(
            "{} requests without an answer after {} ms, {} given up before they had begun\n",
            show_count(self.slow),
            show_count(self.slow_after_ms),
            show_count(self.given_up),
        );
        if let Some(protection) = &self.protection {
            text += &format!("the link to the server is {protection}\n");
        }
        let row = |link: &LinkReport| {
            [
                link.peer.clone(),
                link.class.to_owned(),
                link.state.to_owned(),
                us(link.rtt_us),
                us(link.rtt_least_us),
                format!("{:.2}", 100.0 * link.loss),
                show_count(link.chunks_sent),
                show_count(link.chunks_retransmitted),
                show_count(link.timeouts),
                // A link that was made a moment ago was not looked at yet.
                match link.paths {
                    0 => String::from("-"),
                    paths => format!("{}/{paths}", link.paths_good),
                },
                show_count(link.slow),
            ]
        };
        text += &columns(HEAD, &[0, 1, 2], &self.links.iter().map(row).collect::<Vec<_>>());
        let unnamed = self.link_count - (self.links.len() as u64).min(self.link_count);
        if unnamed > 0 {
            text += &format!("and {} more, none of them worse\n", show_count(unnamed));
        }
        text + &self.pools_text()
    }

    /// Who holds most of what all clients share.
    fn pools_text(&self) -> String {
        let row = |pool: &PoolReport| {
            let peer = if pool.most_peer.is_empty() { "-" } else { &pool.most_peer };
            let out = format!("{} of {}", show_count(pool.out), show_count(pool.max));
            [pool.name.clone(), out, peer.to_owned(), show_count(pool.most_held)]
        };
        let mut text = String::new();
        if !self.pools.is_empty() {
            let rows: Vec<_> = self.pools.iter().map(row).collect();
            text += &format!("\n{}", columns(POOL_HEAD, &[0, 2], &rows));
        }
        if self.notes_dropped > 0 {
            text += &format!(
                "{} refusals were not sent to clients that take none in, most of them ({}) to {}\n",
                show_count(self.notes_dropped),
                show_count(self.most_dropped),
                if self.most_dropped_peer.is_empty() { "-" } else { &self.most_dropped_peer },
            );
        }
        text
    }
}
