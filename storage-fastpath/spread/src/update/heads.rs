//! What servers remember of the changes of a file: looked at, and brought to an end where whoever
//! began one has left it half-way (docs/updates.md section 2).

use towpath_ec::ShardSet;
use towpath_fastpath::{ChunkId, ClientError, ErrorKind, ErrorReply, Fate, Method};

use super::net::{Answer, Net, Op, all};
use super::record::{HEAD_BYTES, Record, Stage};
use crate::error::PartError;
use crate::layout::Layout;

/// How often whoever meets others looks again before it gives up.
pub(crate) const TRIES: u32 = 24;

/// How often a head is read that somebody writes for the first time.
const HEAD_TRIES: u32 = 3;

/// The chunk in which the server of a part remembers changes of its file, from the name of the
/// part. A capability for a prefix of the one is one for the other.
pub(crate) fn head_chunk(part: ChunkId) -> ChunkId {
    ChunkId(part.0 ^ 1)
}

/// What one server remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// Of the chunk; none where there is none.
    version: Option<u64>,
    record: Option<Record>,
}

#[cfg(test)]
impl Head {
    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }
}

/// What the servers that remember changes do, each by its part.
pub(crate) type Look = Vec<(usize, Result<Head, PartError>)>;

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// It changes the file next: every server has to have what was changed before.
    Writer,
    /// It reads: some servers may be gone.
    Reader,
    /// It closes the file next: some servers may be gone, and what was begun is made, since nobody
    /// can make it afterwards.
    Repairer,
}

/// How a file is when nothing of it is half-way.
#[derive(Debug)]
pub(crate) struct State {
    /// Of its last change.
    pub(crate) number: u64,
    pub(crate) id: u64,
    /// By this layout nothing is changed any more.
    pub(crate) is_closed: bool,
    /// Of each part; none where it is not known.
    pub(crate) versions: Vec<Option<u64>>,
    pub(crate) look: Look,
    /// What tells all that the last change is made, where some do not know.
    pub(crate) untold: Option<Record>,
}

/// Why a step did not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Somebody else was there, with this part: to look again is of use.
    Met(usize, PartError),
    /// The server of a part is not there, or refuses.
    Part(usize, PartError),
    /// A repair has made a newer layout.
    Closed,
}

/// Whether looking again can be of use after that.
fn is_met(error: &PartError) -> bool {
    match error {
        PartError::OtherVersion { .. } => true,
        PartError::Client(error) => matches!(
            error.kind,
            ErrorKind::Refused(ErrorReply::OtherVersion { .. } | ErrorReply::ChunkExists { .. })
                | ErrorKind::PeerGone { fate: Fate::Unknown }
        ),
        _ => false,
    }
}

pub(crate) fn stop(part: usize, error: PartError) -> Stop {
    if is_met(&error) { Stop::Met(part, error) } else { Stop::Part(part, error) }
}

/// A file, and those that have it.
pub(crate) struct File<'a> {
    pub(crate) net: &'a dyn Net,
    pub(crate) layout: &'a Layout,
    /// Changes are not made known before they are made, for tests that must notice.
    #[cfg(test)]
    pub(crate) bug: Option<super::tests::Bug>,
}

impl<'a> File<'a> {
    pub(crate) fn new(net: &'a dyn Net, layout: &'a Layout) -> Self {
        Self {
            net,
            layout,
            #[cfg(test)]
            bug: None,
        }
    }

    /// The parts whose servers remember changes: one more than may be lost.
    pub(crate) fn holders(&self) -> std::ops::Range<usize> {
        self.layout.policy.data() - 1..self.layout.policy.parts()
    }

    fn head_of(&self, part: usize) -> ChunkId {
        head_chunk(self.layout.nodes[part].chunk)
    }

    /// What all of them remember.
    pub(crate) async fn look(&self) -> Look {
        all(self.holders().map(|part| async move { (part, self.head(part).await) })).await
    }

    async fn head(&self, part: usize) -> Result<Head, PartError> {
        let chunk = self.head_of(part);
        let parts = self.layout.nodes.len();
        let mut tries = 0;
        loop {
            let read = self.net.ask(part, Op::Read { chunk, offset: 0, bytes: HEAD_BYTES }).await;
            let kind = match read {
                Ok(Answer { version, bytes, .. }) => {
                    let record = Record::parse(&bytes, parts);
                    return Ok(Head { version: Some(version), record });
                }
                Err(PartError::Client(error)) => error.kind,
                Err(error) => return Err(error),
            };
            let error = match kind {
                ErrorKind::Refused(ErrorReply::NoSuchChunk { .. }) => return Ok(Head::default()),
                ErrorKind::Refused(ErrorReply::PastEnd { .. }) => {
                    // Nothing is in it yet: that is what the version must be of.
                    let Answer { version, len, .. } =
                        self.net.ask(part, Op::Stat { chunk }).await?;
                    if len == 0 {
                        return Ok(Head { version: Some(version), record: None });
                    }
                    PartError::OtherLength { expected: 0, found: len }
                }
                kind => {
                    ClientError { method: Method::Read, chunk: Some(chunk), offset: Some(0), kind }
                        .into()
                }
            };
            let is_written = matches!(error, PartError::OtherLength { .. });
            if !is_written || tries == HEAD_TRIES {
                return Err(error);
            }
            tries += 1;
        }
    }

    /// Has one of them remember a record in place of what it did before.
    pub(crate) async fn put(
        &self,
        (part, head): (usize, &Head),
        record: &Record,
        body: &[u8],
    ) -> Result<Head, PartError> {
        let chunk = self.head_of(part);
        let version = match head.version {
            Some(version) => version,
            // Of what somebody else has written there since it has another one.
            None => self.net.ask(part, Op::Create { chunk }).await?.version,
        };
        let (bytes, stamp) = ([&record.emit(), body].concat(), record.stamp());
        let write = Op::Write { chunk, offset: 0, bytes, version, stamp };
        let version = Some(self.net.ask(part, write).await?.version);
        Ok(Head { version, record: Some(record.clone()) })
    }

    /// How the file is when what was begun is at its end. Whoever finds a change that was made
    /// known to all and perhaps not made, makes it.
    pub(crate) async fn settle(&self, who: Who, known: Option<Look>) -> Result<State, Stop> {
        let mut known = known;
        let mut tries = 0;
        loop {
            let look = match known.take() {
                Some(look) => look,
                None => self.look().await,
            };
            match self.settle_once(who, look).await {
                Err(Stop::Met(..)) if tries < TRIES => {
                    self.net.pause(tries).await;
                    tries += 1;
                }
                settled => return settled,
            }
        }
    }

    async fn settle_once(&self, who: Who, look: Look) -> Result<State, Stop> {
        let gone = look.iter().find_map(|(part, head)| Some((*part, head.as_ref().err()?.again())));
        let is_nobody = look.iter().all(|(_, head)| head.is_err());
        if let Some((part, error)) = gone
            && (who == Who::Writer || is_nobody)
        {
            return Err(Stop::Part(part, error));
        }
        let records = look.iter().filter_map(|(_, head)| head.as_ref().ok()?.record.clone());
        let newest = records.max_by_key(Record::age);
        let by_layout = || self.layout.nodes.iter().map(|node| node.version).collect();
        let Some(newest) = newest else {
            let versions = by_layout();
            let (number, id, is_closed, untold) = (0, 0, false, None);
            return Ok(State { number, id, is_closed, versions, look, untold });
        };
        let Record { generation, number, id, stage, .. } = newest;
        let own = self.layout.generation;
        if generation != own {
            // Of an older layout it says nothing, and of a newer one nothing that helps.
            let (versions, is_closed, untold) = (by_layout(), generation > own, None);
            return Ok(State { number, id, is_closed, versions, look, untold });
        }
        match stage {
            Stage::Intent { .. } => self.finish(who, look, newest).await,
            Stage::Made | Stage::Closed => {
                let (versions, is_closed) = (newest.versions, stage == Stage::Closed);
                Ok(State { number, id, is_closed, versions, look, untold: None })
            }
        }
    }

    /// Makes a change that is made known.
    async fn finish(&self, who: Who, look: Look, intent: Record) -> Result<State, Stop> {
        let Stage::Intent { parts, .. } = intent.stage else { return Err(Stop::Closed) };
        let (look, body, is_known) = self.make_known(who, look, &intent).await?;
        let Record { number, id, versions, .. } = &intent;
        let (number, id, mut versions) = (*number, *id, versions.clone());
        if !is_known && !self.has_begun(parts, &intent, &body).await? {
            // Nobody has changed anything yet, and so it is as before.
            let (number, is_closed, untold) = (number - 1, false, None);
            return Ok(State { number, id: 0, is_closed, versions, look, untold });
        }
        let mut is_whole = true;
        for (part, made) in self.make(parts, parts, &intent, &body).await {
            match made.map_err(|error| stop(part, error)) {
                Ok(version) => versions[part] = Some(version),
                // It is read around, and repaired.
                Err(Stop::Part(..)) if who != Who::Writer => {
                    versions[part] = None;
                    is_whole = false;
                }
                Err(stop) => return Err(stop),
            }
        }
        let made = Record { stage: Stage::Made, versions: versions.clone(), ..intent };
        let (is_closed, untold) = (false, is_whole.then_some(made));
        Ok(State { number, id, is_closed, versions, look, untold })
    }

    /// Has some of the parts that a change concerns make it: each makes it once, and says which
    /// version it has then, as long as nothing has changed it since.
    async fn make(
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
        let asked = self.make(moved, parts, intent, body).await;
        let mut last = None;
        for (part, made) in asked {
            match made {
                Ok(_) => return Ok(true),
                Err(error) => last = Some(Stop::Met(part, error)),
            }
        }
        last.map_or(Ok(false), Err)
    }

    /// Tells all who remember a change that it is made. Whoever does not hear of it looks for
    /// himself.
    pub(crate) async fn tell(&self, state: &mut State) {
        let Some(made) = state.untold.take() else { return };
        let heads = state.look.iter().filter_map(|(part, head)| Some((*part, head.as_ref().ok()?)));
        let heads: Vec<_> = heads.collect();
        all(heads.into_iter().map(|of| self.put(of, &made, &[]))).await;
    }

    /// Closes a file to changes by this layout, at all of those that are there, who must be as they
    /// were looked at; gives the generation that the next layout has.
    pub(crate) async fn close(&self, state: &State) -> Result<u64, Stop> {
        let (number, id) = (state.number + 1, Record::id_of(self.net.draw()));
        let known = state.look.iter().filter_map(|(part, head)| Some((*part, head.as_ref().ok()?)));
        let known: Vec<_> = known.collect();
        let generations =
            known.iter().filter_map(|(_, head)| Some(head.record.as_ref()?.generation));
        let generation = generations.fold(self.layout.generation, u64::max);
        let versions = state.versions.clone();
        let closed = Record { generation, number, id, stage: Stage::Closed, versions };
        let told = all(known.iter().map(|of| self.put(*of, &closed, &[]))).await;
        let mut is_told = false;
        let mut last = Stop::Closed;
        for ((part, _), told) in known.iter().zip(told) {
            match told.map_err(|error| stop(*part, error)) {
                Ok(_) => is_told = true,
                Err(Stop::Part(part, error)) => last = Stop::Part(part, error),
                Err(stop) => return Err(stop),
            }
        }
        if is_told { Ok(generation) } else { Err(last) }
    }
}
