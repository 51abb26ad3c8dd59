//! What the service manager is told of the server: the protocol of sd_notify(3).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the manager's socket.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells the service manager, where there is one that wants to know. What it cannot be told is
/// logged: the server goes on.
pub(super) fn tell(state: &str) {
    let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else { return };
    if let Err(error) = send(&name, state) {
        tracing::warn!(%error, socket = %name.display(), state, "the service manager is not told");
    }
}

fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let addr = match name.as_bytes() {
        // A name that is in no file system.
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &addr).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_told_by_path_and_by_abstract_name() {
        let dir = tempfile::tempdir().expect("room for a directory");
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).expect("a free name");
        let name = format!("@towpath-notify-test-{}", std::process::id());
        let addr = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).expect("a short name");
        let by_name = UnixDatagram::bind_addr(&addr).expect("a free name");
        for (socket, name) in [(by_path, path.as_os_str()), (by_name, OsStr::new(&name))] {
            send(name, "READY=1").expect("it listens");
            let mut told = [0; 16];
            let len = socket.recv(&mut told).expect("it was sent");
            assert_eq!(&told[..len], b"READY=1");
        }
        assert!(send(OsStr::new("relative\0name"), "READY=1").is_err());
        assert!(send(dir.path().join("nobody").as_os_str(), "READY=1").is_err());
    }
}
