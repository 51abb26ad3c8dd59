//! The opponent, for comparison only: chunks are written straight into the application's buffers.
//!
//! Each chunk is one WRITE with immediate data over UC. The immediate names message and chunk; the
//! receiver's software acknowledges each, suppresses duplicates, and finds stale ones, all by
//! looking at completions: when the bytes are in memory already. Which buffer is free again is
//! told to the sender at once and without loss, which is kinder than any network.

use super::{Seen, Shard};
use crate::content::{Content, Fingerprint, MessageKey, differing};
use crate::failure::Cause;
use crate::studies::StudyError;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::{Region, SharedMemory};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, VirtualLink, World};
use towpath_verbs::{
    Access, Connect, CqNum, Device, MrKeys, Mtu, PdNum, QpInit, QpNum, QpType, RcAttr, RecvWr,
    RemoteAddr, SendOp, SendWr, SgList, Sge, Verb, VerbError, Wc,
};

/// Buffers at each end, each used again as soon as it is free.
const SLOTS: usize = 16;

/// Several packets, as chunks have.
const CHUNK_BYTES: u32 = 1024;
const MTU: Mtu = Mtu::Mtu512;

/// Chunks of the longest message fit the immediate data and a bitmap of 64.
const CHUNK_BITS: u32 = 6;

/// Ten round trips.
const RTO: Nanos = Nanos::from_micros(100);

/// Receive work requests at each end.
const RECEIVES: u32 = 1024;

/// Packets that a device takes in at a time.
const BUDGET: usize = 256;

/// The virtual time after which a run that has not ended never will.
const TIME_MAX: Time = Time(3_600_000_000_000);

/// Runs one part.
///
/// # Errors
/// [`StudyError::Run`] when the devices cannot be made.
pub(super) fn run(shard: &Shard) -> Result<Seen, StudyError> {
    let failed = |cause: Cause| StudyError::run(format!("naive, seed {}", shard.seed), cause);
    let mut run = Naive::new(shard).map_err(|error| failed(error.into()))?;
    run.finish().map_err(failed)
}

/// One end: a device, a queue pair, and the memory of its application.
struct End {
    device: RoceDevice<FaultLink<VirtualLink>>,
    cq: CqNum,
    qp: QpNum,
    memory: SharedMemory,
    keys: MrKeys,
}

impl End {
    fn new(link: FaultLink<VirtualLink>, seed: u64, bytes: usize) -> Result<Self, VerbError> {
        let mut device = RoceDevice::new(link, RoceConfig::default().seed(seed));
        let full = || VerbError::OutOfResources(Verb::RegMr);
        let region = Region::new(bytes).map_err(|_| full())?;
        let memory = SharedMemory::from_region(region).map_err(|_| full())?;
        let keys =
            device.reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::REMOTE_WRITE)?;
        let cq = device.create_cq(1 << 14)?;
        let init = QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL).depth(RECEIVES, RECEIVES);
        let qp = device.create_qp(&init)?;
        Ok(Self { device, cq, qp, memory, keys })
    }

    fn connect(&mut self, peer: &Self, source_port: u16) -> Result<(), VerbError> {
        let connect = Connect {
            dest: peer.device.local_addr(),
            dest_qp_num: peer.qp,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: MTU,
            source_port,
            tclass: 0,
            rc: RcAttr::default(),
        };
        self.device.connect_qp(self.qp, &connect)?;
        self.receive(RECEIVES as usize)
    }

    /// Posts receives for immediate data alone.
    fn receive(&mut self, count: usize) -> Result<(), VerbError> {
        let posted = self.device.post_recv(self.qp, &vec![RecvWr::default(); count]);
        posted.map_err(|refused| refused.error)
    }

    /// The immediate data that came.
    fn arrivals(&mut self, wcs: &mut [Wc]) -> Result<Vec<u32>, VerbError> {
        let count = self.device.poll_cq(self.cq, wcs);
        let came: Vec<&Wc> = wcs[..count].iter().filter(|wc| wc.opcode.is_recv()).collect();
        let imm = came.iter().filter_map(|wc| wc.imm_data).collect();
        let used = came.len();
        self.receive(used)?;
        Ok(imm)
    }
}

/// A message on its way through a buffer at each end.
#[derive(Clone, Copy)]
struct Message {
    number: u64,
    len: u32,
    /// Chunks that the sender knows to have come, and that the receiver has.
    acked: u64,
    came: u64,
}

impl Message {
    fn chunks(&self) -> u32 {
        self.len.div_ceil(CHUNK_BYTES)
    }

    fn all(&self) -> u64 {
        u64::MAX >> (64 - self.chunks())
    }
}

/// What a buffer of the receiver is for.
#[derive(Clone, Copy)]
enum Use {
    /// The application has it, filled with its own content, until then.
    Held(Time),
    /// A message lands in it.
    Landing(Message),
}

struct Slot {
    used: Use,
    /// How often the application has filled it.
    fills: u64,
    /// When each chunk was last sent.
    sent_at: [Time; 1 << CHUNK_BITS],
}

struct Naive<'a> {
    shard: &'a Shard,
    world: World,
    near: End,
    far: End,
    control: [FaultControl; 2],
    slots: Vec<Slot>,
    slot_bytes: usize,
    prng: Prng,
    next_number: u64,
    seen: Seen,
    log: Fingerprint,
    wcs: Vec<Wc>,
}

impl<'a> Naive<'a> {
    fn new(shard: &'a Shard) -> Result<Self, VerbError> {
        let world = World::new(shard.seed);
        let (near, far) = world.link(&Shard::wire());
        let control = [(); 2].map(|()| FaultControl::new(FaultPlan::none()));
        let slot_bytes = (shard.bytes_max as usize).next_multiple_of(CHUNK_BYTES as usize);
        let end = |link, control: &FaultControl| {
            control.set_receive(shard.plan.clone());
            let link = FaultLink::new(link, world.next_seed(), control.clone());
            End::new(link, world.next_seed(), SLOTS * slot_bytes)
        };
        let (mut near, mut far) = (end(near, &control[0])?, end(far, &control[1])?);
        near.connect(&far, 0)?;
        far.connect(&near, 0)?;
        let slot = || Slot {
            used: Use::Held(Time::ZERO),
            fills: 0,
            sent_at: [Time::ZERO; 1 << CHUNK_BITS],
        };
        let mut made = Self {
            shard,
            prng: Prng::new(world.next_seed()),
            world,
            near,
            far,
            control,
            slots: (0..SLOTS).map(|_| slot()).collect(),
            slot_bytes,
            next_number: 0,
            seen: Seen::default(),
            log: Fingerprint::new(),
            wcs: vec![Wc::default(); BUDGET],
        };
        (0..SLOTS).for_each(|slot| made.fill(slot));
        Ok(made)
    }

    fn finish(&mut self) -> Result<Seen, Cause> {
        while self.seen.messages < self.shard.messages {
            let now = self.world.now();
            self.turn(now)?;
            let mut next = self.world.next_event_time().unwrap_or(Time::NEVER);
            for end in [&self.near, &self.far] {
                next = next.min(end.device.link().next_release().unwrap_or(Time::NEVER));
            }
            next = next.min(self.next_timer(now));
            if next > TIME_MAX {
                return Err(Cause::Endless("the naive design has sent everything"));
            }
            self.world.advance_to(next.max(now + Nanos(1)));
        }
        for control in &self.control {
            let faults = control.counters();
            self.seen.late += faults.late;
            self.seen.copies += faults.duplicated;
        }
        // WRITEs carry addresses of this process, so a hash of packets would tell runs apart that
        // are the same: what the software saw of them is hashed instead.
        self.seen.trace_hash = self.log.value();
        Ok(self.seen.clone())
    }

    fn turn(&mut self, now: Time) -> Result<(), VerbError> {
        loop {
            let moved = self.near.device.progress(BUDGET) + self.far.device.progress(BUDGET);
            let acks = self.near.arrivals(&mut self.wcs)?;
            acks.iter().for_each(|&imm| self.on_ack(imm));
            let chunks = self.far.arrivals(&mut self.wcs)?;
            for &imm in &chunks {
                self.on_chunk(now, imm);
            }
            self.use_buffers(now);
            let sent = self.send(now);
            if moved == 0 && acks.is_empty() && chunks.is_empty() && !sent {
                return Ok(());
            }
        }
    }

    /// When something is due by itself.
    fn next_timer(&self, now: Time) -> Time {
        let of = |slot: &Slot| match &slot.used {
            Use::Held(until) => *until,
            Use::Landing(message) => {
                let open = (0..message.chunks()).filter(|chunk| message.acked >> chunk & 1 == 0);
                open.map(|chunk| slot.sent_at[chunk as usize] + RTO).min().unwrap_or(Time::NEVER)
            }
        };
        let due = self.slots.iter().map(of).filter(|&at| at > now);
        due.min().unwrap_or(Time::NEVER)
    }

    fn place(&self, imm: u32) -> Option<(usize, u32)> {
        let (tag, chunk) = (imm >> CHUNK_BITS, imm & ((1 << CHUNK_BITS) - 1));
        let slot = tag as usize % SLOTS;
        match &self.slots[slot].used {
            Use::Landing(message) if Self::tag(message.number) == tag => {
                (chunk < message.chunks()).then_some((slot, chunk))
            }
            _ => None,
        }
    }

    /// What of a message's number the immediate data have room for. The slot is part of it.
    fn tag(number: u64) -> u32 {
        (number & (u64::from(u32::MAX) >> CHUNK_BITS)) as u32
    }

    fn on_ack(&mut self, imm: u32) {
        if let Some((slot, chunk)) = self.place(imm)
            && let Use::Landing(message) = &mut self.slots[slot].used
        {
            message.acked |= 1 << chunk;
        }
    }

    /// A chunk has come: its bytes are in memory already, wanted or not.
    fn on_chunk(&mut self, now: Time, imm: u32) {
        self.log.update(&now.0.to_le_bytes());
        self.log.update(&imm.to_le_bytes());
        // A chunk that is not wanted is acknowledged all the same: the ack may have been lost.
        let ack = SendWr::new(0, SendOp::SendWithImm { imm_data: imm }, <SgList>::default());
        // Where the queue is full, the sender asks again.
        let _ = self.far.device.post_send(self.far.qp, &[ack]);
        let Some((slot, chunk)) = self.place(imm) else {
            self.seen.stale += 1;
            return;
        };
        let Use::Landing(message) = &mut self.slots[slot].used else { return };
        if message.came >> chunk & 1 == 1 {
            self.seen.stale += 1;
            return;
        }
        message.came |= 1 << chunk;
        if message.came == message.all() {
            let message = *message;
            self.seen.messages += 1;
            self.look(slot, self.content(0, message.number), message.len as usize);
            self.fill(slot);
            let hold = Nanos(self.prng.below(self.shard.hold_max.0 + 1));
            self.slots[slot].used = Use::Held(now + hold);
        }
    }

    fn content(&self, from: u8, number: u64) -> Content {
        Content::new(MessageKey { seed: self.shard.seed, life: 0, from, channel: 0, number })
    }

    /// The application fills a buffer of the receiver with something of its own.
    fn fill(&mut self, slot: usize) {
        self.slots[slot].fills += 1;
        let number = self.slots[slot].fills * SLOTS as u64 + slot as u64;
        let mut bytes = vec![0; self.slot_bytes];
        self.content(1, number).fill(0, &mut bytes);
        let written = self.far.memory.write(slot * self.slot_bytes, &bytes);
        written.expect("the slot lies in the memory");
    }

    /// Counts the bytes of a buffer of the receiver that are not what they should be.
    fn look(&mut self, slot: usize, wanted: Content, len: usize) {
        let mut found = vec![0; len];
        let read = self.far.memory.read(slot * self.slot_bytes, &mut found);
        read.expect("the slot lies in the memory");
        let mut should_be = vec![0; len];
        wanted.fill(0, &mut should_be);
        let changed = differing(&found, &should_be);
        self.log.update(&changed.to_le_bytes());
        self.seen.buffers_looked_at += 1;
        self.seen.bytes_changed += changed;
        self.seen.buffers_changed += u64::from(changed > 0);
    }

    /// The application looks at what it has held long enough, and gives it for the next message.
    fn use_buffers(&mut self, now: Time) {
        for slot in 0..SLOTS {
            let Use::Held(until) = self.slots[slot].used else { continue };
            if until > now {
                continue;
            }
            let number = self.slots[slot].fills * SLOTS as u64 + slot as u64;
            self.look(slot, self.content(1, number), self.slot_bytes);
            // The slot is the lower part of the number.
            let number = self.next_number * SLOTS as u64 + slot as u64;
            self.next_number += 1;
            let len = self.shard.draw_len(&mut self.prng);
            let mut bytes = vec![0; len as usize];
            self.content(0, number).fill(0, &mut bytes);
            let written = self.near.memory.write(slot * self.slot_bytes, &bytes);
            written.expect("the slot lies in the memory");
            self.slots[slot].used = Use::Landing(Message { number, len, acked: 0, came: 0 });
            self.slots[slot].sent_at = [Time::ZERO; 1 << CHUNK_BITS];
        }
    }

    /// Sends what was not sent yet, or not acknowledged in time.
    fn send(&mut self, now: Time) -> bool {
        let mut any = false;
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Use::Landing(message) = &slot.used else { continue };
            for chunk in 0..message.chunks() {
                let sent_at = slot.sent_at[chunk as usize];
                let waits = sent_at > Time::ZERO && sent_at + RTO > now;
                if message.acked >> chunk & 1 == 1 || waits {
                    continue;
                }
                let offset = number * self.slot_bytes + (chunk * CHUNK_BYTES) as usize;
                let length = CHUNK_BYTES.min(message.len - chunk * CHUNK_BYTES);
                let (near, far) = (&self.near, &self.far);
                let addr = near.memory.addr() + offset as u64;
                let sge = Sge { addr, length, lkey: near.keys.lkey };
                let addr = far.memory.addr() + offset as u64;
                let remote = RemoteAddr { addr, rkey: far.keys.rkey };
                let imm_data = Self::tag(message.number) << CHUNK_BITS | chunk;
                let op = SendOp::WriteWithImm { remote, imm_data };
                let wr = SendWr::new(0, op, SgList::one(sge));
                // A full queue is tried again at the next turn.
                if self.near.device.post_send(self.near.qp, &[wr]).is_ok() {
                    slot.sent_at[chunk as usize] = now.max(Time(1));
                    any = true;
                }
            }
        }
        any
    }
}
