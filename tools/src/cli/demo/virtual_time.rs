//! The demo in virtual time: the same client, server, transport and device on a virtual wire, with
//! the store on a simulated disk. The same seed gives the same packets.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use towpath_base::Prng;
use towpath_chunkserver::service::{ChunkServer, ServiceConfig};
use towpath_chunkserver::store::core::{CoreConfig, DriverConfig, StoreCore, StoreThread};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_disk::sim::Medium;
use towpath_fastpath::ClientConfig;
use towpath_fastpath::wire::PROTOCOL;
use towpath_rpc::Piece;
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, VirtualLink, World};
use towpath_transport::{Endpoint, EndpointConfig, LinkError, LinkId, Nanos, Side, Time};

use super::error::DemoError;
use super::journey::Journey;
use super::real::{endpoint_config, with_mtu};
use super::report::{DemoReport, EndReport, show_percent};
use super::steps::Steps;
use crate::cli::args::DemoArgs;
use crate::cli::bytes::show_size;
use crate::cli::interrupt::{Interrupt, Interrupted};
use crate::cli::session::{Pace, Pipeline, Session, SessionError};
use crate::cli::source::Source;

/// A RoCEv2 device on a virtual wire that loses packets.
type VirtualDevice = RoceDevice<FaultLink<VirtualLink>>;

/// How long one request may take in virtual time.
const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(60);

/// How far time goes when nothing is due at all.
const NOTHING_DUE: Nanos = Nanos::from_millis(1);

/// Pages of the simulated disk, 16 GiB: it takes memory for those that are written.
const DISK_PAGES: u64 = 1 << 22;

/// Operations that the simulated disk has under way.
const DISK_DEPTH: usize = 128;

/// Pages of each copy of the log: 4 MiB, which are written when the store is made.
const LOG_PAGES: u64 = 1024;

/// Requests that may wait for the store: as the server has it.
const STORE_QUEUE_MAX: usize = 256;

/// How long the store may take to close, which it does in memory.
const CLOSE_WAIT: Nanos = Nanos::from_secs(60);

/// The world, and the server in it while there is one.
struct Scene {
    world: World,
    server: Option<ChunkServer<VirtualDevice>>,
}

/// Lets the server work, and time go on when it has nothing to do.
struct VirtualPace {
    scene: Rc<RefCell<Scene>>,
    interrupt: Interrupt,
}

impl Pace<VirtualDevice> for VirtualPace {
    fn idle(
        &mut self,
        endpoint: &mut Endpoint<VirtualDevice>,
        due: Time,
    ) -> Result<(), Interrupted> {
        self.interrupt.check()?;
        let scene = &mut *self.scene.borrow_mut();
        let mut next = due.min(endpoint.next_timeout());
        let mut released = endpoint.device().link().next_release();
        if let Some(server) = &mut scene.server {
            // The store takes no virtual time, so its answers are there before time goes on.
            let busy = server.turn();
            let answers = server.await_store();
            if busy || answers {
                return Ok(());
            }
            next = next.min(server.endpoint().next_timeout());
            released = [released, server.endpoint().device().link().next_release()]
                .into_iter()
                .flatten()
                .min();
        }
        let arrives = scene.world.next_event_time();
        next = [released, arrives].into_iter().flatten().fold(next, Time::min);
        let now = scene.world.now();
        let next = if next == Time::NEVER { now + NOTHING_DUE } else { next };
        scene.world.advance_to(next.max(now + Nanos(1)));
        Ok(())
    }
}

type VirtualSession = Session<VirtualDevice, VirtualPace>;

struct Ground<'a> {
    args: &'a DemoArgs,
    scene: Rc<RefCell<Scene>>,
    medium: Medium,
    near: FaultControl,
    far: FaultControl,
    interrupt: &'a Interrupt,
    lives: u64,
}

impl Ground<'_> {
    /// A server on the store, and a client joined with it by a fresh wire.
    fn start(&mut self) -> Result<VirtualSession, DemoError> {
        self.lives += 1;
        let seed = self.args.seed.wrapping_mul(2).wrapping_add(self.lives << 48);
        let addr = |last: u64, ip: u8| SocketAddr::from(([10, last as u8, 0, ip], 4791));
        let wire = LinkConfig {
            addrs: [addr(self.lives, 1), addr(self.lives, 2)],
            ..LinkConfig::default()
        };
        let (a, b) = self.scene.borrow().world.link(&wire);
        let server_addr = wire.addrs[1];
        let client = endpoint_config(self.args.mtu, self.args.depth, self.args.op_size);
        let server = with_mtu(EndpointConfig::new(), self.args.mtu);
        let server = server.app_protocol(PROTOCOL).links_max(1);
        let mut client = self.endpoint(a, seed, &self.near, client)?;
        let mut server = self.endpoint(b, seed + 1, &self.far, server)?;
        let link = join(&mut client, &mut server).map_err(SessionError::Link)?;
        let server = ChunkServer::new(server, self.store()?, &ServiceConfig::new());
        self.scene.borrow_mut().server = Some(server);
        let interrupt = self.interrupt.clone();
        let pace = VirtualPace { scene: Rc::clone(&self.scene), interrupt };
        let config = ClientConfig::new()
            .timeout(REQUEST_TIMEOUT)
            .patience(Nanos::ZERO)
            .patience_is_limit()
            .seed(seed);
        Ok(Session::on_link(client, link, pace, server_addr, &config)?)
    }

    /// The store on the simulated disk.
    fn store(&self) -> Result<StoreThread<Piece>, DemoError> {
        let (medium, seed) = (self.medium.clone(), self.args.seed);
        let open = move || {
            let config = CoreConfig {
                log_pages: LOG_PAGES,
                log_pages_max: 0,
                chunks_max: u64::MAX,
                store_id: seed,
                log_nonce: seed,
                version_seed: seed,
                is_sparse: false,
            };
            let disk = medium.open(DISK_DEPTH)?;
            Ok::<_, DemoError>((StoreCore::open(Box::new(disk), &config)?, ()))
        };
        let config = DriverConfig { queue_max: STORE_QUEUE_MAX, unfinished_keep: None };
        let (mut threads, ()) = StoreThread::spawn(1, config, open)?;
        threads.pop().ok_or_else(|| DemoError::Thread(io::ErrorKind::NotFound.into()))
    }

    fn endpoint(
        &self,
        link: VirtualLink,
        seed: u64,
        control: &FaultControl,
        config: EndpointConfig,
    ) -> Result<Endpoint<VirtualDevice>, SessionError> {
        let link = FaultLink::new(link, self.scene.borrow().world.next_seed(), control.clone());
        let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
        Ok(Endpoint::new(device, config.seed(seed))?)
    }

    /// Ends client and server; returns what both did.
    fn stop(&self, session: &mut VirtualSession) -> Result<(EndReport, EndReport), DemoError> {
        session.close()?;
        let client = EndReport::of(session.stats(), 0);
        let server = self.scene.borrow_mut().server.take();
        let Some(server) = server else { return Ok((client, EndReport::default())) };
        let (stats, closed) = server.close_within(CLOSE_WAIT);
        let late = || DemoError::Thread(io::ErrorKind::TimedOut.into());
        closed.sealed.ok_or_else(late)?.map_err(DemoError::Sealed)?;
        Ok((client, EndReport::of(stats.links, 0)))
    }
}

/// Joins two endpoints by hand, as TCP would do it.
fn join(
    client: &mut Endpoint<VirtualDevice>,
    server: &mut Endpoint<VirtualDevice>,
) -> Result<LinkId, LinkError> {
    let (client_hello, client_half) = client.offer()?;
    let (server_hello, server_half) = server.offer()?;
    let link = client.establish(client_half, &server_hello, Side::Client)?;
    server.establish(server_half, &client_hello, Side::Server)?;
    Ok(link)
}

/// Makes the journey; returns what was found, and the first byte that was not as sent.
pub(crate) fn run(
    args: &DemoArgs,
    source: &Source,
    mut steps: Steps,
    interrupt: &Interrupt,
) -> Result<(DemoReport, Option<u64>), DemoError> {
    let plan = FaultPlan::none().drop(args.loss());
    let scene = Scene { world: World::new(args.seed), server: None };
    let mut ground = Ground {
        args,
        scene: Rc::new(RefCell::new(scene)),
        medium: Medium::new(args.seed, DISK_PAGES),
        near: FaultControl::new(plan.clone()),
        far: FaultControl::new(plan),
        interrupt,
        lives: 0,
    };
    steps.say(&format!(
        "{} to a chunk server and back, in virtual time, seed {}.\n\
         {} of all packets are lost, both ways, on a wire of 100 Gb/s and 2 us.\n",
        show_size(source.byte_len()),
        args.seed,
        show_percent(args.loss())
    ));
    let mut session = ground.start()?;
    let mtu = session.mtu();
    let pipeline = Pipeline::fitting(&mut session, args.depth, args.op_size)?;
    let mut journey = Journey::new(source, pipeline, Prng::new(args.seed));
    let found = journey.first_life(&mut session, args.latency_requests, &mut steps)?;
    steps.begin("server stopped and started again");
    let (mut client, mut server) = ground.stop(&mut session)?;
    let mut session = ground.start()?;
    let sampled = journey.sample(&mut session)?;
    let (more_client, more_server) = ground.stop(&mut session)?;
    client += more_client;
    server += more_server;
    client.packets_dropped = ground.near.counters().lost();
    server.packets_dropped = ground.far.counters().lost();
    steps.done(&format!("{} read again", show_size(sampled)));
    let hash = ground.scene.borrow().world.trace_hash();
    steps.say(&format!("\n  trace hash {hash:016x}: the same flags give the same"));
    let mut report = DemoReport::new(args, &journey, found, client, server);
    report.mtu_bytes = mtu;
    report.virtual_time = true;
    report.trace_hash = Some(format!("{hash:016x}"));
    Ok((report, journey.changed_at))
}

#[cfg(test)]
mod tests;
