//! Numbers for what an endpoint has: C programs name things by them, and a stale one is found out.

/// A place in a table, and how often it was used.
struct Slot<T> {
    life: u32,
    /// None while it is free, or while its value is [away](Table::take_out).
    value: Option<T>,
}

/// Values by number. A number has the place in its lower half and the place's life in the upper
/// one, which counts from 1: zero names nothing.
///
/// As large as what was in it at once: callers hold as many messages as they have credit for, and
/// as many buffers as there are.
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    live: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), live: 0 }
    }
}

impl<T> Table<T> {
    /// Puts a value in, and returns its number.
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        self.live += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { life: 1, value: None });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[place as usize];
        slot.value = Some(value);
        u64::from(slot.life) << 32 | u64::from(place)
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot<T>> {
        let (life, place) = ((id >> 32) as u32, id as u32 as usize);
        self.slots.get_mut(place).filter(|slot| slot.life == life)
    }

    /// The value of a number.
    pub(crate) fn at(&mut self, id: u64) -> Option<&mut T> {
        self.slot(id)?.value.as_mut()
    }

    /// The value of a number, which names nothing from now on.
    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        let value = self.take_out(id)?;
        self.forget(id);
        Some(value)
    }

    /// The value of a number that stays its own: [`put_back`](Self::put_back) or
    /// [`forget`](Self::forget) follows.
    pub(crate) fn take_out(&mut self, id: u64) -> Option<T> {
        self.slot(id)?.value.take()
    }

    /// Puts back what was taken out.
    pub(crate) fn put_back(&mut self, id: u64, value: T) {
        if let Some(slot) = self.slot(id) {
            slot.value = Some(value);
        }
    }

    /// The number of what was taken out names nothing from now on.
    pub(crate) fn forget(&mut self, id: u64) {
        let Some(slot) = self.slot(id) else { return };
        slot.value = None;
        // After four billion lives a place begins anew, with life 1.
        slot.life = slot.life.checked_add(1).unwrap_or(1);
        self.free.push(id as u32);
        self.live -= 1;
    }

    /// How many values it has.
    pub(crate) fn len(&self) -> usize {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_its_value_until_that_is_removed_and_never_another() {
        let mut table = Table::default();
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert_eq!((table.at(a).copied(), table.len()), (Some('a'), 2));
        assert_eq!(table.remove(a), Some('a'));
        let c = table.insert('c');
        assert_eq!((c as u32, table.remove(a), table.at(a).copied()), (a as u32, None, None));
        assert_eq!((table.remove(b), table.remove(c), table.len()), (Some('b'), Some('c'), 0));
        for wild in [0, 1, a, 1 << 32 | 99, u64::MAX] {
            assert_eq!(table.at(wild), None, "{wild}");
        }
    }

    #[test]
    fn what_is_taken_out_keeps_its_number() {
        let mut table = Table::default();
        let a = table.insert('a');
        assert_eq!(table.take_out(a), Some('a'));
        assert_eq!((table.at(a).copied(), table.take_out(a)), (None, None));
        assert_ne!(table.insert('b') as u32, a as u32, "its place is not free");
        table.put_back(a, 'A');
        assert_eq!(table.remove(a), Some('A'));
        table.put_back(a, 'x');
        assert_eq!(table.at(a), None);
    }
}
