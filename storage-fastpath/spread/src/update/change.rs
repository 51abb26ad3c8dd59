//! One piece of a file changed: made known first, and then made (docs/updates.md section 2).

use towpath_base::crc::crc32c;
use towpath_ec::{Code, ShardSet, add};
use towpath_fastpath::Fate;

use super::heads::{File, State, Stop, TRIES, Who, stop};
use super::net::{Answer, Op, all};
use super::pieces::Piece;
use super::record::{NUMBER_MAX, Record, Stage};
use crate::error::{PartError, SpreadError};
use crate::policy::Policy;

/// How a change ended that was not made, as far as is known.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nothing was changed.
    Not(Stop),
    /// It may be made, wholly, by whoever looks next.
    Unsure(Stop),
    /// The code refuses the units.
    Code(SpreadError),
}

impl From<Stop> for Failed {
    fn from(stop: Stop) -> Self {
        Self::Not(stop)
    }
}

impl File<'_> {
    /// Changes a piece; gives what the file is then, and how often others were first.
    pub(crate) async fn change(&self, piece: &Piece, bytes: &[u8]) -> Result<(State, u32), Failed> {
        let mut tries = 0;
        loop {
            match self.change_once(piece, bytes).await {
                Ok(mut state) => {
                    self.tell(&mut state).await;
                    return Ok((state, tries));
                }
                Err(Failed::Not(Stop::Met(..))) if tries < TRIES => {
                    self.net.pause(tries).await;
                    tries += 1;
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    async fn change_once(&self, piece: &Piece, bytes: &[u8]) -> Result<State, Failed> {
        let state = self.settle(Who::Writer, None).await?;
        if state.is_closed || state.number >= NUMBER_MAX {
            return Err(Stop::Closed.into());
        }
        let (intent, body) = self.intent(&state, piece, bytes).await?;
        #[cfg(test)]
        if let Some(bug) = self.bug {
            return self.change_wrongly(bug, state, &intent, &body).await;
        }
        let mut look = state.look;
        // All changes of a file are in the order in which the first of those who remember them has
        // them: it takes this one only if nobody was there since.
        let Some((part, Ok(first))) = look.first() else {
            return Err(Stop::Met(self.holders().start, PartError::Gone).into());
        };
        let part = *part;
        let told = self.put((part, first), &intent, &body).await;
        let told = told.map_err(|error| match error {
            // It is there, or nobody knows whether it is: then somebody may make it.
            PartError::Client(error) if error.kind.fate() != Fate::DidNotHappen => {
                Failed::Unsure(Stop::Part(part, error.into()))
            }
            error => Failed::Not(stop(part, error)),
        })?;
        look[0] = (part, Ok(told));
        let state = self.settle(Who::Writer, Some(look)).await.map_err(Failed::Unsure)?;
        let is_made = state.number > intent.number || state.id == intent.id;
        // What a repair has found, who was missing somebody, it may have left out.
        if state.is_closed || !is_made {
            return Err(Failed::Unsure(Stop::Closed));
        }
        Ok(state)
    }

    /// What is to be written, by what there is.
    pub(super) async fn intent(
        &self,
        state: &State,
        piece: &Piece,
        new: &[u8],
    ) -> Result<(Record, Vec<u8>), Failed> {
        let (policy, layout) = (self.layout.policy, self.layout);
        let changed = piece.patches.iter().map(|patch| patch.part);
        let parts: ShardSet = changed.chain(policy.data()..policy.parts()).collect();
        let asked = parts.iter().map(|part| {
            let (chunk, offset, bytes) = (layout.nodes[part].chunk, piece.offset, piece.bytes);
            let read = Op::Read { chunk, offset, bytes };
            async move {
                let expected = state.versions[part].ok_or(PartError::NotWhole);
                let expected = expected.map_err(|error| stop(part, error))?;
                let read = self.net.ask(part, read).await;
                let Answer { version, bytes, .. } = read.map_err(|error| stop(part, error))?;
                match version == expected {
                    true => Ok(bytes),
                    false => {
                        let found = version;
                        Err(Stop::Met(part, PartError::OtherVersion { expected, found }))
                    }
                }
            }
        });
        let old: Vec<Vec<u8>> = all(asked).await.into_iter().collect::<Result<_, Stop>>()?;
        let body = patched(policy, piece, new, &old).map_err(Failed::Code)?;
        let (offset, bytes, body_crc) = (piece.offset, piece.bytes as u32, crc32c(&body));
        let record = Record {
            generation: layout.generation,
            number: state.number + 1,
            id: Record::id_of(self.net.draw()),
            stage: Stage::Intent { parts, offset, bytes, body_crc },
            versions: state.versions.clone(),
        };
        Ok((record, body))
    }
}

/// The new slices of the parts that change, one after the other: data parts as far as they change,
/// then all others.
fn patched(
    policy: Policy,
    piece: &Piece,
    new: &[u8],
    old: &[Vec<u8>],
) -> Result<Vec<u8>, SpreadError> {
    let failed = |error: &dyn std::fmt::Display| SpreadError::Code(error.to_string());
    let (data, spare) = old.split_at(piece.patches.len());
    let mut after: Vec<Vec<u8>> = data.to_vec();
    for (unit, patch) in after.iter_mut().zip(&piece.patches) {
        let from = &new[patch.from.clone()];
        unit[patch.at..patch.at + from.len()].copy_from_slice(from);
    }
    let mut others = spare.to_vec();
    match policy.code() {
        None => others.iter_mut().zip(after.iter().cycle()).for_each(|(copy, data)| {
            copy.clone_from(data);
        }),
        Some(code) => {
            for (at, patch) in piece.patches.iter().enumerate() {
                let pair = (&data[at][..], &after[at][..]);
                add_change(&code, patch.part, pair, &mut others).map_err(|error| failed(&error))?;
            }
        }
    }
    after.append(&mut others);
    Ok(after.concat())
}

/// Changes parity by what changes of one data part.
fn add_change(
    code: &Code,
    part: usize,
    pair: (&[u8], &[u8]),
    parity: &mut [Vec<u8>],
) -> Result<(), towpath_ec::BufferError> {
    let mut changes = vec![vec![0; pair.0.len()]; parity.len()];
    let mut into: Vec<&mut [u8]> = changes.iter_mut().map(Vec::as_mut_slice).collect();
    code.update(part, pair, &mut into)?;
    parity.iter_mut().zip(&changes).try_for_each(|(unit, change)| add(unit, change))
}
