//! Two workers, a link between them, and one thread that drives both.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_handle::{ChannelHandle, EndpointHandle, EndpointWorker, Incoming, LinkHandle};
use towpath_proto::Side;
use towpath_sim::{LinkConfig, VirtualLink, World};
use towpath_transport::EndpointConfig;

pub(crate) type Worker = EndpointWorker<RoceDevice<VirtualLink>>;

/// Nobody turns the workers while somebody waits: what is not there now does not come.
pub(crate) const NOW: Duration = Duration::ZERO;

pub(crate) struct End {
    pub(crate) handle: EndpointHandle,
    pub(crate) worker: Worker,
    pub(crate) link: LinkHandle,
}

pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) near: End,
    pub(crate) far: End,
}

pub(crate) fn lab() -> Lab {
    let world = World::new(11);
    let (near, far) = world.link(&LinkConfig::default());
    let driven = |link, seed| {
        let config =
            EndpointConfig::new().seed(seed).links_max(1).send_pools(&[(1024, 1024), (4096, 8)]);
        let device = RoceDevice::new(link, RoceConfig::default());
        EndpointHandle::driven(device, config).expect("an endpoint")
    };
    let ((near, mut near_worker), (far, mut far_worker)) = (driven(near, 1), driven(far, 2));
    let (near_hello, near_half) = near_worker.offer().expect("room for a link");
    let (far_hello, far_half) = far_worker.offer().expect("room for a link");
    let near_link =
        near_worker.establish(&near, near_half, &far_hello, Side::Client).expect("a link");
    let far_link = far_worker.establish(&far, far_half, &near_hello, Side::Server).expect("a link");
    Lab {
        world,
        near: End { handle: near, worker: near_worker, link: near_link },
        far: End { handle: far, worker: far_worker, link: far_link },
    }
}

impl Lab {
    /// Turns both workers until nothing is under way, for a second at most.
    pub(crate) fn run(&mut self) {
        let end = self.world.now() + Nanos::from_secs(1);
        while self.world.now() < end {
            if self.near.worker.turn() | self.far.worker.turn() {
                continue;
            }
            let due = [&self.near, &self.far].map(|end| end.worker.next_timeout());
            let next = due.into_iter().chain(self.world.next_event_time()).min();
            self.world.advance_to(next.unwrap_or(Time::NEVER).min(end));
        }
    }

    pub(crate) fn channel(&mut self) -> (ChannelHandle, ChannelHandle) {
        let opening = self.near.link.begin_open(true);
        assert!(opening.poll().expect("it may come").is_none(), "nobody has had a turn");
        self.run();
        let mine = opening.poll().expect("room for a channel").expect("the peer has answered");
        (mine, self.far.link.accept_channel(NOW).expect("a channel"))
    }
}

/// Takes a message that has come.
pub(crate) fn take(channel: &ChannelHandle) -> Vec<u8> {
    match channel.recv(NOW) {
        Ok(Incoming::Message(message)) => message.to_vec(),
        other => panic!("a message was due, not {other:?}"),
    }
}

/// Whether a future was woken.
#[derive(Default)]
pub(crate) struct Woken(AtomicBool);

impl Woken {
    /// Whether it was woken since this was last asked.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An executor: turns both workers until the future is ready, which must be woken before it is.
pub(crate) fn finish<F: Future>(lab: &mut Lab, future: F) -> F::Output {
    let (mut future, woken) = (pin!(future), Arc::new(Woken::default()));
    let waker = Waker::from(Arc::clone(&woken));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        lab.run();
        assert!(woken.take(), "nothing is under way any more, and it was not woken");
    }
}
