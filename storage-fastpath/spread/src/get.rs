//! Files read, whole or without some servers.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::time::Instant;

use towpath_ec::{Code, Decoder, ShardSet};
use towpath_fastpath::{ClientError, ReadData};

use crate::error::{PartError, SpreadError};
use crate::layout::Layout;
use crate::race::Race;
use crate::servers::Servers;
use crate::state::{Part, parts};
use crate::stripes::Stripe;

/// Stripes that are read at a time: the next ones are on their way while one is written.
const AHEAD: usize = 4;

/// How a file was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Got {
    /// Bytes of the file.
    pub bytes: u64,
    /// Stripes that were read without some of their data parts.
    pub decoded: u64,
    /// Parts that were not whole, or late at least once.
    pub without: ShardSet,
}

/// Units of a stripe, by part.
pub(crate) struct Units {
    pub(crate) of: Vec<Option<Vec<u8>>>,
}

impl Units {
    fn new(parts: usize) -> Self {
        Self { of: vec![None; parts] }
    }

    /// The parts whose units are here.
    pub(crate) fn present(&self) -> ShardSet {
        self.of
            .iter()
            .enumerate()
            .filter(|(_, unit)| unit.is_some())
            .map(|(part, _)| part)
            .collect()
    }
}

/// A stripe that is being read.
struct Fetch {
    number: usize,
    stripe: Stripe,
    units: Units,
    asked: ShardSet,
    /// Those that will not come.
    failed: ShardSet,
    /// When more are asked for.
    late_at: Instant,
}

/// Reads a file, stripe by stripe.
pub(crate) struct Reader<'a> {
    servers: &'a Servers,
    layout: &'a Layout,
    parts: Vec<Part>,
    code: Option<Code>,
    decoders: HashMap<(ShardSet, ShardSet), Decoder>,
    race: Race<(usize, usize), ReadData>,
    fetches: VecDeque<Fetch>,
    got: Got,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(servers: &'a Servers, layout: &'a Layout) -> Self {
        Self::with(servers, layout, parts(servers, layout))
    }

    /// With parts of which it is known what has become of them.
    pub(crate) fn with(servers: &'a Servers, layout: &'a Layout, parts: Vec<Part>) -> Self {
        let lost = parts.iter().enumerate().filter(|(_, part)| part.is_err());
        let got = Got { without: lost.map(|(part, _)| part).collect(), ..Got::default() };
        Self {
            servers,
            layout,
            parts,
            code: layout.policy.code(),
            decoders: HashMap::new(),
            race: Race::new(),
            fetches: VecDeque::new(),
            got,
        }
    }

    /// Gives each stripe to `take`, in order, with as many units as are enough.
    pub(crate) fn each(
        mut self,
        mut take: impl FnMut(&mut Self, Stripe, Units) -> Result<(), SpreadError>,
    ) -> Result<Got, SpreadError> {
        self.check_enough()?;
        let mut rest = self.layout.stripes().iter().enumerate();
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
            let is_waiting = self.race.keys().any(|(number, _)| *number == front.number);
            if !is_waiting && !can_ask {
                return Err(self.too_few());
            }
            match self.race.next(can_ask.then_some(late_at)) {
                Some((key, result)) => self.on_read(key, result),
                None => self.on_late(),
            }
        }
    }

    /// All units of a stripe, those that there are. Nothing else is under way.
    pub(crate) fn all(&mut self, stripe: Stripe) -> Vec<Option<Vec<u8>>> {
        let mut units = Units::new(self.parts.len());
        (0..self.parts.len()).for_each(|part| self.ask((0, part), stripe));
        while let Some(((_, part), result)) = self.race.next(None) {
            if let Ok(unit) = self.checked(part, stripe, result) {
                units.of[part] = Some(unit);
            }
        }
        units.of
    }

    /// The data units of a stripe, put together.
    pub(crate) fn data(&mut self, stripe: Stripe, units: &mut Units) -> Vec<u8> {
        let k = self.layout.policy.data();
        if self.code.is_some() {
            let missing = (0..k).filter(|part| units.of[*part].is_none()).collect::<ShardSet>();
            if !missing.is_empty() {
                self.got.decoded += 1;
                self.make(stripe, missing, units);
            }
        }
        // Of copies any one is the data.
        let found = units.of.iter_mut().filter_map(Option::take).take(k);
        let mut bytes = found.fold(Vec::with_capacity(k * stripe.unit), |mut bytes, unit| {
            bytes.extend_from_slice(&unit);
            bytes
        });
        bytes.truncate(stripe.bytes);
        bytes
    }

    /// Makes units of others; there are enough of them.
    pub(crate) fn make(&mut self, stripe: Stripe, wanted: ShardSet, units: &mut Units) {
        let Some(code) = &self.code else {
            let copy = units.of.iter().flatten().next().cloned();
            wanted.iter().for_each(|part| units.of[part].clone_from(&copy));
            return;
        };
        let present = units.present();
        let wanted = wanted.without(present);
        let key = (present, wanted);
        let decoder = match self.decoders.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                // As many are present as are needed, and none of them is wanted.
                let Ok(decoder) = Decoder::new(code, present, wanted) else { return };
                place.insert(decoder)
            }
        };
        let mut made = vec![vec![0; stripe.unit]; wanted.len()];
        {
            let from: Vec<&[u8]> = decoder
                .sources()
                .iter()
                .map(|part| units.of[part].as_deref().unwrap_or(&[]))
                .collect();
            let mut into: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            if decoder.decode(&from, &mut into).is_err() {
                // All are as long as a unit.
                return;
            }
        }
        wanted.iter().zip(made).for_each(|(part, unit)| units.of[part] = Some(unit));
    }

    fn check_enough(&self) -> Result<(), SpreadError> {
        let whole = self.parts.iter().filter(|part| part.is_ok()).count();
        if whole >= self.layout.policy.enough() { Ok(()) } else { Err(self.too_few_of(whole)) }
    }

    fn too_few(&mut self) -> SpreadError {
        let whole = self.parts.iter().filter(|part| part.is_ok()).count();
        self.too_few_of(whole)
    }

    fn too_few_of(&self, whole: usize) -> SpreadError {
        let needed = self.layout.policy.enough();
        let mut lost = self.parts.iter().enumerate();
        let lost = lost.find_map(|(part, of)| Some((part, of.as_ref().err()?)));
        match lost {
            Some((part, why)) => SpreadError::TooFew {
                whole,
                needed,
                server: self.layout.nodes[part].server,
                source: Box::new(why.again()),
            },
            None => SpreadError::TooFewListed { whole, needed },
        }
    }

    fn begin(&mut self, number: usize, stripe: Stripe) {
        let (units, late_at) = (Units::new(self.parts.len()), self.servers.late_by());
        let (asked, failed) = (ShardSet::NONE, ShardSet::NONE);
        self.fetches.push_back(Fetch { number, stripe, units, asked, failed, late_at });
        self.ask_enough(number);
    }

    /// Parts that are whole and were not asked for a stripe yet: the data parts first.
    fn spare(&self, fetch: &Fetch) -> ShardSet {
        let whole = self.parts.iter().enumerate().filter(|(_, part)| part.is_ok());
        whole.map(|(part, _)| part).collect::<ShardSet>().without(fetch.asked)
    }

    /// Asks for as many units of a stripe as are enough, if all of them come.
    fn ask_enough(&mut self, number: usize) {
        let enough = self.layout.policy.enough();
        let Some(fetch) = self.fetches.iter().find(|fetch| fetch.number == number) else { return };
        let hoped = fetch.asked.without(fetch.failed).len();
        let more: Vec<usize> =
            self.spare(fetch).iter().take(enough.saturating_sub(hoped)).collect();
        self.ask_of(number, &more);
    }

    fn ask_of(&mut self, number: usize, more: &[usize]) {
        let Some(fetch) = self.fetches.iter_mut().find(|fetch| fetch.number == number) else {
            return;
        };
        fetch.asked = fetch.asked.with(more.iter().copied().collect());
        let stripe = fetch.stripe;
        more.iter().for_each(|part| self.ask((number, *part), stripe));
    }

    fn ask(&mut self, key: (usize, usize), stripe: Stripe) {
        let Some(Ok(client)) = self.parts.get(key.1) else { return };
        let chunk = self.layout.nodes[key.1].chunk;
        self.race.add(key, client.read_held(chunk, stripe.offset, stripe.unit));
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

    fn on_read(&mut self, (number, part): (usize, usize), result: Result<ReadData, ClientError>) {
        let at = self.fetches.iter().position(|fetch| fetch.number == number);
        let Some(stripe) = at.map(|at| self.fetches[at].stripe) else { return };
        match self.checked(part, stripe, result) {
            Ok(unit) => {
                if let Some(fetch) = at.and_then(|at| self.fetches.get_mut(at)) {
                    fetch.units.of[part] = Some(unit);
                }
            }
            Err(error) => {
                if let Some(fetch) = at.and_then(|at| self.fetches.get_mut(at)) {
                    fetch.failed.insert(part);
                }
                self.got.without.insert(part);
                // One bad slice takes nothing else of its part.
                if !error.is_of_one_slice() {
                    self.servers.note(self.layout.nodes[part].server, &error);
                    self.parts[part] = Err(error);
                }
                self.ask_enough(number);
            }
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
        self.got.without = self.got.without.with(late);
        let Some(front) = self.fetches.front() else { return };
        let (number, spare) = (front.number, self.spare(front));
        let more: Vec<usize> = spare.iter().take(missing).collect();
        self.ask_of(number, &more);
    }
}

impl Servers {
    /// Reads a whole file into `sink`: from its data parts, and where some are gone or late, from
    /// what else is enough. Every byte was verified before it is written. `progress` is told how
    /// many bytes are.
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
        let mut done = 0;
        let got = Reader::new(self, layout).each(|reader, stripe, mut units| {
            let bytes = reader.data(stripe, &mut units);
            sink.write_all(&bytes).map_err(|source| SpreadError::Sink { done, source })?;
            done += bytes.len() as u64;
            progress(done);
            Ok(())
        })?;
        sink.flush().map_err(|source| SpreadError::Sink { done, source })?;
        Ok(got)
    }
}
