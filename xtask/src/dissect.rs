//! `cargo xtask dissect`: Wireshark and Scapy read what the userspace NIC sends.

use crate::failure::Failure;
use crate::{process, workspace};
use std::process::Command;

/// Debian's names for the dissectors.
const PACKAGES: [&str; 2] = ["tshark", "python3-scapy"];

/// Installs what is missing, sends in every mode, and has each packet read.
pub(crate) fn run() -> Result<(), Failure> {
    let root = workspace::root();
    process::run(Command::new(root.join("tests/install.sh")).args(PACKAGES))?;
    let mut command = process::test("dissector");
    command.args(["--", "--ignored", "--show-output"]);
    process::run(command.current_dir(root))
}
