//! Changes made as they must not be.

use towpath_fastpath::ChunkId;

use super::super::change::Failed;
use super::super::heads::{File, State, Stop, stop};
use super::super::net::{Op, all};
use super::super::record::{Record, Stage};
use super::Bug;

impl File<'_> {
    /// Makes a change without what is switched off.
    pub(crate) async fn change_wrongly(
        &self,
        bug: Bug,
        mut state: State,
        intent: &Record,
        body: &[u8],
    ) -> Result<State, Failed> {
        let Stage::Intent { parts, offset, bytes, .. } = intent.stage else {
            return Err(Stop::Closed.into());
        };
        for (part, head) in &mut state.look {
            let is_told = match bug {
                Bug::NoIntent => false,
                Bug::OneHolder => *part == self.holders().start,
                Bug::EarlyAnswer => true,
            };
            if is_told {
                let told = match head {
                    Ok(head) => self.put((*part, head), intent, body).await,
                    Err(error) => Err(error.again()),
                };
                *head = Ok(told.map_err(|error| Failed::Unsure(stop(*part, error)))?);
            }
        }
        if bug == Bug::NoIntent {
            self.keep_for_the_check(intent, body).await;
        }
        let asked = parts.iter().enumerate().map(|(index, part)| {
            let unit = body[index * bytes as usize..][..bytes as usize].to_vec();
            let (chunk, version) = (self.layout.nodes[part].chunk, state.versions[part]);
            let (version, stamp) = (version.unwrap_or(0), intent.id);
            self.net.ask(part, Op::Write { chunk, offset, bytes: unit, version, stamp })
        });
        if bug == Bug::EarlyAnswer {
            // What was sent comes there by itself.
            drop(asked.collect::<Vec<_>>());
            state.number = intent.number;
            return Ok(state);
        }
        for (part, made) in parts.iter().zip(all(asked).await) {
            let made = made.map_err(|error| Failed::Unsure(stop(part, error)))?;
            state.versions[part] = Some(made.version);
        }
        let versions = state.versions.clone();
        state.untold = Some(Record { stage: Stage::Made, versions, ..intent.clone() });
        state.number = intent.number;
        Ok(state)
    }

    /// Has a server keep a record where nobody looks, so that what was meant is known to who
    /// checks it.
    async fn keep_for_the_check(&self, intent: &Record, body: &[u8]) {
        let (part, chunk) = (self.holders().start, ChunkId(self.net.draw().into()));
        let _ = self.net.ask(part, Op::Create { chunk }).await;
        if let Ok(there) = self.net.ask(part, Op::Stat { chunk }).await {
            let (version, bytes) = (there.version, [&intent.emit(), body].concat());
            let write = Op::Write { chunk, offset: 0, bytes, version, stamp: intent.id };
            let _ = self.net.ask(part, write).await;
        }
    }
}
