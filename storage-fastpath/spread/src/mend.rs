//! Parts brought up to date where they are: only the slices that differ move.

use towpath_ec::ShardSet;
use towpath_fastpath::{ChunkId, Clear, Client, ClientError, Pending, SLICE_BYTES};

use crate::coder::Coder;
use crate::error::{PartError, SpreadError};
use crate::get::Reader;
use crate::layout::Layout;
use crate::policy::Policy;
use crate::servers::Servers;
use crate::state::Part;
use crate::stripes::Stripe;
use crate::survey::{By, MARK_BYTES, Marks, Subject, Survey, WINDOW_BYTES};

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mended {
    /// Bytes of marks.
    pub(crate) compared: u64,
    /// Bytes of slices that were read.
    pub(crate) read: u64,
    /// Bytes of slices that were written.
    pub(crate) written: u64,
}

/// A part that is written where it differs, one change after the other: each is meant for the
/// version that the one before has made, so that nobody else's is overwritten.
struct Patient {
    part: usize,
    client: Client,
    chunk: ChunkId,
    version: u64,
    under_way: Option<Pending<u64>>,
}

impl Patient {
    fn write(&mut self, offset: u64, bytes: Vec<u8>) -> Result<(), ClientError> {
        self.settle()?;
        self.under_way = Some(self.client.write_if(self.chunk, offset, bytes, self.version));
        Ok(())
    }

    fn settle(&mut self) -> Result<(), ClientError> {
        if let Some(pending) = self.under_way.take() {
            self.version = pending.wait()?;
        }
        Ok(())
    }

    /// Cuts off what is too long.
    fn cut(&mut self, found: u64, byte_len: u64) -> Result<(), ClientError> {
        if found > byte_len {
            let cut = Clear::Truncate { byte_len };
            self.version = self.client.clear_if(self.chunk, cut, self.version).wait()?;
        }
        Ok(())
    }
}

/// By what parts are compared, and with which. Without damage to look for, checksums are enough
/// where they follow from those of the others.
fn compared_by(
    policy: Policy,
    (sources, patients): (ShardSet, ShardSet),
    is_damaged: bool,
) -> (By, ShardSet) {
    // The first parity is the sum of the data; all copies are alike.
    let near: ShardSet = match policy {
        Policy::Flat(_) | Policy::Ring(_) | Policy::Tree(_) | Policy::Acked(_) => {
            (0..policy.parts()).collect()
        }
        Policy::Coded(shape) | Policy::Triec(shape) => (0..=shape.k()).collect(),
    };
    let by = ShardSet::from_bits(sources.bits() & near.bits());
    if !is_damaged && patients.without(near).is_empty() && by.len() >= policy.enough() {
        return (By::Digest, by);
    }
    (By::Sketch(ChunkId::random().0 as u64), sources)
}

/// Which of the patients differ at each slice from what the others say.
fn differing(
    coder: &mut Coder,
    marks: &Marks,
    (sources, patients): (ShardSet, ShardSet),
    enough: usize,
) -> Result<Vec<ShardSet>, SpreadError> {
    // Where too few say anything, the bytes are read: that tells why.
    let mut differing = vec![patients; marks.slices()];
    for (run, present) in marks.runs(sources) {
        if present.len() < enough {
            continue;
        }
        let mut units = marks.units(&run, present);
        coder.make(run.len() * MARK_BYTES, patients, &mut units)?;
        for part in patients.iter() {
            let made = units.of[part].as_deref().unwrap_or(&[]);
            for (slice, made) in run.clone().zip(made.chunks_exact(MARK_BYTES)) {
                if marks.get(part, slice).is_some_and(|mark| mark == made) {
                    differing[slice].remove(part);
                }
            }
        }
    }
    Ok(differing)
}

/// Parts as they are compared: those that are whole of some.
fn compared_ones(
    layout: &Layout,
    found: &[Part],
    compared: ShardSet,
) -> Vec<Result<Subject, PartError>> {
    let own = found.iter().enumerate().map(|(part, found)| match found {
        Ok(client) if compared.contains(part) => Ok(client.clone()),
        _ => Err(PartError::NotWhole),
    });
    layout.subjects(own.collect())
}

/// Those of the patients of which more than half of the slices differ from what the others say, by
/// the first of them, and how many bytes of marks came.
pub(crate) fn mostly_differing(
    servers: &Servers,
    layout: &Layout,
    found: &[Part],
    (sources, patients): (ShardSet, &[(usize, Subject)]),
) -> Result<(ShardSet, u64), SpreadError> {
    let set: ShardSet = patients.iter().map(|(part, _)| *part).collect();
    let Some((offset, bytes)) = layout.stripes().windows(WINDOW_BYTES).next() else {
        return Ok((ShardSet::NONE, 0));
    };
    let (by, compared) = compared_by(layout.policy, (sources, set), false);
    let mut subjects = compared_ones(layout, found, compared);
    patients.iter().for_each(|(part, subject)| subjects[*part] = Ok(subject.clone()));
    let mut survey = Survey::new(servers, layout, by, subjects);
    let marks = survey.look(offset, bytes);
    let mut coder = Coder::new(layout.policy);
    let differing = differing(&mut coder, &marks, (compared, set), layout.policy.enough())?;
    let count = |part: usize| differing.iter().filter(|parts| parts.contains(part)).count();
    let mostly = set.iter().filter(|part| 2 * count(*part) > differing.len()).collect();
    Ok((mostly, survey.bytes))
}

/// What is to be written: pieces of stripes, of a unit at most, each with the parts that differ.
fn pieces(start: u64, differing: &[ShardSet], unit: usize) -> Vec<(Stripe, ShardSet)> {
    let mut pieces: Vec<(Stripe, ShardSet)> = Vec::new();
    for (index, parts) in differing.iter().enumerate().filter(|(_, parts)| !parts.is_empty()) {
        let offset = start + (index * SLICE_BYTES) as u64;
        match pieces.last_mut() {
            Some((piece, of))
                if of == parts
                    && piece.offset + piece.unit as u64 == offset
                    && piece.unit + SLICE_BYTES <= unit =>
            {
                piece.unit += SLICE_BYTES;
            }
            // Of no stripe: it has no bytes of the file to itself.
            _ => pieces.push((Stripe { offset, unit: SLICE_BYTES, bytes: 0 }, *parts)),
        }
    }
    pieces
}

/// Parts of a file that are brought up to date by others of it.
pub(crate) struct Mender<'a> {
    servers: &'a Servers,
    layout: &'a Layout,
    sources: ShardSet,
    clients: Vec<Option<Client>>,
    survey: Survey<'a>,
    /// Those that are held against the patients.
    compared: ShardSet,
    coder: Coder,
    patients: Vec<Patient>,
    moved: Mended,
}

impl<'a> Mender<'a> {
    /// Of parts that are whole, and of those that are not, as they are now. With damage to look
    /// for every slice of them is read by its server.
    pub(crate) fn new(
        servers: &'a Servers,
        layout: &'a Layout,
        found: &[Part],
        (sources, patients): (ShardSet, Vec<(usize, Subject)>),
        is_damaged: bool,
    ) -> Result<Self, SpreadError> {
        let set = patients.iter().map(|(part, _)| *part).collect();
        let (by, compared) = compared_by(layout.policy, (sources, set), is_damaged);
        let of = |part: usize| found[part].as_ref().ok().filter(|_| sources.contains(part));
        let clients: Vec<Option<Client>> = (0..found.len()).map(|part| of(part).cloned()).collect();
        let mut subjects = compared_ones(layout, found, compared);
        let part_bytes = layout.stripes().part_bytes();
        let mut writers = Vec::new();
        for (part, mut subject) in patients {
            let (client, chunk, version) = (subject.client.clone(), subject.chunk, subject.version);
            let mut patient = Patient { part, client, chunk, version, under_way: None };
            let cut = patient.cut(subject.byte_len, part_bytes);
            cut.map_err(|error| not_mended(layout, part, error.into()))?;
            subject.version = patient.version;
            writers.push(patient);
            subjects[part] = Ok(subject);
        }
        let survey = Survey::new(servers, layout, by, subjects);
        let (coder, moved) = (Coder::new(layout.policy), Mended::default());
        let patients = writers;
        Ok(Self { servers, layout, sources, clients, survey, compared, coder, patients, moved })
    }

    /// Brings them up to date; gives the version of each, and what was moved for it. `progress` is
    /// told how many bytes of the file are done.
    pub(crate) fn mend(
        mut self,
        mut progress: impl FnMut(u64),
    ) -> Result<(Vec<(usize, u64)>, Mended), SpreadError> {
        let layout = self.layout;
        let data = layout.policy.data() as u64;
        for (offset, bytes) in layout.stripes().windows(WINDOW_BYTES) {
            let marks = self.survey.look(offset, bytes);
            let set: ShardSet = self.patients.iter().map(|patient| patient.part).collect();
            for part in set.iter() {
                if let Err(error) = &self.survey.subjects[part] {
                    return Err(not_mended(layout, part, error.again()));
                }
            }
            let of = (self.compared, set);
            let differing = differing(&mut self.coder, &marks, of, layout.policy.enough())?;
            let pieces = pieces(offset, &differing, layout.unit_bytes as usize);
            if !pieces.is_empty() {
                self.write(&pieces)?;
            }
            progress(((offset + bytes) * data).min(layout.bytes));
        }
        self.moved.compared = self.survey.bytes;
        let versions = self.patients.iter().map(|patient| (patient.part, patient.version));
        Ok((versions.collect(), self.moved))
    }

    /// Writes what differs, made of what is read of the others.
    fn write(&mut self, pieces: &[(Stripe, ShardSet)]) -> Result<(), SpreadError> {
        let Self { servers, layout, sources, clients, patients, moved, survey, .. } = self;
        let source = |(part, client): (usize, &Option<Client>)| match client {
            Some(client) if sources.contains(part) => Ok(client.clone()),
            _ => Err(PartError::NotWhole),
        };
        let parts: Vec<Part> = clients.iter().enumerate().map(source).collect();
        let mut wanted = pieces.iter().map(|(_, parts)| *parts);
        let stripes = pieces.iter().map(|(stripe, _)| *stripe);
        Reader::with(servers, layout, parts).each_of(stripes, |reader, stripe, mut units| {
            let wanted = wanted.next().unwrap_or_default();
            moved.read += (units.present().len() * stripe.unit) as u64;
            reader.make(stripe, wanted, &mut units)?;
            for patient in patients.iter_mut().filter(|patient| wanted.contains(patient.part)) {
                let bytes = units.of[patient.part].take().unwrap_or_default();
                moved.written += bytes.len() as u64;
                let written = patient.write(stripe.offset, bytes);
                written.map_err(|error| not_mended(layout, patient.part, error.into()))?;
            }
            Ok(())
        })?;
        for patient in patients {
            let settled = patient.settle();
            settled.map_err(|error| not_mended(layout, patient.part, error.into()))?;
            if let Ok(subject) = &mut survey.subjects[patient.part] {
                subject.version = patient.version;
            }
        }
        Ok(())
    }
}

/// Why a part was not brought up to date.
fn not_mended(layout: &Layout, part: usize, error: PartError) -> SpreadError {
    SpreadError::NotMade { server: layout.nodes[part].server, source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bits: u32) -> ShardSet {
        ShardSet::from_bits(bits)
    }

    #[test]
    fn checksums_are_compared_where_they_follow_from_others_and_sketches_elsewhere() {
        let by = |policy: &str, sources, patients, is_damaged| {
            let policy = policy.parse().expect("a policy");
            match compared_by(policy, (set(sources), set(patients)), is_damaged) {
                (By::Digest, of) => Some(of.bits()),
                (By::Sketch(_), of) => {
                    assert_eq!(of, set(sources));
                    None
                }
            }
        };
        assert_eq!(by("flat:3", 0b110, 0b001, false), Some(0b110));
        assert_eq!(by("flat:3", 0b110, 0b001, true), None);
        assert_eq!(by("rs:3+2", 0b11101, 0b00010, false), Some(0b01101));
        assert_eq!(by("rs:3+2", 0b10111, 0b01000, false), Some(0b00111));
        assert_eq!(by("rs:3+2", 0b01111, 0b10000, false), None, "the second parity");
        assert_eq!(by("rs:3+2", 0b11100, 0b00011, false), None, "two of the first sum");
    }

    #[test]
    fn what_differs_is_cut_into_pieces_of_a_unit_of_the_same_parts() {
        let differing = [1, 1, 0, 1, 3, 2, 2, 2, 0].map(set);
        let pieces = pieces(8_192, &differing, 8_192);
        let places: Vec<(u64, usize, u32)> =
            pieces.iter().map(|(piece, of)| (piece.offset, piece.unit, of.bits())).collect();
        let expected = [
            (8_192, 8_192, 1),
            (20_480, 4_096, 1),
            (24_576, 4_096, 3),
            (28_672, 8_192, 2),
            (36_864, 4_096, 2),
        ];
        assert_eq!(places, expected);
    }
}
