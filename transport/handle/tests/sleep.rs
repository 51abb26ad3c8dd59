//! How the worker of a handle sleeps while applications hold what was received.

mod common;

use common::{LOOPBACK, any_port};
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_handle::{ChannelHandle, EndpointHandle, Incoming};
use towpath_transport::{EndpointConfig, SendOptions};
use towpath_verbs::{LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};

const LONG: Duration = Duration::from_secs(60);

/// Longer than the worker sleeps at a time where it has to look for itself.
const DEEP: Nanos = Nanos::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Sleeps { at_most: Nanos },
    Wakes,
    Rings,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Entry>>>);

impl Log {
    fn note(&self, entry: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    fn since(&self, start: usize) -> Vec<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[start..].to_vec()
    }

    fn len(&self) -> usize {
        self.since(0).len()
    }
}

/// A link that notes when its owner sleeps, and who ends that.
struct Watched {
    inner: UdpLink,
    log: Log,
}

struct Ring {
    inner: Waker,
    log: Log,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.log.note(Entry::Rings);
        self.inner.wake_by_ref();
    }
}

impl PacketLink for Watched {
    fn caps(&self) -> LinkCaps {
        self.inner.caps()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.inner.source_addr(source_port)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        self.inner.transmit(packets)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        self.inner.receive(budget, sink)
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        self.log.note(Entry::Sleeps { at_most: timeout });
        let woken = self.inner.wait(timeout);
        self.log.note(Entry::Wakes);
        woken
    }

    fn waker(&self) -> Option<Waker> {
        let inner = self.inner.waker()?;
        Some(Waker::from(Arc::new(Ring { inner, log: self.log.clone() })))
    }

    fn watch_file(&mut self, file: c_int) -> bool {
        self.inner.watch_file(file)
    }

    fn counters(&self) -> LinkCounters {
        self.inner.counters()
    }
}

/// A server whose worker sleeps as soon as it can, and a client that has a channel with it.
struct Rig {
    _ends: [EndpointHandle; 2],
    mine: ChannelHandle,
    theirs: ChannelHandle,
    log: Log,
}

impl Rig {
    fn new() -> Self {
        let log = Log::default();
        let config = || EndpointConfig::new().spin(Nanos::ZERO).connect_timeout(LONG);
        let noting = log.clone();
        let device = move || {
            let inner = UdpLink::bind(UdpConfig::new(LOOPBACK.into())).expect("loopback UDP");
            Ok(RoceDevice::new(Watched { inner, log: noting }, RoceConfig::default().seed(2)))
        };
        let server = EndpointHandle::spawn(device, config()).expect("an endpoint");
        let client = EndpointHandle::spawn_udp(UdpConfig::new(LOOPBACK.into()), config());
        let client = client.expect("an endpoint");
        let addr = server.listen(any_port()).expect("a free port");
        let near = client.connect(addr).expect("it listens");
        let far = server.accept(LONG).expect("a link");
        let mine = near.open_channel(true).expect("room for a channel");
        let theirs = far.accept_channel(LONG).expect("a channel");
        Self { _ends: [client, server], mine, theirs, log }
    }

    fn take(&self) -> Incoming {
        let buf = self.mine.copy(b"held for a while").expect("a free buffer");
        drop(self.mine.send(buf, SendOptions::new()));
        self.theirs.recv(LONG).expect("a message")
    }

    /// Waits until the worker sleeps deeply. Panics if it sleeps lightly again and again.
    fn until_it_sleeps(&self, start: usize) {
        loop {
            let last = self.log.since(0).last().copied();
            if matches!(last, Some(Entry::Sleeps { at_most }) if at_most > DEEP) {
                return;
            }
            let entries = self.log.since(start);
            let sleeps = entries.iter().filter(|entry| matches!(entry, Entry::Sleeps { .. }));
            assert!(sleeps.count() < 200, "the worker looks again and again: {entries:?}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_worker_sleeps_deeply_while_an_application_holds_a_message() {
    let rig = Rig::new();
    let held = rig.take();
    rig.until_it_sleeps(rig.log.len());
    drop(held);
}

#[test]
fn dropping_a_message_on_another_thread_ends_the_worker_s_sleep_at_once() {
    let rig = Rig::new();
    let mut rings = 0;
    for _ in 0..20 {
        let held = rig.take();
        rig.until_it_sleeps(rig.log.len());
        let start = rig.log.len();
        drop(held);
        // In the drop itself, unless the worker was just awake.
        let entries = rig.log.since(start);
        let first = entries.first().copied();
        assert!(matches!(first, Some(Entry::Rings | Entry::Wakes)), "{entries:?}");
        rings += u32::from(first == Some(Entry::Rings));
    }
    assert!(rings > 0, "the worker was awake in all rounds");
}
