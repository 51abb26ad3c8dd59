//! The report for people, in the layout of `ibv_devinfo`.

use super::report::{Capabilities, Device, Doing, Identity, Kind, Limits, Port, Report, SendTimes};
use std::fmt::{Display, Write};

/// Addresses of a port that are shown without `-v`.
const ADDRESSES_MAX: usize = 4;

/// Lines of names and values, indented.
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, depth: usize, name: &str, value: impl Display) {
        let name = format!("{name}:");
        let indent = "\t".repeat(depth);
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{indent}{name:<24}{value}");
    }

    fn head(&mut self, depth: usize, name: &str) {
        let _ = writeln!(self.text, "{}{name}:", "\t".repeat(depth));
    }
}

/// The whole report.
pub(super) fn of(report: &Report, verbose: bool) -> String {
    let mut lines = Lines { text: String::new() };
    for device in &report.devices {
        of_device(&mut lines, device, verbose);
        lines.text.push('\n');
    }
    if let Some(why) = &report.libibverbs {
        let _ = writeln!(lines.text, "Devices of libibverbs are not shown: {why}.");
    }
    lines.text
}

fn of_device(lines: &mut Lines, device: &Device, verbose: bool) {
    let _ = writeln!(lines.text, "hca_id: {}", device.name);
    let transport = match device.kind {
        Kind::Userspace => "RoCEv2 in userspace, over UDP sockets",
        Kind::Memory => "a wire within a process",
        Kind::Libibverbs => "RoCEv2, through libibverbs",
    };
    lines.line(1, "transport", transport);
    if let Some(error) = &device.error {
        lines.line(1, "error", error);
    }
    if let Some(identity) = &device.identity {
        of_identity(lines, identity);
    }
    if let Some(limits) = device.limits.as_ref().filter(|_| verbose) {
        of_limits(lines, limits);
    }
    lines.line(1, "phys_port_cnt", device.ports.len());
    for port in &device.ports {
        of_port(lines, port, verbose);
    }
}

fn of_identity(lines: &mut Lines, identity: &Identity) {
    let Identity { fw_ver, node_guid, vendor_id, vendor_part_id, hw_ver, .. } = identity;
    lines.line(1, "fw_ver", if fw_ver.is_empty() { "none" } else { fw_ver });
    lines.line(1, "node_guid", node_guid);
    lines.line(1, "vendor_id", format_args!("{vendor_id:#06x}"));
    lines.line(1, "vendor_part_id", vendor_part_id);
    lines.line(1, "hw_ver", format_args!("{hw_ver:#X}"));
    match identity.clock_khz {
        Some(khz) => lines.line(1, "hca_core_clock", format_args!("{khz} kHz")),
        None => lines.line(1, "hca_core_clock", "none in completions"),
    }
}

fn of_limits(lines: &mut Lines, limits: &Limits) {
    lines.line(1, "max_qp", limits.max_qp);
    lines.line(1, "max_qp_wr", limits.max_qp_wr);
    lines.line(1, "max_sge", limits.max_sge);
    lines.line(1, "max_cq", limits.max_cq);
    lines.line(1, "max_cqe", limits.max_cqe);
    lines.line(1, "max_mr", limits.max_mr);
    lines.line(1, "max_mr_size", format_args!("{:#x}", limits.max_mr_size));
    lines.line(1, "max_pd", limits.max_pd);
    lines.line(1, "max_ah", limits.max_ah);
    lines.line(1, "max_srq", limits.max_srq);
    lines.line(1, "max_srq_wr", limits.max_srq_wr);
    lines.line(1, "max_qp_rd_atom", limits.max_qp_rd_atom);
}

fn of_port(lines: &mut Lines, port: &Port, verbose: bool) {
    lines.line(2, "port", port.port);
    lines.line(3, "state", format_args!("PORT_{}", port.state));
    lines.line(3, "max_mtu", port.max_mtu);
    lines.line(3, "active_mtu", port.active_mtu);
    lines.line(3, "link_layer", port.link_layer);
    let shown = if verbose { usize::MAX } else { ADDRESSES_MAX };
    for address in port.addresses.iter().take(shown) {
        let mut value = format!("{}, {}", address.ip, address.kind);
        if let Some(interface) = &address.interface {
            let _ = write!(value, ", {interface}");
        }
        if let Some(mtu) = address.path_mtu_max {
            let _ = write!(value, ", path MTU up to {mtu}");
        }
        lines.line(3, &format!("GID[{:3}]", address.index), value);
    }
    if port.addresses.len() > shown {
        lines.line(3, "more addresses", port.addresses.len() - shown);
    }
    if let Some(capabilities) = &port.capabilities {
        of_capabilities(lines, capabilities, verbose);
    }
    if let Some(times) = &port.send_times {
        of_send_times(lines, times);
    }
    lines.head(3, "Towpath");
    if let Some(doing) = &port.towpath {
        of_doing(lines, doing);
    }
    if let Some(refusal) = &port.refusal {
        lines.line(4, "cannot be used", refusal);
    }
}

fn of_capabilities(lines: &mut Lines, caps: &Capabilities, verbose: bool) {
    let offers = [
        (caps.rc, "RC"),
        (caps.uc, "UC"),
        (caps.ud, "UD"),
        (caps.read, "READ"),
        (caps.atomics, "atomics"),
        (caps.srq, "SRQ"),
        (caps.timestamps, "timestamps"),
    ];
    let offered: Vec<_> = offers.iter().filter(|offer| offer.0).map(|offer| offer.1).collect();
    lines.line(3, "offers", offered.join(", "));
    if !verbose {
        return;
    }
    lines.line(3, "message_bytes_max", caps.message_bytes_max);
    lines.line(3, "send_sge_max", caps.send_sge_max);
    lines.line(3, "qp_max", caps.qp_max);
    lines.line(3, "wr_max", caps.wr_max);
    lines.line(3, "cqe_max", caps.cqe_max);
    match caps.rx_buffer_bytes {
        Some(bytes) => lines.line(3, "rx_buffer_bytes", bytes),
        None => lines.line(3, "rx_buffer_bytes", "not bounded by the device"),
    }
}

fn of_send_times(lines: &mut Lines, times: &SendTimes) {
    let Some(by) = times.stamped_by else {
        return lines.line(3, "send stamps", "none: the end of the call counts");
    };
    let us = |ns: i64| ns as f64 / 1e3;
    let (before, spread) = (us(times.before_end_ns), us(times.spread_ns as i64));
    let clock = us(times.clock_error_ns as i64);
    let text = format_args!(
        "of the {by}: packets leave {before:.1} us before the end of a call, give or take \
         {spread:.1} us; its clock is off by {clock:.1} us at most"
    );
    lines.line(3, "send stamps", text);
}

fn of_doing(lines: &mut Lines, doing: &Doing) {
    lines.line(4, "carrier", format_args!("{}: {}", doing.carrier, doing.carrier_why));
    lines.line(4, "links", format_args!("{} at most", doing.links_max));
    lines.line(4, "path MTU", format_args!("{} bytes at most", doing.path_mtu));
    let (min, max) = (doing.chunk_bytes_min, doing.chunk_bytes_max);
    lines.line(4, "chunks", format_args!("{min} to {max} bytes, as loss has it"));
    lines.line(4, "clock", format_args!("{}: {}", doing.clock, doing.clock_why));
    let noise_us = doing.delay_noise_ns / 1_000;
    lines.line(4, "delay noise", format_args!("up to {noise_us} us may be no queue"));
    let payload_crc = match doing.payload_crc {
        true => "CRC32C of each chunk's bytes",
        false => "none: the device delivers what was sent",
    };
    lines.line(4, "payload check", payload_crc);
    let icrc = if doing.omits_icrc { "none over UC to peers that agree" } else { "always" };
    lines.line(4, "packet check", format_args!("ICRC {icrc}"));
    let receiving = format_args!("{}: {}", doing.receive_queues, doing.receive_queues_why);
    lines.line(4, "receive queues", receiving);
    let ports = doing.source_ports;
    match doing.source_port {
        "live" => {
            lines.line(4, "source port", format_args!("{ports}, changed while a path runs"));
        }
        "per queue pair" => {
            let text = format_args!("{ports}, fixed for each queue pair by its flow label");
            lines.line(4, "source port", text);
        }
        _ => lines.line(4, "source port", "one: another path is no other way"),
    }
    match doing.window_bytes {
        Some(bytes) => {
            let text = format_args!("{bytes} bytes for all peers together");
            lines.line(4, "under way to us", text);
        }
        None => lines.line(4, "under way to us", "not bounded by the device"),
    }
    let spin_us = doing.spin_ns / 1_000;
    lines.line(4, "waiting", format_args!("polls for {spin_us} us, then sleeps until woken"));
}
