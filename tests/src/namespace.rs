//! Sockets of another network namespace, in a process that has its devices in this one.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Runs `work` on a thread of its own that has entered the network namespace `file`, as
/// `/run/netns/peer`, and returns what it made: sockets stay in the namespace that they were
/// opened in.
///
/// # Errors
/// There is no such namespace, or entering it is not allowed.
///
/// # Panics
/// When `work` panics.
pub fn within<T: Send>(file: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(file)?;
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        });
        worker.join().expect("the work in the namespace panicked")
    })
}
