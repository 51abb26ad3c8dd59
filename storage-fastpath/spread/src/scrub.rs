//! Parts held against each other: by sketches, or by all of their bytes.

use towpath_ec::ShardSet;
use towpath_fastpath::{ChunkId, SLICE_BYTES};

use crate::coder::Coder;
use crate::error::{PartError, SpreadError};
use crate::get::{MOVES_MAX, Reader};
use crate::layout::Layout;
use crate::servers::Servers;
use crate::state::parts;
use crate::survey::{By, MARK_BYTES, Marks, Subject, Survey, WINDOW_BYTES};

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scrubbed {
    /// Stripes of which more was there than is enough, and that were compared.
    pub stripes: u64,
    /// Stripes of which somewhere no more was there than is enough, so that not all of them could
    /// be compared.
    pub uncompared: u64,
    /// Parts of which a piece is missing or damaged, or does not belong to those of all others,
    /// which belong together.
    pub bad: ShardSet,
    /// Those of them of which each slice has its checksum where the others say that it is wrong: a
    /// read of them would not fail.
    pub odd: ShardSet,
    /// Stripes whose parts are each whole and do not belong together. Nothing tells which of them
    /// are wrong, so that no repair mends them.
    pub torn: u64,
    /// Stripes that cannot be read, nor made anew: somewhere too few of their parts are there and
    /// undamaged.
    pub lost: u64,
    /// The first byte of the file in the first of them.
    pub lost_at: Option<u64>,
    /// Bytes of parts, or of sketches of them, that came for it.
    pub bytes_read: u64,
}

impl Scrubbed {
    /// A stripe that begins there cannot be read.
    fn lose(&mut self, at: u64) {
        self.lost += 1;
        self.lost_at.get_or_insert(at);
    }
}

/// What becomes of the slices that lie at one place of all parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// They belong together, but for a part that is known.
    Fit,
    Torn,
    Uncompared,
    /// There is less than is enough to read them.
    Lost,
}

/// Holds slices against each other; adds parts that are the only ones that are wrong to `odd`.
fn judge(
    coder: &mut Coder,
    (marks, enough): (&Marks, usize),
    odd: &mut ShardSet,
) -> Result<Vec<Verdict>, SpreadError> {
    let mut verdicts = Vec::with_capacity(marks.slices());
    for (run, present) in marks.runs(ShardSet::from_bits(u32::MAX)) {
        let fits = coder.fits(run.len() * MARK_BYTES, &marks.units(&run, present))?;
        for slice in run {
            let units = || marks.units(&(slice..slice + 1), present);
            verdicts.push(match fits {
                _ if present.len() < enough => Verdict::Lost,
                None => Verdict::Uncompared,
                Some(true) => Verdict::Fit,
                Some(false) if coder.fits(MARK_BYTES, &units())? == Some(true) => Verdict::Fit,
                Some(false) => match coder.odd_one(MARK_BYTES, &units())? {
                    Some(part) => {
                        odd.insert(part);
                        Verdict::Fit
                    }
                    None => Verdict::Torn,
                },
            });
        }
    }
    Ok(verdicts)
}

/// Whether all slices belong together, each of more parts than are enough, and these parts have all
/// of theirs.
pub(crate) fn belong_together(
    coder: &mut Coder,
    marks: &Marks,
    parts: ShardSet,
) -> Result<bool, SpreadError> {
    for (run, present) in marks.runs(ShardSet::from_bits(u32::MAX)) {
        let fits = coder.fits(run.len() * MARK_BYTES, &marks.units(&run, present))?;
        if fits != Some(true) || !parts.without(present).is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Servers {
    /// Has the servers read every byte of every part that there is, and compares what belongs
    /// together by sketches: 4 bytes of each slice come here. A stripe that is torn is missed with
    /// a probability of 2^-32, by a seed that is drawn now. `progress` is told how many bytes of
    /// the file are done.
    ///
    /// # Errors
    /// [`SpreadError::Layout`], [`SpreadError::Change`], [`SpreadError::Code`].
    pub fn scrub(
        &self,
        layout: &Layout,
        mut progress: impl FnMut(u64),
    ) -> Result<Scrubbed, SpreadError> {
        let mut now = self.current(layout)?;
        let subjects = now.subjects(parts(self, &now));
        let seed = ChunkId::random().0 as u64;
        let mut survey = Survey::new(self, layout, By::Sketch(seed), subjects);
        let (mut coder, mut scrubbed) = (Coder::new(layout.policy), Scrubbed::default());
        let data = layout.policy.data() as u64;
        let unit_slices = layout.unit_bytes as usize / SLICE_BYTES;
        for (offset, bytes) in layout.stripes().windows(WINDOW_BYTES) {
            let marks = self.look_as_of_now(&mut survey, (layout, &mut now), (offset, bytes))?;
            for part in 0..layout.nodes.len() {
                if (0..marks.slices()).any(|slice| marks.get(part, slice).is_none()) {
                    scrubbed.bad.insert(part);
                }
            }
            let enough = layout.policy.enough();
            let verdicts = judge(&mut coder, (&marks, enough), &mut scrubbed.odd)?;
            for (number, stripe) in verdicts.chunks(unit_slices).enumerate() {
                if stripe.contains(&Verdict::Lost) {
                    let at = offset + number as u64 * u64::from(layout.unit_bytes);
                    scrubbed.lose(layout.stripes().file_offset(at));
                } else if stripe.contains(&Verdict::Uncompared) {
                    scrubbed.uncompared += 1;
                } else {
                    scrubbed.stripes += 1;
                }
                scrubbed.torn += u64::from(stripe.contains(&Verdict::Torn));
            }
            progress(((offset + bytes) * data).min(layout.bytes));
        }
        // A file without bytes has parts all the same.
        scrubbed.bad = scrubbed.bad.with(scrubbed.odd).with(survey.lost());
        scrubbed.bytes_read = survey.bytes;
        Ok(scrubbed)
    }

    /// The marks of a window of a file that others may change meanwhile: where a part has another
    /// version than before, and the file as well, all parts are looked at anew.
    fn look_as_of_now(
        &self,
        survey: &mut Survey<'_>,
        (layout, now): (&Layout, &mut Layout),
        (offset, bytes): (u64, u64),
    ) -> Result<Marks, SpreadError> {
        let mut moves = 0;
        loop {
            let marks = survey.look(offset, bytes);
            let moved = |subject: &Result<Subject, PartError>| {
                matches!(subject, Err(PartError::OtherVersion { .. }))
            };
            if moves == MOVES_MAX || !survey.subjects.iter().any(moved) {
                return Ok(marks);
            }
            let newer = self.current(layout)?;
            if newer == *now {
                // Somebody has written to the part without making that known.
                return Ok(marks);
            }
            survey.subjects = newer.subjects(parts(self, &newer));
            *now = newer;
            moves += 1;
        }
    }

    /// The same by all bytes, which come here.
    ///
    /// # Errors
    /// [`SpreadError::Layout`], [`SpreadError::Change`], [`SpreadError::Code`].
    pub fn scrub_by_reading(
        &self,
        layout: &Layout,
        mut progress: impl FnMut(u64),
    ) -> Result<Scrubbed, SpreadError> {
        let layout = &self.current(layout)?;
        let all: ShardSet = (0..layout.nodes.len()).collect();
        let parts = parts(self, layout);
        let lost = parts.iter().enumerate().filter(|(_, part)| part.is_err());
        // A file without bytes has parts all the same.
        let bad = lost.map(|(part, _)| part).collect();
        let (mut scrubbed, mut done) = (Scrubbed { bad, ..Scrubbed::default() }, 0);
        let mut reader = Reader::with(self, layout, parts);
        for stripe in layout.stripes().iter() {
            let units = reader.all(stripe);
            let present = units.present();
            scrubbed.bytes_read += (present.len() * stripe.unit) as u64;
            scrubbed.bad = scrubbed.bad.with(all.without(present));
            match reader.coder.fits(stripe.unit, &units)? {
                _ if present.len() < layout.policy.enough() => {
                    scrubbed.lose(layout.stripes().file_offset(stripe.offset));
                }
                Some(fits) => {
                    scrubbed.stripes += 1;
                    match fits {
                        true => {}
                        false => match reader.coder.odd_one(stripe.unit, &units)? {
                            Some(part) => drop(scrubbed.odd.insert(part)),
                            None => scrubbed.torn += 1,
                        },
                    }
                }
                None => scrubbed.uncompared += 1,
            }
            done += stripe.bytes as u64;
            progress(done);
        }
        scrubbed.bad = scrubbed.bad.with(scrubbed.odd);
        Ok(scrubbed)
    }
}
