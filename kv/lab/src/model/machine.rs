//! The processors of a machine, and the threads that want them.

use super::plan::Hardware;
use std::collections::VecDeque;

/// What a thread does where it has a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It works; so much is left, in hundredths of a nanosecond at full speed.
    Working(u64),
    /// It asks whether something has come.
    Spinning,
    /// It has no use for a processor.
    Sleeping,
}

/// One thread, as its machine sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub(super) mode: Mode,
    /// On which processor.
    pub(super) on: Option<u8>,
}

/// One hardware thread.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    thread: Option<u32>,
    /// Up to when its thread's work is counted, and how fast it works, in percent.
    since: u64,
    rate: u64,
    /// Alarms of other generations are void.
    generation: u32,
    /// Since when its thread has it.
    from: u64,
    /// Whether a slice's end is on the agenda.
    slice: bool,
}

/// What is to be put on the agenda.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// The work of a processor's thread ends.
    End { cpu: u8, generation: u32, at: u64 },
    /// Its thread has had it for as long as it may.
    Slice { cpu: u8, at: u64 },
}

/// One machine. Threads wait in one queue for all processors, as if they were moved at once to
/// any that has nothing to do.
#[derive(Debug)]
pub(super) struct Machine {
    cpus: Vec<Cpu>,
    queue: VecDeque<u32>,
    /// A bit for each processor that has no thread.
    idle: u64,
    shared_percent: u64,
    quantum: u64,
    /// Threads that gave their processor back because they had to wait.
    pub(super) voluntary: u64,
    /// Threads whose time was over.
    pub(super) involuntary: u64,
    /// Work that was done, in hundredths of a nanosecond.
    pub(super) worked: u64,
    /// What the caller is to put on the agenda.
    pub(super) alarms: Vec<Alarm>,
}

impl Machine {
    pub(super) fn new(hardware: &Hardware) -> Self {
        let count = 2 * hardware.cores as usize;
        Self {
            cpus: vec![Cpu::default(); count],
            queue: VecDeque::new(),
            idle: u64::MAX >> (64 - count),
            shared_percent: hardware.shared_percent,
            quantum: hardware.quantum,
            voluntary: 0,
            involuntary: 0,
            worked: 0,
            alarms: Vec::new(),
        }
    }

    /// A thread that has no processor wants one; whether it has one now.
    pub(super) fn want(&mut self, now: u64, id: u32, threads: &mut [Thread]) -> bool {
        if self.idle == 0 {
            self.queue.push_back(id);
            self.set_slices(now);
            return false;
        }
        // A core of which both are idle is better.
        let both = self.idle & (self.idle >> 1) & 0x5555_5555_5555_5555;
        let cpu = if both != 0 { both } else { self.idle }.trailing_zeros() as u8;
        self.settle(now, cpu ^ 1, threads);
        self.give(now, cpu, id, threads);
        self.set(now, cpu ^ 1, threads);
        true
    }

    /// The mode of a thread that has a processor has changed.
    pub(super) fn changed(&mut self, now: u64, cpu: u8, threads: &[Thread]) {
        self.cpus[usize::from(cpu)].since = now;
        self.set(now, cpu, threads);
    }

    /// A thread gives its processor back; who has it then.
    pub(super) fn leave(&mut self, now: u64, cpu: u8, threads: &mut [Thread]) -> Option<u32> {
        let place = usize::from(cpu);
        if let Some(id) = self.cpus[place].thread.take() {
            threads[id as usize].on = None;
        }
        self.cpus[place].generation += 1;
        if let Some(next) = self.queue.pop_front() {
            self.give(now, cpu, next, threads);
            return Some(next);
        }
        self.settle(now, cpu ^ 1, threads);
        self.idle |= 1 << cpu;
        self.set(now, cpu ^ 1, threads);
        None
    }

    /// The work of a processor's thread has ended, unless the alarm is void; which thread.
    pub(super) fn ended(&mut self, now: u64, cpu: u8, generation: u32) -> Option<u32> {
        let held = &mut self.cpus[usize::from(cpu)];
        if held.generation != generation {
            return None;
        }
        self.worked += (now - held.since) * held.rate;
        held.since = now;
        held.thread
    }

    /// A slice may have ended: its thread waits behind the others. Who has the processor then.
    pub(super) fn slice(&mut self, now: u64, cpu: u8, threads: &mut [Thread]) -> Option<u32> {
        let place = usize::from(cpu);
        self.cpus[place].slice = false;
        if self.queue.is_empty() {
            return None;
        }
        if now < self.cpus[place].from + self.quantum {
            self.set_slice(now, cpu);
            return None;
        }
        self.settle(now, cpu, threads);
        let id = self.cpus[place].thread?;
        self.involuntary += 1;
        self.queue.push_back(id);
        self.leave(now, cpu, threads)
    }

    /// Gives an idle or left processor to a thread.
    fn give(&mut self, now: u64, cpu: u8, id: u32, threads: &mut [Thread]) {
        self.idle &= !(1 << cpu);
        let held = &mut self.cpus[usize::from(cpu)];
        (held.thread, held.from, held.since) = (Some(id), now, now);
        threads[id as usize].on = Some(cpu);
        self.set(now, cpu, threads);
        if !self.queue.is_empty() {
            self.set_slice(now, cpu);
        }
    }

    fn set_slices(&mut self, now: u64) {
        (0..self.cpus.len()).for_each(|cpu| self.set_slice(now, cpu as u8));
    }

    fn set_slice(&mut self, now: u64, cpu: u8) {
        let held = &mut self.cpus[usize::from(cpu)];
        if !held.slice {
            held.slice = true;
            let at = now.max(held.from + self.quantum);
            self.alarms.push(Alarm::Slice { cpu, at });
        }
    }

    /// Counts the work that a processor's thread has done.
    fn settle(&mut self, now: u64, cpu: u8, threads: &mut [Thread]) {
        let held = &mut self.cpus[usize::from(cpu)];
        let Some(id) = held.thread else { return };
        if let Mode::Working(left) = &mut threads[id as usize].mode {
            let done = ((now - held.since) * held.rate).min(*left);
            *left -= done;
            self.worked += done;
        }
        held.since = now;
    }

    /// Says anew when the work of a processor's thread ends.
    fn set(&mut self, now: u64, cpu: u8, threads: &[Thread]) {
        let alone = self.idle & (1 << (cpu ^ 1)) != 0;
        let held = &mut self.cpus[usize::from(cpu)];
        held.generation += 1;
        held.rate = if alone { 100 } else { self.shared_percent };
        let Some(id) = held.thread else { return };
        if let Mode::Working(left) = threads[id as usize].mode {
            let at = now + left.div_ceil(held.rate);
            self.alarms.push(Alarm::End { cpu, generation: held.generation, at });
        }
    }
}
