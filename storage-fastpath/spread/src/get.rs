//! Files read, whole or without some servers.

use std::collections::VecDeque;
use std::io::Write;
use std::time::Instant;

use towpath_ec::ShardSet;
use towpath_fastpath::{ClientError, ReadData};

use crate::coder::{Coder, Units};
use crate::error::{PartError, SpreadError};
use crate::layout::Layout;
use crate::race::Race;
use crate::servers::Servers;
use crate::state::{Part, parts_by_layout};
use crate::stripes::Stripe;
use crate::update::Glance;
use crate::wait::{LOOK, Quiet};

/// Stripes that are read at a time: the next ones are on their way while one is written.
const AHEAD: usize = 4;

/// How often a stripe is read, or a window of stripes is compared, by newer versions of its parts,
/// as others change it meanwhile.
pub(crate) const MOVES_MAX: u32 = 64;

/// How a file was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Got {
    /// Bytes of the file.
    pub bytes: u64,
    /// Stripes that were read without some of their data parts.
    pub decoded: u64,
    /// Parts that are missing or damaged, or whose servers do not answer.
    pub without: ShardSet,
    /// Parts that were late at least once, so that others were read in their place, and are whole
    /// as far as is known.
    pub late: ShardSet,
}

/// A unit that was asked for.
#[derive(Clone, Copy)]
struct Ask {
    number: usize,
    stripe: Stripe,
    part: usize,
}

/// A stripe that is being read.
struct Fetch {
    number: usize,
    stripe: Stripe,
    units: Units,
    asked: ShardSet,
    /// Those that will not come.
    failed: ShardSet,
    /// Why the last one of them does not.
    why: Option<(usize, PartError)>,
    /// When more are asked for.
    late_at: Instant,
}

/// Reads a file, stripe by stripe.
pub(crate) struct Reader<'a> {
    servers: &'a Servers,
    layout: &'a Layout,
    parts: Vec<Part>,
    pub(crate) coder: Coder,
    race: Race<Ask, ReadData>,
    fetches: VecDeque<Fetch>,
    /// Parts that were late: they are asked last.
    late: ShardSet,
    got: Got,
    quiet: Quiet,
}

impl<'a> Reader<'a> {
    /// With parts of which it is known what has become of them.
    pub(crate) fn with(servers: &'a Servers, layout: &'a Layout, parts: Vec<Part>) -> Self {
        // Of a server that takes long to connect nothing is known.
        let is_late = |part: &Part| matches!(part, Err(PartError::Gone));
        let set = |which: &dyn Fn(&Part) -> bool| {
            let found = parts.iter().enumerate().filter(|(_, part)| which(part));
            found.map(|(part, _)| part).collect()
        };
        let without = set(&|part| part.is_err() && !is_late(part));
        let got = Got { without, late: set(&is_late), ..Got::default() };
        Self {
            servers,
            layout,
            parts,
            coder: Coder::new(layout.policy),
            race: Race::new(),
            fetches: VecDeque::new(),
            late: ShardSet::NONE,
            got,
            quiet: Quiet::new(),
        }
    }

    /// Gives each stripe to `take`, in order, with as many units as are enough.
    pub(crate) fn each(
        self,
        take: impl FnMut(&mut Self, Stripe, Units) -> Result<(), SpreadError>,
    ) -> Result<Got, SpreadError> {
        let stripes = self.layout.stripes().iter();
        self.each_of(stripes, take)
    }

    /// The same of some stripes, or of pieces of some.
    pub(crate) fn each_of(
        mut self,
        stripes: impl Iterator<Item = Stripe>,
        mut take: impl FnMut(&mut Self, Stripe, Units) -> Result<(), SpreadError>,
    ) -> Result<Got, SpreadError> {
        self.check_enough()?;
        let mut rest = stripes.enumerate();
        loop {
            while self.fetches.len() < AHEAD
                && let Some((number, stripe)) = rest.next()
            {
                self.begin(number, stripe);
            }
            let Some(front) = self.fetches.front() else { return Ok(self.got) };
            let present = front.units.present();
            if present.len() >= self.layout.policy.enough() {
                let Some(Fetch { stripe, units, .. }) = self.fetches.pop_front() else { continue };
                self.got.bytes += stripe.bytes as u64;
                take(&mut self, stripe, units)?;
                continue;
            }
            let (late_at, can_ask) = (front.late_at, !self.spare(front).is_empty());
            let is_waiting = self.race.keys().any(|ask| ask.number == front.number);
            if !is_waiting && !can_ask {
                if self.wait_for_others() {
                    continue;
                }
                self.check_enough()?;
                return Err(self.unreadable());
            }
            let until = if can_ask { late_at } else { Instant::now() + LOOK };
            match self.race.next(Some(until)) {
                Some((ask, result)) => self.on_read(ask, result),
                None if can_ask => self.on_late(),
                None => {
                    let waited_for = self.race.keys().map(|ask| self.layout.nodes[ask.part].server);
                    self.quiet.look(self.servers, waited_for);
                }
            }
        }
    }

    /// All units of a stripe, those that there are. Nothing else is under way.
    pub(crate) fn all(&mut self, stripe: Stripe) -> Units {
        let mut units = Units::new(self.parts.len());
        (0..self.parts.len()).for_each(|part| self.ask(Ask { number: 0, stripe, part }));
        while let Some((Ask { part, .. }, result)) = self.race.next(None) {
            match self.checked(part, stripe, result) {
                Ok(unit) => units.of[part] = Some(unit),
                Err(error) => self.lose(part, error),
            }
        }
        units
    }

    /// The data units of a stripe, put together.
    pub(crate) fn data(
        &mut self,
        stripe: Stripe,
        units: &mut Units,
    ) -> Result<Vec<u8>, SpreadError> {
        let k = self.layout.policy.data();
        if self.coder.has_code() {
            let missing = (0..k).filter(|part| units.of[*part].is_none()).collect::<ShardSet>();
            if !missing.is_empty() {
                self.got.decoded += 1;
                self.make(stripe, missing, units)?;
            }
        }
        // Of copies any one is the data.
        let found = units.of.iter_mut().filter_map(Option::take).take(k);
        let mut bytes = found.fold(Vec::with_capacity(k * stripe.unit), |mut bytes, unit| {
            bytes.extend_from_slice(&unit);
            bytes
        });
        bytes.truncate(stripe.bytes);
        Ok(bytes)
    }

    /// Makes units of others; there are enough of them.
    pub(crate) fn make(
        &mut self,
        stripe: Stripe,
        wanted: ShardSet,
        units: &mut Units,
    ) -> Result<(), SpreadError> {
        self.coder.make(stripe.unit, wanted, units)
    }

    fn check_enough(&self) -> Result<(), SpreadError> {
        let whole = self.parts.iter().filter(|part| part.is_ok()).count();
        let needed = self.layout.policy.enough();
        let mut lost = self.parts.iter().enumerate();
        let lost = lost.find_map(|(part, of)| Some((part, of.as_ref().err()?)));
        match lost.filter(|_| whole < needed) {
            None => Ok(()),
            Some((part, why)) => Err(SpreadError::TooFew {
                whole,
                needed,
                server: self.layout.nodes[part].server,
                source: Box::new(why.again()),
            }),
        }
    }

    /// Enough parts are there, and the first stripe is not to be had.
    fn unreadable(&self) -> SpreadError {
        let front = self.fetches.front();
        let why = front.and_then(|front| front.why.as_ref());
        let (part, source) =
            why.map_or((0, PartError::NotWhole), |(part, error)| (*part, error.again()));
        SpreadError::Unreadable {
            offset: front.map_or(0, |front| self.layout.stripes().file_offset(front.stripe.offset)),
            read: front.map_or(0, |front| front.units.present().len()),
            needed: self.layout.policy.enough(),
            server: self.layout.nodes[part].server,
            source: Box::new(source),
        }
    }

    /// Servers that have come since.
    fn rejoin(&mut self) {
        for (part, node) in self.parts.iter_mut().zip(&self.layout.nodes) {
            if matches!(part, Err(PartError::Gone))
                && let Some(client) = self.servers.ready(node.server)
            {
                *part = Ok(client);
            }
        }
    }

    /// Waits for servers that have not come, as the others are not enough; whether one comes.
    fn wait_for_others(&mut self) -> bool {
        let parts = self.parts.iter().enumerate();
        let gone = parts.filter(|(_, part)| matches!(part, Err(PartError::Gone)));
        let gone: Vec<usize> = gone.map(|(part, _)| part).collect();
        let places: Vec<_> = gone.iter().map(|part| self.layout.nodes[*part].server).collect();
        let clients = self.servers.clients(&places);
        let comes = clients.iter().any(Result::is_ok);
        for (part, client) in gone.into_iter().zip(clients) {
            if client.is_err() {
                self.got.without.insert(part);
            }
            self.parts[part] = client;
        }
        comes
    }

    fn begin(&mut self, number: usize, stripe: Stripe) {
        self.rejoin();
        let (units, late_at) = (Units::new(self.parts.len()), self.servers.late_by());
        let (asked, failed, why) = (ShardSet::NONE, ShardSet::NONE, None);
        self.fetches.push_back(Fetch { number, stripe, units, asked, failed, why, late_at });
        self.ask_enough(number);
    }

    /// Parts that are whole and were not asked for a stripe yet: the data parts first, those that
    /// were late last.
    fn spare(&self, fetch: &Fetch) -> Vec<usize> {
        let whole = self.parts.iter().enumerate().filter(|(_, part)| part.is_ok());
        let spare = whole.map(|(part, _)| part).collect::<ShardSet>().without(fetch.asked);
        let soon = spare.without(self.late);
        soon.iter().chain(spare.without(soon).iter()).collect()
    }

    /// Asks for as many units of a stripe as are enough, if all of them come.
    fn ask_enough(&mut self, number: usize) {
        let enough = self.layout.policy.enough();
        let Some(fetch) = self.fetches.iter().find(|fetch| fetch.number == number) else { return };
        let hoped = fetch.asked.without(fetch.failed).len();
        let mut more = self.spare(fetch);
        more.truncate(enough.saturating_sub(hoped));
        self.ask_of(number, &more);
    }

    fn ask_of(&mut self, number: usize, more: &[usize]) {
        let Some(fetch) = self.fetches.iter_mut().find(|fetch| fetch.number == number) else {
            return;
        };
        fetch.asked = fetch.asked.with(more.iter().copied().collect());
        let stripe = fetch.stripe;
        more.iter().for_each(|part| self.ask(Ask { number, stripe, part: *part }));
    }

    fn ask(&mut self, ask: Ask) {
        let Some(Ok(client)) = self.parts.get(ask.part) else { return };
        let (chunk, stripe) = (self.layout.nodes[ask.part].chunk, ask.stripe);
        self.race.add(ask, client.read_held(chunk, stripe.offset, stripe.unit));
    }

    /// A unit that has come, of the version of the layout.
    fn checked(
        &mut self,
        part: usize,
        stripe: Stripe,
        result: Result<ReadData, ClientError>,
    ) -> Result<Vec<u8>, PartError> {
        let data = result?;
        let found = data.header().chunk_version;
        match self.layout.nodes[part].version {
            Some(expected) if expected == found => {
                let mut unit = vec![0; stripe.unit];
                data.copy_to(&mut unit);
                Ok(unit)
            }
            Some(expected) => Err(PartError::OtherVersion { expected, found }),
            None => Err(PartError::NotWhole),
        }
    }

    fn on_read(&mut self, ask: Ask, result: Result<ReadData, ClientError>) {
        let Ask { number, stripe, part } = ask;
        self.quiet.heard(self.servers, self.layout.nodes[part].server, result.is_ok());
        let checked = self.checked(part, stripe, result);
        let at = self.fetches.iter().position(|fetch| fetch.number == number);
        let fetch = at.and_then(|at| self.fetches.get_mut(at));
        match (checked, fetch) {
            (Ok(unit), Some(fetch)) => fetch.units.of[part] = Some(unit),
            // It was late, and the stripe is done without it.
            (Ok(_), None) => {}
            (Err(error), fetch) => {
                if let Some(fetch) = fetch {
                    fetch.failed.insert(part);
                    fetch.why = Some((part, error.again()));
                }
                // Told of stripes that are done as well: else nobody learns that a server hangs.
                self.lose(part, error);
                self.ask_enough(number);
            }
        }
    }

    /// A unit of a part did not come: nor does anything else of it, unless one slice is bad.
    fn lose(&mut self, part: usize, error: PartError) {
        self.got.without.insert(part);
        if !error.is_of_one_slice() {
            self.servers.note(self.layout.nodes[part].server, &error);
            self.parts[part] = Err(error);
        }
    }

    /// What was asked for the first stripe does not come: the others are asked as well.
    fn on_late(&mut self) {
        let enough = self.layout.policy.enough();
        let late_by = self.servers.late_by();
        let Some(front) = self.fetches.front_mut() else { return };
        front.late_at = late_by;
        let late = front.asked.without(front.units.present()).without(front.failed);
        let missing = enough - front.units.present().len().min(enough);
        self.got.late = self.got.late.with(late);
        self.late = self.late.with(late);
        let Some(front) = self.fetches.front() else { return };
        let (number, mut more) = (front.number, self.spare(front));
        more.truncate(missing);
        self.ask_of(number, &more);
    }
}

impl Servers {
    /// Reads a whole file into `sink`: from its data parts, and where some are gone or late, from
    /// what else is enough. Every byte was verified before it is written. `progress` is told how
    /// many bytes are.
    ///
    /// Where too few servers are left, of those that were there when it began, it waits for them
    /// and goes on. It waits for as long as the
    /// [patience](towpath_fastpath::ClientConfig::patience) of clients says, after the last bytes
    /// came. [Notices](Self::on_notice) tell of both.
    ///
    /// # Errors
    /// [`SpreadError`]; `sink` may have got the first part.
    pub fn get(
        &self,
        layout: &Layout,
        sink: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<Got, SpreadError> {
        layout.check()?;
        let (mut now, mut got, mut tries) = (layout.clone(), Got::default(), 0);
        let (mut done, mut stripes_done, mut was_done, mut is_first) = (0, 0, 0, true);
        let (mut has_begun, mut wait_until) = (false, None);
        loop {
            let enough = now.policy.enough();
            let parts = parts_by_layout(self, &now, enough);
            has_begun |= parts.iter().filter(|part| part.is_ok()).count() >= enough;
            let mut glance = is_first.then(|| Glance::begin(&now, &parts));
            is_first = false;
            let (mut is_other, stripes) = (false, now.stripes().iter().skip(stripes_done));
            let read =
                Reader::with(self, &now, parts).each_of(stripes, |reader, stripe, mut units| {
                    is_other =
                        glance.take().is_some_and(|glance| glance.says_other(self, reader.layout));
                    if is_other {
                        return Err(reader.unreadable());
                    }
                    let bytes = reader.data(stripe, &mut units)?;
                    sink.write_all(&bytes).map_err(|source| SpreadError::Sink { done, source })?;
                    done += bytes.len() as u64;
                    stripes_done += 1;
                    progress(done);
                    Ok(())
                });
            if stripes_done > was_done {
                (was_done, tries, wait_until) = (stripes_done, 0, None);
            }
            let is_short = has_begun && matches!(read, Err(SpreadError::TooFew { .. }));
            let until = *wait_until.get_or_insert_with(|| Instant::now() + self.patience());
            if is_short && self.wait_for_enough(&now, until) {
                continue;
            }
            let is_old = is_other
                || matches!(read, Err(SpreadError::TooFew { .. } | SpreadError::Unreadable { .. }));
            match read {
                Err(error) if is_old && tries < MOVES_MAX => {
                    // What the file is now is known to those who remember its changes.
                    match self.current(layout) {
                        Ok(current) if is_other || current != now => now = current,
                        _ => return Err(error),
                    }
                    tries += 1;
                }
                read => {
                    let read = read?;
                    got.bytes = done;
                    got.decoded += read.decoded;
                    got.without = got.without.with(read.without);
                    got.late = got.late.with(read.late).without(got.without);
                    break;
                }
            }
        }
        sink.flush().map_err(|source| SpreadError::Sink { done, source })?;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Node;
    use towpath_fastpath::{ChunkId, ClientConfig, ErrorKind, Method};

    #[test]
    fn a_part_that_fails_after_its_stripe_was_read_is_lost_all_the_same() {
        let servers = Servers::new(ClientConfig::new());
        let node = |n: u8| Node {
            server: ([10, 0, 0, n], 7400).into(),
            chunk: ChunkId(n.into()),
            version: Some(1),
        };
        let layout = Layout {
            bytes: 100_000,
            policy: "flat:2".parse().expect("a policy"),
            unit_bytes: 4_096,
            generation: 0,
            nodes: (0..2).map(node).collect(),
            left: Vec::new(),
        };
        // No server is there: what stands for whole parts is another error.
        let parts = vec![Err(PartError::Gone), Err(PartError::Gone)];
        let mut reader = Reader::with(&servers, &layout, parts);
        reader.got.without = ShardSet::NONE;
        let ask = Ask { number: 3, stripe: Stripe::new(0, 4_096, 1), part: 1 };
        let (chunk, offset) = (Some(layout.nodes[1].chunk), Some(0));
        let error = ClientError { method: Method::Read, chunk, offset, kind: ErrorKind::Busy };
        assert!(reader.fetches.is_empty());
        reader.on_read(ask, Err(error));
        assert!(matches!(reader.parts[0], Err(PartError::Gone)));
        assert!(matches!(reader.parts[1], Err(PartError::Client(_))), "{:?}", reader.parts[1]);
        assert_eq!(reader.got.without, ShardSet::from_bits(2));
    }
}
