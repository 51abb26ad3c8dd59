//! `cargo xtask etcd`: the map of a cluster in a real etcd.

use crate::failure::Failure;
use crate::{process, workspace};
use std::process::Command;

/// Debian's name for the server, which its package starts nowhere without systemd.
const SERVER: &str = "etcd-server";

/// Installs etcd where it is missing, and runs the tests that start one.
pub(crate) fn run() -> Result<(), Failure> {
    let root = workspace::root();
    process::run(Command::new(root.join("tests/install.sh")).arg(SERVER))?;
    let mut tests = process::test("etcd");
    tests.args(["--", "--ignored"]);
    process::run(tests.current_dir(&root))
}
