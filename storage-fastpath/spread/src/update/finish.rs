//! A change that somebody has made known brought to its end (docs/updates.md section 2).

use towpath_ec::ShardSet;
use towpath_fastpath::ErrorKind;

use super::heads::{File, Head, Look, State, Stop, Who, is_of_version, stop};
use super::net::{Answer, Op, all};
use super::record::{HEAD_BYTES, Record, Stage};
use crate::error::PartError;

/// The versions that parts have before a change, and after it; none where a part is not so.
struct Sides {
    before: Vec<Option<u64>>,
    after: Vec<Option<u64>>,
    /// All that it concerns have made it.
    is_whole: bool,
    /// Some let whoever asks read alone.
    may_not: bool,
}

/// Whether a server is there and does not do what it is asked.
fn is_refusal(error: &PartError) -> bool {
    matches!(error, PartError::Client(error) if matches!(error.kind, ErrorKind::Refused(_)))
}

impl File<'_> {
    /// Makes a change that is made known.
    pub(super) async fn finish(&self, who: Who, look: Look, intent: Record) -> Result<State, Stop> {
        let Stage::Intent { parts, .. } = intent.stage else { return Err(Stop::Closed) };
        let (look, body, is_known) = self.make_known(who, look, &intent).await?;
        let Record { number, id, .. } = intent;
        let (untold, is_closed) = (None, false);
        if !is_known && !self.has_begun(parts, &intent, &body).await? {
            // Nobody has changed anything yet, and so it is as before.
            let (number, versions) = (number - 1, intent.versions);
            return Ok(State { number, id: 0, is_closed, versions, look, untold });
        }
        let sides = self.sides(who, parts, &intent, &body).await?;
        let whole = |versions: &[Option<u64>]| versions.iter().flatten().count();
        if sides.may_not && whole(&sides.after) < self.layout.policy.enough() {
            // Whoever may not write reads what there is enough of.
            let (number, versions) = (number - 1, sides.before);
            return Ok(State { number, id: 0, is_closed, versions, look, untold });
        }
        let (versions, is_whole) = (sides.after, sides.is_whole);
        let made = Record { stage: Stage::Made, versions: versions.clone(), ..intent };
        Ok(State { number, id, is_closed, versions, look, untold: is_whole.then_some(made) })
    }

    /// Has all parts that a change concerns make it; gives what they have then.
    async fn sides(
        &self,
        who: Who,
        parts: ShardSet,
        intent: &Record,
        body: &[u8],
    ) -> Result<Sides, Stop> {
        let mut before = intent.versions.clone();
        parts.iter().for_each(|part| before[part] = None);
        let (after, is_whole, may_not) = (before.clone(), true, false);
        let mut sides = Sides { before, after, is_whole, may_not };
        let (mut refused, mut moved, mut gone) = (ShardSet::NONE, None, None);
        for (part, made) in self.make(parts, parts, intent, body).await {
            match made.map_err(|error| stop(part, error)) {
                Ok(version) => sides.after[part] = Some(version),
                Err(stop) if who == Who::Writer => return Err(stop),
                // It is read around, and repaired.
                Err(stop) if is_of_version(&stop) => moved = moved.or(Some(stop)),
                // To look again is of use where the others are not enough.
                Err(Stop::Met(part, error)) if who == Who::Reader && error.is_gone() => {
                    gone = Some(Stop::Met(part, error));
                }
                Err(Stop::Part(_, error)) => {
                    if who == Who::Reader && is_refusal(&error) {
                        refused.insert(part);
                    }
                }
                Err(stop) => return Err(stop),
            }
            sides.is_whole &= sides.after[part].is_some();
        }
        let whole = sides.after.iter().flatten().count();
        if let Some(stop) = gone.filter(|_| whole < self.layout.policy.enough()) {
            return Err(stop);
        }
        sides.may_not = !refused.is_empty();
        for (part, seen) in self.seen(refused, parts, intent, body).await {
            match seen {
                Some((version, true)) => {
                    sides.after[part] = Some(version);
                    moved = moved.or(Some(Stop::Met(part, PartError::NotWhole)));
                }
                Some((version, false)) => sides.before[part] = Some(version),
                None => {}
            }
        }
        match moved {
            Some(stop) if !self.is_newest(intent).await => Err(stop),
            _ => Ok(sides),
        }
    }

    /// The version of each part that refuses to be written to, and whether it has made a change; of
    /// those that are as before, or have what the change writes.
    async fn seen(
        &self,
        some: ShardSet,
        parts: ShardSet,
        intent: &Record,
        body: &[u8],
    ) -> Vec<(usize, Option<(u64, bool)>)> {
        let Stage::Intent { offset, bytes, .. } = intent.stage else { return Vec::new() };
        let bytes = bytes as usize;
        let units = parts.iter().zip(body.chunks_exact(bytes));
        let asked = units.filter(|(part, _)| some.contains(*part)).map(|(part, unit)| async move {
            let chunk = self.layout.nodes[part].chunk;
            let read = self.net.ask(part, Op::Read { chunk, offset, bytes }).await.ok();
            let seen = read.and_then(|answer| {
                let is_after = Some(answer.version) != intent.versions[part];
                (!is_after || answer.bytes == unit).then_some((answer.version, is_after))
            });
            (part, seen)
        });
        all(asked).await
    }

    /// Whether nobody has remembered anything newer than an intent meanwhile. Each later change is
    /// remembered by all before a part is changed by it: so a part that has another version then
    /// than the intent is meant for, and has not made it, was changed by none.
    async fn is_newest(&self, intent: &Record) -> bool {
        let look = self.look().await;
        let records = look.iter().filter_map(|(_, head)| head.as_ref().ok()?.record.as_ref());
        records.max_by_key(|record| record.age()) == Some(intent)
    }

    /// Has some of the parts that a change concerns make it: each makes it once, and says which
    /// version it has then, as long as nothing has changed it since.
    pub(super) async fn make(
        &self,
        some: ShardSet,
        parts: ShardSet,
        intent: &Record,
        body: &[u8],
    ) -> Vec<(usize, Result<u64, PartError>)> {
        let Stage::Intent { offset, bytes, .. } = intent.stage else { return Vec::new() };
        let units = parts.iter().zip(body.chunks_exact(bytes as usize));
        let asked = units.filter(|(part, _)| some.contains(*part)).map(|(part, unit)| {
            let (chunk, bytes, stamp) = (self.layout.nodes[part].chunk, unit.to_vec(), intent.id);
            let version = intent.versions[part].ok_or(PartError::NotWhole);
            async move {
                let write = match version {
                    Ok(version) => Op::Write { chunk, offset, bytes, version, stamp },
                    Err(error) => return (part, Err(error)),
                };
                (part, self.net.ask(part, write).await.map(|answer| answer.version))
            }
        });
        all(asked).await
    }

    /// Has all remember an intent that some do; gives what it writes, and whether all are known to
    /// remember it.
    async fn make_known(
        &self,
        who: Who,
        mut look: Look,
        intent: &Record,
    ) -> Result<(Look, Vec<u8>, bool), Stop> {
        let has = |head: &Head| head.record.as_ref() == Some(intent);
        let body = self.body(&look, intent).await?;
        if who == Who::Reader && look.iter().any(|(_, head)| head.is_err()) {
            return Ok((look, body, false));
        }
        let lacking: Vec<(usize, &Head)> = look
            .iter()
            .filter_map(|(part, head)| Some((*part, head.as_ref().ok()?)))
            .filter(|(_, head)| !has(head))
            .collect();
        let told = all(lacking.iter().map(|of| self.put(*of, intent, &body))).await;
        let told: Vec<_> = lacking.iter().map(|(part, _)| *part).zip(told).collect();
        let mut is_known = true;
        for (part, told) in told {
            let Some((_, place)) = look.iter_mut().find(|(of, _)| *of == part) else { continue };
            match told.map_err(|error| stop(part, error)) {
                Ok(head) => *place = Ok(head),
                Err(Stop::Part(_, error)) if who != Who::Writer => {
                    // For a repairer it counts among those that are gone.
                    is_known &= who == Who::Repairer;
                    *place = Err(error);
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok((look, body, is_known))
    }

    /// What an intent writes, from whoever gives it.
    async fn body(&self, look: &Look, intent: &Record) -> Result<Vec<u8>, Stop> {
        let mut last = Stop::Met(self.holders().start, PartError::NotWhole);
        for (part, head) in look {
            let (part, Ok(Head { version: Some(version), record })) = (*part, head) else {
                continue;
            };
            if record.as_ref() != Some(intent) {
                continue;
            }
            let (chunk, bytes) = (self.head_of(part), intent.body_bytes());
            let read = Op::Read { chunk, offset: HEAD_BYTES as u64, bytes };
            last = match self.net.ask(part, read).await {
                Ok(answer) if answer.version == *version && intent.has_body(&answer.bytes) => {
                    return Ok(answer.bytes);
                }
                Ok(answer) => {
                    let (expected, found) = (*version, answer.version);
                    Stop::Met(part, PartError::OtherVersion { expected, found })
                }
                Err(error) => stop(part, error),
            };
        }
        Err(last)
    }

    /// Whether a part has made a change: then all were told of it.
    async fn has_begun(&self, parts: ShardSet, intent: &Record, body: &[u8]) -> Result<bool, Stop> {
        let asked = parts.iter().map(|part| {
            let chunk = self.layout.nodes[part].chunk;
            self.net.ask(part, Op::Stat { chunk })
        });
        let found = parts.iter().zip(all(asked).await);
        let other = |(part, found): (usize, Result<Answer, PartError>)| {
            let found = found.ok()?.version;
            (Some(found) != intent.versions[part]).then_some(part)
        };
        let moved: ShardSet = found.filter_map(other).collect();
        // Those have other versions than it is meant for: to ask them for it changes nothing, and
        // tells whether it was this change that made them, or a later one.
        let (mut refused, mut last) = (ShardSet::NONE, None);
        for (part, made) in self.make(moved, parts, intent, body).await {
            match made {
                Ok(_) => return Ok(true),
                Err(error) => {
                    if is_refusal(&error) {
                        refused.insert(part);
                    }
                    last = Some(Stop::Met(part, error));
                }
            }
        }
        let Some(stop) = last else { return Ok(false) };
        let seen = self.seen(refused, parts, intent, body).await;
        // Somebody else may have written to them.
        match self.is_newest(intent).await {
            true => Ok(seen.iter().any(|(_, seen)| seen.is_some_and(|(_, is_after)| is_after))),
            false => Err(stop),
        }
    }
}
