//! An endpoint in somebody else's poll or epoll loop.

use super::Endpoint;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_verbs::Device;
use towpath_wake::AnyOf;

/// Why there is no descriptor to wait for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PollFdError {
    /// The device has no files: the device in memory, or a link with faults.
    #[error(
        "this device has no file to wait for: poll the endpoint, or use Endpoint::wait with a \
         thread of its own, or an EndpointHandle"
    )]
    Unsupported,
    /// The system gave none.
    #[error("no descriptor to wait for: {0}; raise the limit of open files")]
    System(#[from] io::Error),
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// A descriptor that is readable when there is something for the endpoint to do: for a loop
    /// that waits for other files as well, by `poll`, `epoll`, or a runtime that takes descriptors.
    /// Each call gives a new one, which the caller owns; all tell the same.
    ///
    /// Call [`prepare_wait`](Self::prepare_wait) each time before the loop waits, and
    /// [`turn`](Self::turn) when it has waited, also when only time has passed. Wait until the
    /// descriptor *is* readable (level-triggered, as `poll` does and `epoll` by default).
    ///
    /// ```
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// use std::net::{Ipv4Addr, SocketAddr};
    /// use std::time::Duration;
    /// use towpath_transport::{Endpoint, EndpointConfig, Event, UdpConfig};
    ///
    /// let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    /// let mut server = Endpoint::udp(udp(), EndpointConfig::new())?;
    /// let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    /// let client = std::thread::spawn(move || {
    ///     let mut client = Endpoint::udp(udp(), EndpointConfig::new()).expect("an endpoint");
    ///     client.connect(addr).expect("an address");
    ///     let mut connected = false;
    ///     while !connected {
    ///         client.turn(|_, event| connected |= matches!(event, Event::Connected { .. }));
    ///     }
    /// });
    ///
    /// let of_endpoint = server.poll_fd()?;
    /// let (of_others, _far) = std::os::unix::net::UnixStream::pair()?; // whatever else there is
    /// let mut accepted = false;
    /// while !accepted {
    ///     let busy = server.turn(|_, event| accepted |= matches!(event, Event::Accepted { .. }));
    ///     if !busy {
    ///         let timeout = server.prepare_wait(Duration::from_secs(1)).try_into()?;
    ///         let of_endpoint = PollFd::new(&of_endpoint, PollFlags::IN);
    ///         let mut files = [of_endpoint, PollFd::new(&of_others, PollFlags::IN)];
    ///         poll(&mut files, Some(&timeout))?;
    ///         // Look at `files[1]` here.
    ///     }
    /// }
    /// client.join().expect("no panic");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PollFdError::Unsupported`] on a device without files; [`PollFdError::System`].
    pub fn poll_fd(&mut self) -> Result<OwnedFd, PollFdError> {
        if self.sleep.files().is_none() {
            let files = AnyOf::new()?;
            if !self.device.add_to_epoll(files.as_fd().as_raw_fd()) {
                return Err(PollFdError::Unsupported);
            }
            self.setup.news.add_to(&files)?;
            self.sleep.wait_for(files);
        }
        let files = self.sleep.files().ok_or(PollFdError::Unsupported)?;
        Ok(files.as_fd().try_clone_to_owned()?)
    }

    /// The endpoint is about to be waited for by its [descriptor](Self::poll_fd): how long that may
    /// last, at most `most`. Zero when there is something to do now. Call it behind a turn that did
    /// nothing; the wait ends for the endpoint with its next [`poll`](Self::poll) or
    /// [`turn`](Self::turn).
    pub fn prepare_wait(&mut self, most: Duration) -> Duration {
        self.links.file_anew();
        let due = self.next_timeout().since(self.device.now());
        self.sleep.begin_for_files();
        // What is there already is told now, and what comes later by the files.
        let is_told = self.rx.slots().has_returned() || self.buffers.is_back();
        if is_told || due == Nanos::ZERO {
            self.sleep.end();
            return Duration::ZERO;
        }
        // This takes in what woke the loop the last time, where that was not packets.
        if self.device.wait(Nanos::ZERO) {
            self.sleep.end();
            self.setup.news.wake();
            return Duration::ZERO;
        }
        if self.next_timeout() == Time::NEVER { most } else { most.min(due.into()) }
    }
}
