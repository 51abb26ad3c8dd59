//! The queue pairs' timers: at most one each, the next one in front.

use towpath_base::Time;

const NOWHERE: u32 = u32::MAX;

/// A heap of times with the place of each queue pair in it, so that a timer can be moved. After
/// [`reserve`](Self::reserve) nothing allocates.
#[derive(Default)]
pub(crate) struct Timers {
    heap: Vec<(Time, u32)>,
    /// Where the queue pair of an index stands in the heap.
    places: Vec<u32>,
}

impl Timers {
    /// Makes room for the queue pair at `index`.
    pub(crate) fn reserve(&mut self, index: u32) {
        let count = index as usize + 1;
        if self.places.len() < count {
            self.places.resize(count, NOWHERE);
        }
        self.heap.reserve(self.places.len() - self.heap.len());
    }

    /// The next time, or [`Time::NEVER`].
    #[inline]
    pub(crate) fn next(&self) -> Time {
        self.heap.first().map_or(Time::NEVER, |&(at, _)| at)
    }

    /// Takes the next timer out, if it is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u32> {
        let &(_, index) = self.heap.first().filter(|&&(at, _)| at <= now)?;
        self.set(index, Time::NEVER);
        Some(index)
    }

    /// Moves the timer of a queue pair that room was made for; [`Time::NEVER`] disarms it.
    pub(crate) fn set(&mut self, index: u32, at: Time) {
        let Some(&place) = self.places.get(index as usize) else { return };
        let place = place as usize;
        match self.heap.get(place).map(|&(was, _)| was) {
            Some(was) if was == at => {}
            Some(_) if at == Time::NEVER => {
                self.places[index as usize] = NOWHERE;
                self.heap.swap_remove(place);
                if place < self.heap.len() {
                    self.settle(place);
                }
            }
            Some(_) => {
                self.heap[place].0 = at;
                self.settle(place);
            }
            None if at == Time::NEVER => {}
            None => {
                self.heap.push((at, index));
                self.settle(self.heap.len() - 1);
            }
        }
    }

    /// Moves what stands at `place` to where it belongs.
    fn settle(&mut self, mut place: usize) {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let smallest = children.min_by_key(|&child| self.heap[child]);
            let Some(child) = smallest.filter(|&child| self.heap[child] < self.heap[place]) else {
                break;
            };
            self.swap(place, child);
            place = child;
        }
        self.places[self.heap[place].1 as usize] = place as u32;
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            self.places[self.heap[place].1 as usize] = place as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use towpath_base::Prng;

    #[test]
    fn timers_come_out_in_the_order_of_their_last_setting() {
        let (seed, count) = (5, 50);
        println!("seed {seed}");
        let mut rng = Prng::new(seed);
        let (mut timers, mut model) = (Timers::default(), BTreeMap::new());
        timers.reserve(count - 1);
        for _ in 0..20_000 {
            let index = rng.below(u64::from(count)) as u32;
            let never = rng.chance(0.2);
            let at = if never { Time::NEVER } else { Time(1 + rng.below(1_000)) };
            timers.set(index, at);
            model.insert(index, at);
            let first = model.values().min().copied().unwrap_or(Time::NEVER);
            assert_eq!(timers.next(), first);
            if rng.chance(0.1) && first != Time::NEVER {
                let due = timers.pop_due(first).expect("the first is due");
                assert_eq!(model.insert(due, Time::NEVER), Some(first));
            }
            assert_eq!(timers.pop_due(Time(0)), None);
        }
    }
}
