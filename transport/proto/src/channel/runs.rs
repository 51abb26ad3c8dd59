//! Which pieces of a message are there, whatever their order: runs that follow each other.

use alloc::vec::Vec;

/// A piece that does not fit those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit;

/// Pieces that follow each other without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Indices of the first piece, and of the one behind the last.
    index: u32,
    index_end: u32,
    /// Where they begin and end in the message.
    start: u32,
    end: u32,
}

/// The pieces of a message that are there: received, or acknowledged.
///
/// A piece is new and within [`CHUNK_WINDOW`](crate::limits::CHUNK_WINDOW) of the oldest that is
/// missing, so there are no more runs than half of that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether a piece is there.
    #[inline]
    pub(crate) fn has(&self, index: u32) -> bool {
        let Some(last) = self.0.last() else { return false };
        if index >= last.index {
            return index < last.index_end;
        }
        self.has_among(index)
    }

    #[inline(never)]
    fn has_among(&self, index: u32) -> bool {
        let place = self.0.partition_point(|run| run.index_end <= index);
        self.0.get(place).is_some_and(|run| run.index <= index)
    }

    /// The lowest index that is missing.
    #[inline]
    pub(crate) fn first_missing(&self) -> u32 {
        self.0.first().filter(|run| run.index == 0).map_or(0, |run| run.index_end)
    }

    /// Takes in a new piece, which must fit those before and behind it.
    #[inline]
    pub(crate) fn insert(&mut self, index: u32, start: u32, length: u32) -> Result<(), Misfit> {
        let end = start.checked_add(length).ok_or(Misfit)?;
        match self.0.last_mut() {
            Some(last) if (last.index_end, last.end) == (index, start) => {
                (last.index_end, last.end) = (index + 1, end);
                Ok(())
            }
            None if (index, start) == (0, 0) => {
                self.0.push(Run { index, index_end: 1, start, end });
                Ok(())
            }
            _ => self.insert_among(index, (start, end)),
        }
    }

    #[inline(never)]
    fn insert_among(&mut self, index: u32, (start, end): (u32, u32)) -> Result<(), Misfit> {
        let place = self.0.partition_point(|run| run.index_end <= index);
        let before = place.checked_sub(1).and_then(|before| self.0.get(before)).copied();
        // The message begins where a piece before the first would end.
        let (before_index, before_end) = before.map_or((0, 0), |run| (run.index_end, run.end));
        let behind = self.0.get(place).copied();
        let fits_behind = |run: Run| fits((index + 1, end), (run.index, run.start));
        let fits_before = fits((before_index, before_end), (index, start));
        if !fits_before || !behind.is_none_or(fits_behind) {
            return Err(Misfit);
        }
        let joins_before = before.is_some() && before_index == index;
        let joins_behind = behind.is_some_and(|run| run.index == index + 1);
        match (joins_before, joins_behind) {
            (true, true) => {
                let behind = self.0.remove(place);
                let run = &mut self.0[place - 1];
                (run.index_end, run.end) = (behind.index_end, behind.end);
            }
            (true, false) => {
                let run = &mut self.0[place - 1];
                (run.index_end, run.end) = (index + 1, end);
            }
            (false, true) => {
                let run = &mut self.0[place];
                (run.index, run.start) = (index, start);
            }
            (false, false) => {
                self.0.insert(place, Run { index, index_end: index + 1, start, end });
            }
        }
        Ok(())
    }

    /// Whether they are all pieces of a message of so many bytes.
    #[inline]
    pub(crate) fn are_whole(&self, message_len: u32) -> bool {
        matches!(self.0[..], [Run { index: 0, start: 0, end, .. }] if end == message_len)
    }
}

/// Whether pieces from `from` on (index and offset) may follow those that end at `end`: where
/// there is a gap, each missing piece has at least a byte.
fn fits(end: (u32, u32), from: (u32, u32)) -> bool {
    let missing = from.0.checked_sub(end.0);
    let bytes = from.1.checked_sub(end.1);
    match (missing, bytes) {
        (Some(0), Some(bytes)) => bytes == 0,
        (Some(missing), Some(bytes)) => bytes >= missing,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    #[test]
    fn pieces_in_any_order_make_one_run_and_a_changed_one_is_a_misfit() {
        for seed in 0..300 {
            let mut prng = Prng::new(seed);
            let mut offset = 0;
            let mut pieces: Vec<(u32, u32, u32)> = (0..prng.between(2, 40) as u32)
                .map(|index| {
                    let piece = (index, offset, prng.between(1, 100) as u32);
                    offset += piece.2;
                    piece
                })
                .collect();
            for at in (1..pieces.len()).rev() {
                pieces.swap(at, prng.below(at as u64 + 1) as usize);
            }
            let mut runs = Runs::default();
            for (count, &(index, start, length)) in pieces.iter().enumerate() {
                assert!(!runs.are_whole(offset), "seed {seed}: {count} pieces");
                runs.insert(index, start, length).unwrap();
            }
            assert!(runs.are_whole(offset) && !runs.are_whole(offset + 1), "seed {seed}");
            // One of them lies, by as much as some other one has.
            let liar = prng.below(pieces.len() as u64) as usize;
            pieces[liar].1 += 1;
            runs.clear();
            let taken = pieces
                .iter()
                .try_for_each(|&(index, start, length)| runs.insert(index, start, length));
            assert!(taken.is_err() || !runs.are_whole(offset), "seed {seed}");
        }
    }
}
