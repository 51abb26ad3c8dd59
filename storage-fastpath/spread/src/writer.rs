//! The chunks of a file while they are written, also when some of their servers are lost.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_ec::Code;
use towpath_fastpath::limits::IO_BYTES_MAX;
use towpath_fastpath::{ChunkId, Client, NewChunk, Pending, Route};

use crate::error::{PartError, SpreadError};
use crate::layout::Node;
use crate::notice::Notice;
use crate::policy::Policy;
use crate::race::Race;
use crate::servers::Servers;
use crate::stripes::Stripe;
use crate::wait::QUIET_TOLD;

/// Stripes that are written at a time.
const AHEAD: usize = 4;

/// Units that are under way at a time where servers pass them on, at least: enough that a ring of
/// seven always has one for each server.
const AHEAD_ALONG: usize = 8;

/// Bytes of copies that are under way at a time where servers pass them on: as many as one client
/// has under way to one server. Each server of a ring flushes after those behind it, so a unit
/// takes one flush for each of them, and only what is under way together shares one.
const AHEAD_ALONG_BYTES: usize = 2 << 20;

/// How long copies that no write waited for may take to be whole, when all else is: what a server
/// does not have by then it was not given, or it takes seconds for one unit.
const TRAILING_WAIT: Duration = Duration::from_secs(5);

/// How often they are looked at.
const TRAILING_LOOK: Duration = Duration::from_millis(20);

/// How often it is looked whether servers are there, while their answers are waited for.
const LOOK: Duration = Duration::from_millis(100);

/// A server that is away for this long is told of. Servers then pass nothing on any more, because
/// one of them cannot.
const AWAY_TOLD: Duration = Duration::from_secs(1);

/// How long writes that servers were passing on, and that were made in another way since, are
/// waited for at the end: where their servers answer they have ended long before.
const STALE_WAIT: Duration = Duration::from_secs(2);

/// A chunk that is written.
struct Target {
    node: Node,
    /// The stores that its server had before anything was written; none where it was not asked.
    stores: Vec<u64>,
    /// It was asked to be whole: then its server does not delete it by itself.
    finishing: bool,
    /// Somebody was told that its server is away.
    is_told: bool,
    /// When a write to it ended, or was the first one under way.
    heard_at: Instant,
    /// The first error once something failed.
    client: Result<Client, PartError>,
}

/// A write that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// Of a unit of this part.
    Unit { part: usize },
    /// Of a stripe of that number, given to the server of this part to be passed on.
    Along { part: usize, stripe: u64 },
}

impl Run {
    fn part(self) -> usize {
        match self {
            Self::Unit { part } | Self::Along { part, .. } => part,
        }
    }
}

/// A stripe that servers pass on, until all of them have it.
struct Passing {
    number: u64,
    stripe: Stripe,
    data: Vec<u8>,
    /// Writes of it that have not ended.
    left: usize,
}

/// The chunks of a file that is stored, or of the parts of one that are made anew.
pub(crate) struct Writer<'a> {
    servers: &'a Servers,
    targets: Vec<Target>,
    race: Race<Run, ()>,
    least: usize,
    code: Option<Code>,
    /// Along which servers units go, where they pass them on: one for the whole unit, or of each
    /// data part. None where the client sends each part, from the beginning or since a server
    /// could not pass something on.
    routes: Vec<Arc<Route>>,
    /// The first parts, which have each unit when it is answered.
    acked: usize,
    /// Some unit was answered that those behind the first parts may lack.
    has_passed: bool,
    /// What tells the next stripe from all others.
    stamp: u64,
    passing: VecDeque<Passing>,
    look_at: Instant,
    /// Since when answers are waited for.
    waits_since: Instant,
}

impl<'a> Writer<'a> {
    /// Makes a chunk on each of the servers, of which `least` must be there in the end: of a new
    /// file by a policy in units of so many bytes, or of parts that are made anew.
    pub(crate) fn create(
        servers: &'a Servers,
        places: &[SocketAddr],
        least: usize,
        of: Option<(Policy, u32)>,
    ) -> Result<Self, SpreadError> {
        let policy = of.map(|(policy, _)| policy);
        let routes = policy.map_or(Ok(Vec::new()), |policy| policy.routes(places))?;
        // A unit that is passed on goes to chunks of one name.
        let one = ChunkId::random();
        let name = || if routes.is_empty() { ChunkId::random() } else { one };
        let node = |server: &SocketAddr| Node { server: *server, chunk: name(), version: None };
        let nodes: Vec<Node> = places.iter().map(node).collect();
        let clients = servers.clients_to_write(places, least);
        let target = |(node, client): (Node, Result<Client, PartError>)| {
            // Nobody else knows the name. Where too few are left without it, it is waited for.
            let client = client.map(|client| client.sole_writer().patient(servers.patience()));
            let (stores, heard_at) = (Vec::new(), Instant::now());
            Target { node, stores, finishing: false, is_told: false, heard_at, client }
        };
        let targets: Vec<Target> = nodes.into_iter().zip(clients).map(target).collect();
        let mut writer = Self {
            servers,
            race: Race::new(),
            least,
            code: policy.and_then(Policy::code),
            routes,
            acked: policy.map_or(targets.len(), Policy::acked),
            has_passed: false,
            // Never zero, however many stripes follow.
            stamp: (ChunkId::random().0 as u64 >> 1) + 1,
            passing: VecDeque::new(),
            look_at: Instant::now(),
            waits_since: Instant::now(),
            targets,
        };
        if writer.whole() >= least {
            writer.targets.iter().enumerate().for_each(|(part, target)| writer.tell(part, target));
        }
        let kind = NewChunk { unfinished: true, ..NewChunk::default() };
        let asked = of.map_or(Ok(()), |(_, unit_bytes)| writer.check_unit(unit_bytes));
        let made = asked.and_then(|()| {
            writer.each(0..places.len(), |client, chunk| client.create(chunk, None, kind));
            writer.check()
        });
        match made {
            Ok(()) => Ok(writer),
            Err(error) => Err(writer.give_up(error)),
        }
    }

    /// The chunks, as far as they have come.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.targets.iter().map(|target| target.node).collect()
    }

    /// Writes the data units of a stripe, and what belongs to them.
    pub(crate) fn write_stripe(
        &mut self,
        stripe: Stripe,
        data: Vec<u8>,
    ) -> Result<(), SpreadError> {
        let unit = stripe.unit.max(1);
        match self.routes.is_empty() {
            true => self.send_stripe(stripe, &data)?,
            false => self.pass_on(stripe, data),
        }
        let most = match self.routes.len() {
            0 => (AHEAD - 1) * self.whole(),
            1 => (AHEAD_ALONG_BYTES / unit).max(AHEAD_ALONG) - 1,
            routes => (AHEAD_ALONG - 1) * routes,
        };
        self.settle(most)
    }

    /// Writes a unit of each part.
    pub(crate) fn write(&mut self, offset: u64, units: &[&[u8]]) -> Result<(), SpreadError> {
        self.send(offset, units);
        self.settle((AHEAD - 1) * self.whole())
    }

    fn send(&mut self, offset: u64, units: &[&[u8]]) {
        for (part, (target, unit)) in self.targets.iter().zip(units).enumerate() {
            if let Ok(client) = &target.client {
                let write = client.write(target.node.chunk, offset, unit.to_vec());
                self.race.add(Run::Unit { part }, write);
            }
        }
    }

    /// Sends a unit of each part of a stripe: copies, or data and parity.
    fn send_stripe(&mut self, stripe: Stripe, data: &[u8]) -> Result<(), SpreadError> {
        let Some(code) = &self.code else {
            self.send(stripe.offset, &vec![data; self.targets.len()]);
            return Ok(());
        };
        let mut units: Vec<&[u8]> = data.chunks_exact(stripe.unit).collect();
        let mut parity = vec![vec![0; stripe.unit]; code.shape().m()];
        let mut into: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        // Every buffer has the length of a unit.
        let encoded = code.encode(&units, &mut into);
        encoded.map_err(|error| SpreadError::Code(error.to_string()))?;
        units.extend(parity.iter().map(Vec::as_slice));
        self.send(stripe.offset, &units);
        Ok(())
    }

    /// Has servers pass on a unit, or make the parity units of a stripe. Its data is kept until
    /// they have.
    fn pass_on(&mut self, stripe: Stripe, data: Vec<u8>) {
        let (number, mut left) = (self.stamp, 0);
        self.stamp += 1;
        let units = data.chunks_exact(stripe.unit);
        for (part, ((route, target), unit)) in
            self.routes.iter().zip(&self.targets).zip(units).enumerate()
        {
            if let Ok(client) = &target.client {
                let place = (target.node.chunk, stripe.offset);
                let write = client.write_unit(Arc::clone(route), place, unit.to_vec(), number);
                self.race.add(Run::Along { part, stripe: number }, write);
            }
            // Of a server that is lost it does not end: all is sent in another way.
            left += 1;
        }
        self.passing.push_back(Passing { number, stripe, data, left });
    }

    /// From now on each part is sent from here, also of what servers have not passed on yet. What
    /// still comes of that is the same bytes in the same place.
    fn send_all_from_here(&mut self, why: &PartError) -> Result<(), SpreadError> {
        if self.routes.is_empty() {
            return Ok(());
        }
        self.routes.clear();
        if !self.has_passed {
            self.acked = self.targets.len();
        }
        self.servers.tell(&Notice::Direct { why: why.to_string() });
        for Passing { stripe, data, .. } in std::mem::take(&mut self.passing) {
            self.send_stripe(stripe, &data)?;
        }
        Ok(())
    }

    /// Says that the chunks are whole, with so many bytes each.
    pub(crate) fn finish(&mut self, byte_len: u64) -> Result<(), SpreadError> {
        self.settle(0)?;
        let stale_until = Instant::now() + STALE_WAIT;
        while self.race.len() > 0 && self.race.next(Some(stale_until)).is_some() {}
        self.race.retain(|_| false);
        let waited_for = 0..self.acked;
        for target in &mut self.targets[waited_for.clone()] {
            target.finishing = target.client.is_ok();
        }
        self.each(waited_for.clone(), |client, chunk| client.finish(chunk, byte_len));
        for (part, info) in self.each(waited_for, Client::stat) {
            self.targets[part].node.version = Some(info.version);
        }
        self.finish_trailing(byte_len);
        self.check_servers();
        // A server that was lost since it said so has its part.
        self.check()
    }

    /// Waits a while for the copies that no write waited for: each is whole once it is as one of
    /// the first ones is.
    fn finish_trailing(&mut self, byte_len: u64) {
        let until = Instant::now() + TRAILING_WAIT;
        for part in self.acked..self.targets.len() {
            let whole = loop {
                match self.version_as_first(part, byte_len) {
                    Ok(None) if Instant::now() < until => std::thread::sleep(TRAILING_LOOK),
                    Ok(None) => break Err(PartError::NotWhole),
                    Ok(Some(version)) => break Ok(version),
                    Err(error) => break Err(error),
                }
            };
            match whole {
                Ok(version) => self.targets[part].node.version = Some(version),
                Err(error) => self.lose(part, error),
            }
        }
    }

    /// The version of a copy where it has what one of the first ones has; none where it lacks
    /// something.
    fn version_as_first(&mut self, part: usize, byte_len: u64) -> Result<Option<u64>, PartError> {
        // Those that are away are done without: enough are whole.
        let client = |target: &Target| match &target.client {
            Ok(client) => Ok((client.patient(Duration::ZERO), target.node.chunk)),
            Err(error) => Err(error.again()),
        };
        let mut first = self.targets[..self.acked].iter();
        let first = first.find(|target| target.node.version.is_some());
        let (first, first_chunk) = client(first.ok_or(PartError::NotWhole)?)?;
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

    /// Where the chunks of all parts have one name, servers that have exchanged their addresses
    /// meanwhile have taken units of each other's parts: those are not whole.
    fn check_servers(&mut self) {
        let chunk = |target: &Target| target.node.chunk;
        let have_one_name = self.targets.windows(2).all(|pair| chunk(&pair[0]) == chunk(&pair[1]));
        if self.targets.len() < 2 || !have_one_name {
            return;
        }
        for (part, info) in self.each(0..self.targets.len(), |client, _| client.info()) {
            let Target { stores, node, .. } = &mut self.targets[part];
            let is_other = !stores.is_empty()
                && info.store_ids().next().is_some()
                && !info.store_ids().any(|id| stores.contains(&id));
            if is_other {
                node.version = None;
                self.lose(part, PartError::OtherServer);
            }
        }
    }

    /// Whether each server takes a unit in one operation.
    fn check_unit(&mut self, unit_bytes: u32) -> Result<(), SpreadError> {
        for (part, info) in self.each(0..self.targets.len(), |client, _| client.info()) {
            self.targets[part].stores = info.store_ids().collect();
            let Target { node: Node { server, .. }, client, .. } = &self.targets[part];
            let max = client.as_ref().map_or(usize::MAX, |client| client.op_bytes_by(&info));
            if max < unit_bytes as usize {
                return Err(SpreadError::Unit { unit_bytes, server: *server, max });
            }
        }
        self.check()
    }

    /// Deletes what was made, after this error. What is left and may be whole is added to it: what
    /// was not asked to be, its server deletes after a while.
    pub(crate) fn give_up(&self, error: SpreadError) -> SpreadError {
        let mut left = self.servers.discard(&self.nodes());
        left.retain(|node| self.targets.iter().any(|of| of.finishing && of.node == *node));
        match left.is_empty() {
            true => error,
            false => SpreadError::Left { left, source: Box::new(error) },
        }
    }

    /// Asks each server of these parts that is left; gives what those have answered that stay.
    fn each<T>(
        &mut self,
        parts: Range<usize>,
        ask: impl Fn(&Client, ChunkId) -> Pending<T>,
    ) -> Vec<(usize, T)> {
        let mut race = Race::new();
        for part in parts {
            let Target { node, client, .. } = &self.targets[part];
            if let Ok(client) = client {
                race.add(part, ask(client, node.chunk));
            }
        }
        let mut answers = Vec::new();
        while race.len() > 0 {
            match race.next(Some(Instant::now() + LOOK)) {
                Some((part, Ok(answer))) => answers.push((part, answer)),
                Some((part, Err(error))) => self.lose(part, error.into()),
                None => {}
            }
            self.look();
            race.retain(|part| self.targets[*part].client.is_ok());
        }
        answers
    }

    /// Waits until no more than so many writes are under way, or too few servers are left.
    fn settle(&mut self, most: usize) -> Result<(), SpreadError> {
        self.waits_since = Instant::now();
        loop {
            self.look();
            if let Some(why) = self.in_the_way() {
                self.send_all_from_here(&why)?;
            }
            self.check()?;
            if self.under_way() <= most {
                return Ok(());
            }
            let ended = self.race.next(Some(Instant::now() + LOOK));
            if let Some((run, _)) = &ended {
                self.targets[run.part()].heard_at = Instant::now();
            }
            match ended {
                Some((Run::Unit { part }, Err(error))) => self.lose(part, error.into()),
                Some((Run::Along { .. }, Err(error))) => self.send_all_from_here(&error.into())?,
                Some((Run::Along { stripe, .. }, Ok(()))) => self.note_passed(stripe),
                Some((Run::Unit { .. }, Ok(()))) | None => {}
            }
        }
    }

    /// Why servers cannot pass anything on, where one of them is away or lost.
    fn in_the_way(&self) -> Option<PartError> {
        let mut first = self.targets[..self.acked].iter().filter(|_| !self.routes.is_empty());
        first.find_map(|target| match &target.client {
            Ok(client) if client.away_for() < Some(AWAY_TOLD) => None,
            Ok(_) => Some(PartError::Away { seconds: AWAY_TOLD.as_secs() }),
            Err(error) => Some(error.again()),
        })
    }

    /// Writes that count: not those that were made in another way since.
    fn under_way(&self) -> usize {
        match self.routes.is_empty() {
            true => self.race.keys().filter(|run| matches!(run, Run::Unit { .. })).count(),
            false => self.race.len(),
        }
    }

    /// A part of a stripe is with all servers that it is passed on to.
    fn note_passed(&mut self, stripe: u64) {
        let of = self.passing.iter_mut().filter(|passing| passing.number == stripe);
        of.for_each(|passing| passing.left = passing.left.saturating_sub(1));
        self.has_passed = true;
        self.passing.retain(|passing| passing.left > 0);
    }

    /// Looks now and then which servers are away. One that is for long is done without, where the
    /// others are enough.
    fn look(&mut self) {
        let now = Instant::now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK;
        for part in 0..self.targets.len() {
            let target = &mut self.targets[part];
            let Ok(client) = &target.client else { continue };
            let (away, server) = (client.away_for(), target.node.server);
            if !self.race.keys().any(|run| run.part() == part) {
                target.heard_at = now;
            }
            let quiet = now.saturating_duration_since(target.heard_at.max(self.waits_since));
            let is_away = quiet >= QUIET_TOLD || away >= Some(AWAY_TOLD);
            if is_away != target.is_told && (is_away || away.is_none()) {
                target.is_told = is_away;
                self.servers.tell(&match is_away {
                    true => Notice::Away { server },
                    false => Notice::Back { server },
                });
            }
            let is_lost = away >= Some(self.servers.lost_after_span());
            if (is_lost || quiet >= self.servers.timeout()) && self.whole() > self.least {
                let seconds = away.unwrap_or(quiet).as_secs();
                self.lose(part, PartError::Away { seconds });
            }
        }
    }

    /// Something of a part failed: nothing more is written to it.
    fn lose(&mut self, part: usize, error: PartError) {
        let target = &mut self.targets[part];
        if target.client.is_err() {
            return;
        }
        self.servers.note(target.node.server, &error);
        target.client = Err(error);
        self.race.retain(|run| run.part() != part);
        if self.whole() >= self.least {
            self.tell(part, &self.targets[part]);
        }
    }

    /// Tells of a part that is done without.
    fn tell(&self, part: usize, target: &Target) {
        let server = target.node.server;
        if let Err(why) = &target.client {
            self.servers.tell(&Notice::Lost { part, server, why: why.to_string() });
        }
    }

    /// How many parts are not lost.
    fn whole(&self) -> usize {
        let is_whole = |of: &&Target| of.client.is_ok() || of.node.version.is_some();
        // Without the first ones nobody knows what others lack.
        let is_known =
            !self.has_passed || self.targets[..self.acked].iter().any(|of| is_whole(&of));
        if is_known { self.targets.iter().filter(is_whole).count() } else { 0 }
    }

    /// Whether enough are left.
    fn check(&self) -> Result<(), SpreadError> {
        let (whole, needed) = (self.whole(), self.least);
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
