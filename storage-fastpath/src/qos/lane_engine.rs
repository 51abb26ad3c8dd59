//! A tenant's tokens over a link (docs/qos.md): its engine, and the words that one-sided operations
//! reach.

use towpath_qos::{Action, Engine, FromMonitor, MessageError};
use towpath_transport::{
    Device, Endpoint, LaneError, OpId, OpOptions, OpOutcome, Place, Region, Time,
};

/// An [`Engine`] whose words lie in memory of the server that it has granted over a link: tokens of
/// the pool are taken by FETCH_ADD, and reports are written silently.
///
/// The caller tells it what the server's monitor says ([`on_message`](Self::on_message)) and how
/// operations end ([`on_op_done`](Self::on_op_done)), and calls [`drive`](Self::drive) in each turn
/// of the endpoint, after its I/Os asked the [engine](Self::engine_mut) for leave. Operations go on
/// the lane of the link, or by messages where there is none.
#[derive(Debug)]
pub struct LaneEngine {
    engine: Engine,
    pool: Place,
    report: Place,
    fetch: Option<OpId>,
    /// The report that is under way. One at a time: when the network is slower than reports are,
    /// they must not queue up.
    telling: Option<OpId>,
    stats: LaneEngineStats,
}

/// What a [`LaneEngine`] counts; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneEngineStats {
    /// Additions to the pool's word.
    pub fetches: u64,
    /// Of those, came to an end that nobody knows.
    pub fetches_lost: u64,
    /// Reports written.
    pub reports: u64,
    /// Reports that were left out, since the one before was still under way.
    pub reports_skipped: u64,
    /// Messages that are none of a monitor's.
    pub malformed: u64,
}

impl LaneEngine {
    /// With the pool's word and the client's own, as the server granted them.
    #[must_use]
    pub fn new(engine: Engine, pool: Place, report: Place) -> Self {
        let stats = LaneEngineStats::default();
        Self { engine, pool, report, fetch: None, telling: None, stats }
    }

    /// The engine, to see what it holds.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, to ask it for leave and to tell it what is done.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> LaneEngineStats {
        self.stats
    }

    /// Takes in what the server's monitor says: that a period begins, or that something changes.
    ///
    /// # Errors
    /// [`MessageError`]: it is counted, and changes nothing.
    pub fn on_message(&mut self, now: Time, bytes: &[u8]) -> Result<(), MessageError> {
        match FromMonitor::parse(bytes) {
            Ok(FromMonitor::Start(start)) => self.engine.start(now, &start),
            Ok(FromMonitor::Notice(notice)) => self.engine.notice(now, &notice),
            Err(error) => {
                self.stats.malformed += 1;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes in the end of an operation ([`Event::OpDone`](towpath_transport::Event::OpDone));
    /// false when it is none of this engine's.
    pub fn on_op_done(
        &mut self,
        now: Time,
        op: OpId,
        outcome: OpOutcome,
        word: Option<u64>,
    ) -> bool {
        if self.telling == Some(op) {
            self.telling = None;
            return true;
        }
        if self.fetch != Some(op) {
            return false;
        }
        self.fetch = None;
        match word.filter(|_| outcome == OpOutcome::Executed) {
            Some(was) => self.engine.fetched(now, was),
            None => {
                self.stats.fetches_lost += 1;
                self.engine.fetch_lost(now);
            }
        }
        true
    }

    /// Does what the engine wants done.
    ///
    /// # Errors
    /// [`LaneError`]: the server has taken the words back, or the link is gone. The engine gets no
    /// more tokens of the pool; those that it has are still good.
    pub fn drive<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Result<(), LaneError> {
        let now = endpoint.now();
        while let Some(action) = self.engine.poll(now) {
            match action {
                Action::Fetch { operand } => {
                    match endpoint.fetch_add(self.pool, operand, OpOptions::new()) {
                        Ok(op) => self.fetch = Some(op),
                        Err(error) => {
                            self.engine.fetch_lost(now);
                            return Err(error);
                        }
                    }
                    self.stats.fetches += 1;
                }
                Action::Report { .. } if self.telling.is_some() => self.stats.reports_skipped += 1,
                Action::Report { word } => {
                    self.telling =
                        Some(endpoint.write_word(self.report, word, OpOptions::new())?);
                    self.stats.reports += 1;
                }
            }
        }
        Ok(())
    }

    /// When [`drive`](Self::drive) has something to do again, unless something comes in before.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        self.engine.next_timeout()
    }
}
