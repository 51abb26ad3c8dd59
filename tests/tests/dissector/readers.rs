//! The dissectors, and what they say.

use crate::traffic::Expected;
use std::path::Path;
use std::process::{Command, Stdio};

/// What Wireshark is asked for, in this order.
const FIELDS: [&str; 9] = [
    "_ws.col.Info",
    "infiniband.bth.destqp",
    "infiniband.bth.padcnt",
    "infiniband.immdt",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.deth.srcqp",
    "_ws.expert.message",
    "_ws.malformed",
];

/// Protocols that Wireshark looks for in payloads by guessing: our bytes are none of them.
const PAYLOADS: [&str; 6] = ["rpcordma", "iser", "lnet", "nvme-rdma", "smb_direct", "smc"];

/// A frame as Wireshark reads it.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) content: Expected,
    /// What it finds wrong with it; empty when nothing is.
    pub(crate) fault: String,
}

fn run(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().expect("it is installed");
    assert!(output.status.success(), "{command:?} failed: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Reads a capture with Wireshark's dissector.
pub(crate) fn dissect(capture: &Path) -> Vec<Frame> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-T", "fields", "-E", "occurrence=f"]);
    command.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    command.args(PAYLOADS.iter().flat_map(|name| ["--disable-protocol", name]));
    run(&mut command).lines().map(frame).collect()
}

/// A number as Wireshark prints it.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn frame(line: &str) -> Frame {
    let fields: Vec<&str> = line.split('\t').collect();
    let [info, dest_qp, pad, imm_data, dma_len, syndrome, src_qp, expert, malformed] = fields[..]
    else {
        panic!("{} fields in {line:?}", fields.len())
    };
    // The column names the operation, then the queue pair; for some there is no space between.
    let name = info.split("QP=").next().unwrap_or_default().trim().to_owned();
    let content = Expected {
        name,
        dest_qp: number(dest_qp).unwrap_or_default(),
        pad: number(pad),
        imm_data: u32::from_str_radix(imm_data, 16).ok(),
        dma_len: number(dma_len),
        syndrome: number(syndrome),
        src_qp: number(src_qp),
    };
    Frame { content, fault: format!("{expert}{malformed}") }
}

/// The numbers of the frames over IPv4 whose ICRC is not what Scapy computes.
pub(crate) fn wrong_icrcs(capture: &Path) -> Vec<usize> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dissector/icrc.py");
    // The packaged Scapy belongs to the packaged Python, which need not be the first one found.
    let text = run(Command::new("/usr/bin/python3").arg(script).arg(capture));
    text.lines().map(|line| line.parse().expect("a number")).collect()
}
