//! Slots that are reused but whose keys are not.

use alloc::vec::Vec;

/// A slot and the life of it that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    life: u32,
}

#[derive(Debug)]
struct Slot<T> {
    value: T,
    /// Odd while taken. Wraps after 2^31 lives of one slot: a key older than that is none.
    life: u32,
}

/// At most `limit` values, made on first need and kept for reuse with whatever memory they hold.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    limit: usize,
    /// Slots that were looked at to find those that are taken.
    #[cfg(test)]
    pub(crate) steps: core::cell::Cell<u64>,
}

impl<T: Default> Slots<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            limit,
            #[cfg(test)]
            steps: core::cell::Cell::new(0),
        }
    }

    /// Takes a slot: its key, and its value, which is whatever the last life left there.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<(Key, &mut T)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let slot = &mut self.slots[index as usize];
        slot.life = slot.life.wrapping_add(1);
        Some((Key { index, life: slot.life }, &mut slot.value))
    }

    /// Makes another slot, if there may be one more.
    #[cold]
    fn grow(&mut self) -> Option<u32> {
        let index = self.slots.len();
        if index == self.limit {
            return None;
        }
        self.slots.push(Slot { value: T::default(), life: 0 });
        Some(index as u32)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index as usize).filter(|s| s.life == key.life).map(|s| &s.value)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        (slot.life == key.life).then_some(&mut slot.value)
    }

    /// Ends the life of a slot; false when the key was already dead.
    pub(crate) fn free(&mut self, key: Key) -> bool {
        let Some(slot) = self.slots.get_mut(key.index as usize).filter(|s| s.life == key.life)
        else {
            return false;
        };
        slot.life = slot.life.wrapping_add(1);
        self.free.push(key.index);
        true
    }

    /// The keys of all taken slots.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let numbered = self.slots.iter().zip(0u32..);
        #[cfg(test)]
        let numbered = numbered.inspect(|_| self.steps.set(self.steps.get() + 1));
        numbered.filter(|(s, _)| s.life % 2 == 1).map(|(s, index)| Key { index, life: s.life })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_an_earlier_life_reaches_nothing() {
        let mut slots = Slots::<u32>::new(1);
        let (first, value) = slots.take().unwrap();
        *value = 7;
        assert!(slots.take().is_none(), "the limit holds");
        assert!(slots.free(first) && !slots.free(first));
        let (second, _) = slots.take().unwrap();
        assert_eq!((slots.get(first), slots.get(second)), (None, Some(&7)));
        assert_eq!(slots.keys().collect::<Vec<_>>(), [second]);
    }
}
