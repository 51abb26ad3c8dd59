//! Files stored.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_fastpath::limits::IO_BYTES_MAX;
use towpath_fastpath::{ChunkId, Client, NewChunk, Route, RouteKind};

use crate::error::{PartError, SpreadError};
use crate::layout::{Layout, Node};
use crate::policy::Policy;
use crate::race::Race;
use crate::servers::Servers;
use crate::stripes::Stripe;

/// Bytes of a unit unless set: long enough that a server's work for it is mostly that for its
/// bytes.
const UNIT_DEFAULT: u32 = 64 << 10;

/// Stripes that are written at a time.
const AHEAD: usize = 4;

/// Units that are under way at a time where servers pass them on: enough that a ring of seven
/// always has one for each server.
const AHEAD_ALONG: usize = 8;

/// How long copies that no write waited for may take to be whole, when all else is: what a server
/// does not have by then it was not given, or it takes seconds for one unit.
const TRAILING_WAIT: Duration = Duration::from_secs(5);

/// How often they are looked at.
const TRAILING_LOOK: Duration = Duration::from_millis(20);

/// How a file is stored.
#[derive(Clone, Copy, Debug)]
pub struct PutOptions {
    policy: Policy,
    unit_bytes: u32,
    least: usize,
}

impl PutOptions {
    /// By this policy, in units of 64 KiB, durable on all servers or on as many as the policy
    /// says.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, unit_bytes: UNIT_DEFAULT, least: policy.acked() }
    }

    /// Bytes of a unit: a multiple of 4 KiB, at most what each server takes in one operation
    /// (252 KiB, unless that is configured).
    #[must_use]
    pub fn unit_bytes(mut self, bytes: u32) -> Self {
        self.unit_bytes = bytes;
        self
    }

    /// On how many servers it must be durable: from those that are enough to read it to all. The
    /// layout says which parts are not whole, and a repair makes them.
    #[must_use]
    pub fn least(mut self, parts: usize) -> Self {
        self.least = parts;
        self
    }

    /// The servers of the parts, which must be as many, and each another one.
    fn places<'a>(&self, servers: &'a [SocketAddr]) -> Result<&'a [SocketAddr], SpreadError> {
        // What servers pass on all of them have that are waited for, or none.
        let is_passed_on = self.policy.route().is_some();
        let (max, given) = (self.policy.parts(), self.least);
        let Self { policy, .. } = self;
        let min = if is_passed_on { policy.acked() } else { policy.enough() };
        if !(min..=max).contains(&given) {
            return Err(SpreadError::Least { min, max, given });
        }
        let (needed, given) = (max, servers.len());
        let places = servers.get(..needed);
        let places = places.ok_or(SpreadError::ServerCount { needed, given })?;
        for (part, server) in places.iter().enumerate() {
            if places[..part].iter().any(|other| Servers::are_same(*server, *other)) {
                return Err(SpreadError::SameServer { server: *server });
            }
        }
        Ok(places)
    }
}

/// A chunk that is written.
struct Target {
    node: Node,
    /// It was asked to be whole: then its server does not delete it by itself.
    finishing: bool,
    /// None any more once something failed.
    client: Result<Client, PartError>,
}

/// The chunks of a file that is stored, or of the parts of one that are made anew.
pub(crate) struct Writer<'a> {
    servers: &'a Servers,
    targets: Vec<Target>,
    race: Race<usize, ()>,
    least: usize,
    /// Along which servers units go, where they pass them on: one for the whole unit, or of each
    /// data part.
    routes: Vec<Arc<Route>>,
    /// Where servers pass units on: the first parts, which have each unit when it is answered.
    acked: usize,
    /// What tells the next stripe from all others.
    stamp: u64,
}

impl<'a> Writer<'a> {
    /// Makes a chunk on each of the servers; `least` of them must be there in the end.
    pub(crate) fn create(
        servers: &'a Servers,
        places: &[SocketAddr],
        least: usize,
        policy: Option<Policy>,
    ) -> Result<Self, SpreadError> {
        let routes = policy.map_or(Ok(Vec::new()), |policy| routes(policy, places))?;
        let is_passed_on = policy.filter(|_| !routes.is_empty());
        let acked = is_passed_on.map_or(0, Policy::acked);
        // A unit that is passed on goes to chunks of one name.
        let one = ChunkId::random();
        let name = || if routes.is_empty() { ChunkId::random() } else { one };
        let mut race = Race::new();
        let node = |server: &SocketAddr| Node { server: *server, chunk: name(), version: None };
        let nodes: Vec<Node> = places.iter().map(node).collect();
        let clients = servers.ask_each(places, |part, client| {
            // Nobody else knows the name.
            let client = client.sole_writer();
            let kind = NewChunk { unfinished: true, ..NewChunk::default() };
            race.add(part, client.create(nodes[part].chunk, None, kind));
            client
        });
        let target = |(node, client): (&Node, _)| Target { node: *node, finishing: false, client };
        let targets = nodes.iter().zip(clients).map(target).collect();
        // Never zero, however many stripes follow.
        let stamp = (ChunkId::random().0 as u64 >> 1) + 1;
        let mut writer = Self { servers, targets, race, least, routes, acked, stamp };
        writer.settle(0);
        Ok(writer)
    }

    /// The chunks, as far as they have come.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.targets.iter().map(|target| target.node).collect()
    }

    /// Writes a unit of each part.
    pub(crate) fn write(&mut self, offset: u64, units: &[&[u8]]) -> Result<(), SpreadError> {
        if !self.routes.is_empty() {
            return self.write_along(offset, units);
        }
        for (part, (target, unit)) in self.targets.iter().zip(units).enumerate() {
            if let Ok(client) = &target.client {
                self.race.add(part, client.write(target.node.chunk, offset, unit.to_vec()));
            }
        }
        self.settle(AHEAD.saturating_sub(1) * self.targets.len());
        self.check()
    }

    /// Has servers pass on a unit, or make the parity units of a stripe.
    fn write_along(&mut self, offset: u64, units: &[&[u8]]) -> Result<(), SpreadError> {
        let of = self.routes.iter().zip(&self.targets).zip(units).enumerate();
        for (part, ((route, target), unit)) in of {
            if let Ok(client) = &target.client {
                let (route, place) = (Arc::clone(route), (target.node.chunk, offset));
                self.race.add(part, client.write_unit(route, place, unit.to_vec(), self.stamp));
            }
        }
        self.stamp += 1;
        self.settle((AHEAD_ALONG - 1) * self.routes.len());
        self.check()
    }

    /// Says that the chunks are whole, with so many bytes each.
    pub(crate) fn finish(&mut self, byte_len: u64) -> Result<(), SpreadError> {
        self.settle(0);
        self.check()?;
        let waited_for = if self.routes.is_empty() { self.targets.len() } else { self.acked };
        for (part, target) in self.targets[..waited_for].iter_mut().enumerate() {
            if let Ok(client) = &target.client {
                target.finishing = true;
                self.race.add(part, client.finish(target.node.chunk, byte_len));
            }
        }
        self.settle(0);
        let asked: Vec<_> = self.targets[..waited_for]
            .iter()
            .map(|target| Some(target.client.as_ref().ok()?.stat(target.node.chunk)))
            .collect();
        for (target, stat) in self.targets.iter_mut().zip(asked) {
            match stat.map(towpath_fastpath::Pending::wait) {
                Some(Ok(info)) => target.node.version = Some(info.version),
                Some(Err(error)) => target.client = Err(error.into()),
                None => {}
            }
        }
        self.finish_trailing(waited_for, byte_len);
        self.check()
    }

    /// Waits a while for the copies that no write waited for: each is whole once it is as the first
    /// one is.
    fn finish_trailing(&mut self, waited_for: usize, byte_len: u64) {
        let until = Instant::now() + TRAILING_WAIT;
        for part in waited_for..self.targets.len() {
            let whole = loop {
                match self.version_as_first(part, byte_len) {
                    Ok(None) if Instant::now() < until => std::thread::sleep(TRAILING_LOOK),
                    Ok(None) => break Err(PartError::NotWhole),
                    Ok(Some(version)) => break Ok(version),
                    Err(error) => break Err(error),
                }
            };
            let target = &mut self.targets[part];
            match whole {
                Ok(version) => target.node.version = Some(version),
                Err(error) if target.client.is_ok() => {
                    self.servers.note(target.node.server, &error);
                    target.client = Err(error);
                }
                Err(_) => {}
            }
        }
    }

    /// The version of a copy where it has what the first one has; none where it lacks something.
    fn version_as_first(&mut self, part: usize, byte_len: u64) -> Result<Option<u64>, PartError> {
        let client = |target: &Target| match &target.client {
            Ok(client) => Ok((client.clone(), target.node.chunk)),
            Err(error) => Err(error.again()),
        };
        let (first, first_chunk) = client(&self.targets[0])?;
        let (client, chunk) = client(&self.targets[part])?;
        let mut info = client.stat(chunk).wait()?;
        if info.byte_len != byte_len {
            return Ok(None);
        }
        if info.unfinished {
            // Digests are of whole chunks. What still comes of the same bytes changes nothing else.
            self.targets[part].finishing = true;
            client.finish(chunk, byte_len).wait()?;
            info = client.stat(chunk).wait()?;
        }
        for offset in (0..byte_len).step_by(IO_BYTES_MAX) {
            let bytes = (byte_len - offset).min(IO_BYTES_MAX as u64) as usize;
            let of_first = first.digest(first_chunk, offset, bytes);
            let own = client.digest(chunk, offset, bytes).wait()?;
            let is_same = of_first.wait()?.content().eq(own.content());
            if !is_same || own.version() != info.version {
                return Ok(None);
            }
        }
        Ok(Some(info.version))
    }

    /// Whether each server takes a unit in one operation.
    fn check_unit(&mut self, unit_bytes: u32) -> Result<(), SpreadError> {
        for Target { node: Node { server, .. }, client: of, .. } in &mut self.targets {
            let Ok(client) = &of else { continue };
            match client.op_bytes_max() {
                Ok(max) if max < unit_bytes as usize => {
                    return Err(SpreadError::Unit { unit_bytes, server: *server, max });
                }
                Ok(_) => {}
                Err(error) => *of = Err(error.into()),
            }
        }
        Ok(())
    }

    /// Deletes what was made, after this error. What is left and may be whole is added to it: what
    /// was not asked to be, its server deletes after a while.
    pub(crate) fn give_up(&self, error: SpreadError) -> SpreadError {
        let mut left = self.servers.discard(&self.nodes());
        left.retain(|node| {
            self.targets.iter().any(|target| target.finishing && target.node.chunk == node.chunk)
        });
        match left.is_empty() {
            true => error,
            false => SpreadError::Left { left, source: Box::new(error) },
        }
    }

    /// Waits until no more than so many operations are under way.
    fn settle(&mut self, most: usize) {
        while self.race.len() > most
            && let Some((part, result)) = self.race.next(None)
        {
            let target = &mut self.targets[part];
            if let (Err(error), true) = (result, target.client.is_ok()) {
                let error = PartError::from(error);
                self.servers.note(target.node.server, &error);
                target.client = Err(error);
            }
        }
    }

    /// Whether enough are left.
    fn check(&self) -> Result<(), SpreadError> {
        let whole = |targets: &[Target]| targets.iter().filter(|of| of.client.is_ok()).count();
        // Units go along these, however many others there are.
        let first = &self.targets[..self.acked];
        let (whole, needed) = match whole(first) {
            found if found < first.len() => (found, first.len()),
            _ => (whole(&self.targets), self.least),
        };
        let lost = || {
            self.targets.iter().find_map(|target| {
                let why = target.client.as_ref().err()?;
                Some((target.node.server, Box::new(why.again())))
            })
        };
        match lost().filter(|_| whole < needed) {
            None => Ok(()),
            Some((server, source)) => Err(SpreadError::TooFew { whole, needed, server, source }),
        }
    }
}

/// Along which servers the units of a policy go; none where the client sends each part.
fn routes(policy: Policy, places: &[SocketAddr]) -> Result<Vec<Arc<Route>>, SpreadError> {
    let data = policy.data() as u8;
    let routes = match policy.route() {
        None => return Ok(Vec::new()),
        Some(RouteKind::Stripe) => {
            (0..data).map(|rank| Route::stripe(rank, data, places)).collect()
        }
        Some(kind) => Route::new(kind, places)
            .and_then(|route| route.acked_by(policy.acked() as u8))
            .map(|route| vec![route]),
    };
    let routes: Vec<Route> = routes?;
    Ok(routes.into_iter().map(Arc::new).collect())
}

impl Servers {
    /// Stores what `source` gives on servers, one part on each, the data parts first; servers
    /// beyond those that the policy needs are left alone. When it returns, the file is durable on
    /// as many as the options say, and the layout says where. `progress` is told how many bytes
    /// were read and sent.
    ///
    /// Where it fails the chunks that were made are deleted. A server that cannot be asked to
    /// deletes its own after a while, where it was not asked to finish it.
    ///
    /// # Errors
    /// [`SpreadError`]; [`SpreadError::Left`] names chunks that may be whole and could not be
    /// deleted.
    pub fn put(
        &self,
        servers: &[SocketAddr],
        options: &PutOptions,
        source: &mut impl Read,
        progress: impl FnMut(u64),
    ) -> Result<Layout, SpreadError> {
        let &PutOptions { policy, unit_bytes, least } = options;
        let places = options.places(servers)?;
        let mut layout = Layout { bytes: 0, policy, unit_bytes, generation: 0, nodes: Vec::new() };
        layout.nodes = places
            .iter()
            .map(|server| Node { server: *server, chunk: ChunkId(0), version: None })
            .collect();
        layout.check()?;
        let mut writer = Writer::create(self, places, least, Some(policy))?;
        let stored = writer
            .check_unit(unit_bytes)
            .and_then(|()| store(&mut writer, &mut layout, source, progress));
        layout.nodes = writer.nodes();
        stored.map(|()| layout).map_err(|error| writer.give_up(error))
    }
}

fn store(
    writer: &mut Writer<'_>,
    layout: &mut Layout,
    source: &mut impl Read,
    mut progress: impl FnMut(u64),
) -> Result<(), SpreadError> {
    writer.check()?;
    let (policy, code) = (layout.policy, layout.policy.code());
    let whole = layout.stripes().stripe_bytes();
    let mut stripe_bytes = Vec::with_capacity(whole);
    let mut parity: Vec<Vec<u8>> = Vec::new();
    let mut offset = 0;
    loop {
        let failed = |source| SpreadError::Source { done: layout.bytes, source };
        stripe_bytes.clear();
        let read = source.by_ref().take(whole as u64).read_to_end(&mut stripe_bytes);
        let bytes = read.map_err(failed)?;
        if bytes == 0 {
            break;
        }
        let stripe = Stripe::new(offset, bytes, policy.data());
        stripe_bytes.resize(policy.data() * stripe.unit, 0);
        let data: Vec<&[u8]> = stripe_bytes.chunks_exact(stripe.unit).collect();
        match &code {
            None => writer.write(offset, &vec![data[0]; policy.parts()])?,
            Some(_) if policy.route().is_some() => writer.write(offset, &data)?,
            Some(code) => {
                parity.resize(code.shape().m(), Vec::new());
                parity.iter_mut().for_each(|unit| unit.resize(stripe.unit, 0));
                let mut into: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                // Every buffer has the length of a unit.
                let encoded = code.encode(&data, &mut into);
                encoded.map_err(|error| SpreadError::Code(error.to_string()))?;
                let units: Vec<&[u8]> =
                    data.iter().copied().chain(parity.iter().map(Vec::as_slice)).collect();
                writer.write(offset, &units)?;
            }
        }
        layout.bytes += bytes as u64;
        offset += stripe.unit as u64;
        progress(layout.bytes);
        if bytes < whole {
            break;
        }
    }
    writer.finish(layout.stripes().part_bytes())
}
