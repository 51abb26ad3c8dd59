//! Acks: taking them in, and giving them out after the application's turn.

use super::{Controls, Link, LinkState};
use crate::chunk_size::ChunkSize;
use crate::event::{AckTransmit, DownReason, PathId};
use crate::limits::{ACK_BYTES_MAX, ACK_CREDITS_MAX};
use crate::path::{AckDigest, Path, SendWindow, What, bit};
use crate::stats::LinkStats;
use crate::wire::{Ack, AckFrame};
use core::hint::cold_path;
use core::ops::Range;
use towpath_base::serial::expand_u32;
use towpath_base::{Nanos, Time};

/// More than the charge of any chunk, and far from overflow.
const CHUNK_CHARGE_MAX: u32 = 1 << 30;

/// The most chunks lost by one timeout that count for the length of chunks.
const GONE_MAX: u32 = 8;

impl Link {
    /// Takes in an ack frame that the device received on the control queue pair at `received_at`.
    pub fn handle_ack(&mut self, now: Time, bytes: &[u8], received_at: Time) {
        self.settle_piggyback();
        let generation = self.peer.control_generations.0;
        self.take_in_ack(now, bytes, received_at, generation);
    }

    /// Takes in an ack frame from a queue pair whose headers carry `generation`.
    pub(super) fn take_in_ack(
        &mut self,
        now: Time,
        bytes: &[u8],
        received_at: Time,
        generation: u32,
    ) {
        let Ok(frame) = AckFrame::parse(bytes) else {
            self.stats.acks_bad += 1;
            return;
        };
        let ack = frame.ack;
        let index = usize::from(ack.path);
        let known = self.paths.get(index).is_some_and(|path| {
            ack.acked_generation == path.generation_out && ack.generation == generation
        });
        if !known || self.is_down() {
            self.stats.acks_bad += 1;
            return;
        }
        self.presence.last_heard = now;
        let hold = Nanos(u64::from(ack.hold));
        let times = (now, received_at, hold);
        if !self.on_ack_of(times, index, ack.largest, ack.base, frame.words()) {
            return;
        }
        let is_in_use = self.paths.is_in_use(index);
        let path = &mut self.paths[index];
        if ack.ack_number > path.ack_number_seen {
            path.ack_number_seen = ack.ack_number;
            let before = core::mem::replace(&mut path.disordered_seen, ack.disordered);
            if ack.disordered != before && is_in_use {
                cold_path();
                self.flow.chunk_size.on_disordered(ack.disordered.wrapping_sub(before));
            }
            self.flow.peer_window_bytes = u64::from(ack.window_kib) << 10;
        }
        for (id, credit) in frame.credits() {
            if let Some(channel) = self.channel(id) {
                self.on_credit(id, expand_u32(credit, channel.tx.granted()));
            }
        }
    }

    /// Takes in an ack of one path, from a frame or from a chunk; false for numbers never sent.
    pub(super) fn on_ack_of(
        &mut self,
        (now, received_at, hold): (Time, Time, Nanos),
        index: usize,
        largest: u64,
        base: u64,
        words: impl Iterator<Item = (u64, u64)>,
    ) -> bool {
        if !self.paths[index].tx.was_sent(largest) {
            self.stats.violations += 1;
            return false;
        }
        self.stats.acks_received += 1;
        if !self.paths[index].tx.is_news(largest, base) && words.size_hint().1 == Some(0) {
            return true;
        }
        let Self {
            paths,
            flow,
            events,
            stats,
            sends,
            channels,
            control: Controls { scratch: control_scratch, .. },
            ..
        } = self;
        let is_in_use = paths.is_in_use(index);
        let path = &mut paths[index];
        // A send of this charge shows that long packets get through; a probe may show more.
        let least_body = path.mtu.least_bytes().saturating_sub(flow.chunk_size.around_bytes());
        let least_charge = flow.charge(least_body.min(CHUNK_CHARGE_MAX));
        let (mut passed_charge, mut long_answered) = (0, None);
        let on_number = |what: &What, charge: u32| match what {
            What::Control(key) => control_scratch.push(*key),
            What::LongProbe(size) => long_answered = long_answered.max(Some(*size)),
            What::Data if charge >= least_charge => passed_charge = charge.max(passed_charge),
            What::Data | What::Nothing | What::Probe => {}
        };
        let digest = path.tx.on_ack(now, (largest, base), words, on_number, |frame| {
            sends.on_acked(frame, channels, (events, stats));
        });
        if passed_charge > 0 {
            path.mtu.on_passed(passed_charge - flow.charge(0) + flow.chunk_size.around_bytes());
        }
        if digest.spurious > 0 || digest.timeouts_were_false.is_some() {
            cold_path();
            note_spurious(path, &mut flow.chunk_size, stats, &digest);
            if is_in_use && digest.timeouts_were_false == Some(true) {
                flow.on_false_rto();
            }
        }
        path.on_ack_digest(now, received_at, hold, &digest, is_in_use.then_some(flow));
        if is_in_use {
            paths.ladder.loss.on_spurious(digest.spurious);
        }
        if let Some(size) = long_answered {
            self.on_long_answered(now, index, size);
        }
        self.find_losses(now, index);
        if digest.acked_chunks > 0 && self.paths.len() > 1 {
            self.on_path_answer(now, index, &digest);
        }
        self.settle_acked();
        true
    }

    /// Continues channels and control chunks after an ack was taken in.
    fn settle_acked(&mut self) {
        let mut woken = core::mem::take(&mut self.sends.woken);
        for id in woken.drain(..) {
            self.channels.make_ready(id);
            self.close_when_done(id);
        }
        self.sends.woken = woken;
        let mut controls = core::mem::take(&mut self.control.scratch);
        for key in controls.drain(..) {
            self.on_control_acked(key);
        }
        self.control.scratch = controls;
        self.leave_when_done();
    }

    /// The device has returned the work request that carried `number` on `path`.
    pub fn handle_sent(&mut self, path: PathId, number: u64, timestamp: Option<Time>) {
        self.on_returned(path, timestamp, |_| number..number.saturating_add(1));
    }

    /// The device has returned the work requests of all numbers up to `number` on `path`, in the
    /// order in which they were posted; the last of them at `timestamp`.
    pub fn handle_sent_upto(&mut self, path: PathId, number: u64, timestamp: Option<Time>) {
        self.on_returned(path, timestamp, |tx| tx.posted_upto(number));
    }

    #[inline(always)]
    fn on_returned(
        &mut self,
        path: PathId,
        timestamp: Option<Time>,
        numbers: impl Fn(&SendWindow) -> Range<u64>,
    ) {
        let Self { paths, events, sends, chunk_lag, .. } = self;
        let Some(path) = paths.get_mut(usize::from(path.0)) else { return };
        let numbers = numbers(&path.tx);
        let on_frame = |frame: &_| sends.on_returned(frame, events);
        if let Some((handed_at, left_at)) = path.tx.returned(numbers, timestamp, on_frame) {
            chunk_lag.note(handed_at, left_at);
        }
        self.leave_when_done();
    }

    /// An ack that [`poll_ack`](Self::poll_ack) gave at `handed_at` left at `left_at`, as the
    /// device tells. What those before it took is counted to the time for which the next is held.
    pub fn handle_ack_sent(&mut self, handed_at: Time, left_at: Time) {
        self.ack_lag.note(handed_at, left_at);
    }

    /// The next ack to send, as one SEND: on the control queue pair as long as the first path is
    /// good, else on that of another path. Call it after [`poll_transmit`](Self::poll_transmit) is
    /// empty: an ack that rode on data needs no frame.
    pub fn poll_ack(&mut self, now: Time, out: &mut [u8; ACK_BYTES_MAX]) -> Option<AckTransmit> {
        self.settle_piggyback();
        if self.is_down() {
            return None;
        }
        // Credit and windows that no chunk carries need a frame.
        let news = self.has_credit_to_tell()
            || self.receives.window_bytes != self.receives.window_told_bytes;
        let mut due = self.paths.acks_due;
        if due == 0 && news {
            due = self.paths.news_way();
        }
        if self.paths.answers_due != 0 {
            return Some(self.answer_where_heard(now, out));
        }
        if due == 0 {
            self.leave_after_goodbye();
            return None;
        }
        let index = due.trailing_zeros() as usize;
        let (path, generation) = self.ack_route(now, index);
        Some(self.transmit_ack(now, index, (path, generation), out))
    }

    /// Answers a peer that reports that it gets no ack, on the path of its report. The ack stays
    /// due on the usual path, too.
    #[cold]
    fn answer_where_heard(&mut self, now: Time, out: &mut [u8; ACK_BYTES_MAX]) -> AckTransmit {
        let index = self.paths.answers_due.trailing_zeros() as usize;
        self.paths.answers_due &= !bit(index);
        let route = (Some(PathId(index as u8)), self.paths[index].generation_out);
        let answer = self.transmit_ack(now, index, route, out);
        self.paths.acks_due |= bit(index);
        answer
    }

    /// The ack of the path at `index`, for the queue pair of `path`, or for that of acks if none.
    fn transmit_ack(
        &mut self,
        now: Time,
        index: usize,
        (path, generation): (Option<PathId>, u32),
        out: &mut [u8; ACK_BYTES_MAX],
    ) -> AckTransmit {
        let len = self.emit_ack(now, index, generation, out);
        self.stats.acks_sent += 1;
        let way = path.map_or(0, |path| usize::from(path.0));
        let cut_at = self.paths[way].mtu.cut_ack_at(len, self.stats.acks_sent);
        AckTransmit { len, path, cut_at }
    }

    /// Goes down once everything up to the peer's GOODBYE is acknowledged.
    fn leave_after_goodbye(&mut self) {
        if self.end.state == LinkState::GoodbyeSeen {
            self.go_down(DownReason::Goodbye);
        }
    }

    /// Whether a channel has credit to tell. Channels with none to tell leave the list.
    fn has_credit_to_tell(&mut self) -> bool {
        while let Some(&id) = self.channels.credit_due.front() {
            match self.channel_mut(id) {
                Some(channel) if channel.rx.should_tell_credit() => return true,
                Some(channel) => channel.rx.credit_due = false,
                None => {}
            }
            self.channels.credit_due.pop_front();
        }
        false
    }

    fn emit_ack(
        &mut self,
        now: Time,
        index: usize,
        generation: u32,
        out: &mut [u8; ACK_BYTES_MAX],
    ) -> usize {
        let mut credits = [(0, 0); ACK_CREDITS_MAX];
        let mut count = 0;
        while count < ACK_CREDITS_MAX && self.has_credit_to_tell() {
            let id = self.channels.credit_due.pop_front().expect("there is credit to tell");
            let channel = self.channel_mut(id).expect("checked by has_credit_to_tell");
            channel.rx.credit_due = false;
            credits[count] = (id, channel.rx.tell_credit() as u32);
            count += 1;
        }
        self.receives.window_told_bytes = self.receives.window_bytes;
        let window_kib = (self.receives.window_bytes >> 10).min(u64::from(u32::MAX)) as u32;
        self.paths.acks_due &= !bit(index);
        let lag = self.ack_lag.least();
        let path = &mut self.paths[index];
        path.rx.acks_sent += 1;
        let (largest, received_at) = path.rx.largest().expect("an ack is due only then");
        let hold = path.rx.tell(now, received_at, lag);
        let ack = Ack {
            path: index as u16,
            generation,
            acked_generation: path.generation_in,
            ack_number: path.rx.acks_sent,
            largest,
            base: path.rx.base().min(largest + 1),
            receive_time: received_at.0,
            hold,
            window_kib,
            disordered: path.rx.disordered(),
        };
        ack.emit(out, |number| path.rx.word_at(number), credits[..count].iter().copied())
    }
}

/// Corrects the counts of losses and timeouts by what is known now.
#[inline(never)]
fn note_spurious(path: &mut Path, size: &mut ChunkSize, stats: &mut LinkStats, digest: &AckDigest) {
    let spurious = u64::from(digest.spurious + digest.unknown);
    stats.losses_spurious += spurious;
    path.lost_chunks = path.lost_chunks.saturating_sub(spurious);
    // Of chunks that timed out only those known to be lost count, and few of them, because all may
    // have one cause, such as an outage. Chunks that a gap declared lost and that came late were
    // mostly one packet, because UC drops longer ones then.
    let late = (digest.spurious - digest.timed_out) as i32;
    size.on_lost(digest.gone.min(GONE_MAX) as i32 - late, -late);
    if let Some(were_false) = digest.timeouts_were_false {
        let rtos = path.timing.take_open_rtos();
        stats.rtos_spurious += if were_false { rtos } else { 0 };
    }
}
