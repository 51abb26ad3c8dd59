//! Endpoints in a poll loop of the program's own.

use crate::pair::{Maker, Pair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::time::Duration;
use towpath_memory::Region;
use towpath_transport::{PollFdError, SendOptions};
use towpath_verbs::Device;

const ROUNDS: u64 = 100;

/// Far longer than a test may take: what ends a wait is a file.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Waits for a descriptor; whether it became readable.
fn wait(file: &OwnedFd, timeout: Duration) -> bool {
    let timeout: Timespec = timeout.try_into().expect("not too long");
    let mut files = [PollFd::new(file, PollFlags::IN)];
    poll(&mut files, Some(&timeout)).expect("a poll") > 0
}

/// Goes on until neither end has anything to do, and both are about to be waited for.
fn quiet<D: Device<Memory = Region>>(pair: &mut Pair<D>) {
    let is_due = |wait: Duration| wait < Duration::from_micros(100);
    while pair.turn()
        || is_due(pair.near.endpoint.prepare_wait(FOR_EVER))
        || is_due(pair.far().endpoint.prepare_wait(FOR_EVER))
    {}
}

/// A wait of another loop for the file of an endpoint is ended by what comes for it.
pub(crate) fn waited_for<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    let channel = pair.open(true);
    let file = match pair.far().endpoint.poll_fd() {
        Ok(file) => file,
        Err(PollFdError::Unsupported) => return,
        Err(error) => panic!("{error}"),
    };
    let mut silent = 0;
    for round in 0..ROUNDS {
        quiet(&mut pair);
        // An acknowledgement may still come here and there.
        silent += u64::from(!wait(&file, Duration::ZERO));
        pair.send(channel, &round.to_le_bytes(), SendOptions::new().token(round));
        pair.near.endpoint.flush();
        assert!(wait(&file, FOR_EVER));
        let message = pair.until(|pair| pair.far().take_message());
        assert_eq!(message.to_vec(), round.to_le_bytes());
        pair.far().endpoint.release(message);
        pair.until(|pair| pair.near.take_sent(round));
    }
    assert!(silent > 0, "it is not readable for nothing");
}
