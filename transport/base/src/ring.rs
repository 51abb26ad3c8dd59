//! A queue of fixed capacity, allocated once.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// A first-in first-out queue that never grows: a full ring gives the item back.
#[derive(Debug)]
pub struct Ring<T> {
    items: VecDeque<T>,
    capacity: usize,
}

impl<T> Ring<T> {
    /// An empty ring for `capacity` items.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { items: VecDeque::with_capacity(capacity), capacity }
    }

    /// Appends `item`, or gives it back when the ring is full.
    ///
    /// # Errors
    /// The item itself, when the ring is full.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.items.len() == self.capacity {
            return Err(item);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Takes the oldest item.
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// The oldest item.
    #[must_use]
    pub fn front(&self) -> Option<&T> {
        self.items.front()
    }

    /// The oldest item, to change in place.
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.items.front_mut()
    }

    /// From oldest to newest.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// How many items are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many more items fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity - self.items.len()
    }

    /// Empties the ring into a box, oldest first.
    pub fn drain_all(&mut self) -> Box<[T]> {
        self.items.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_gives_the_item_back_and_takes_one_again_after_a_pop() {
        let mut ring = Ring::new(2);
        assert_eq!((ring.push(1), ring.push(2), ring.push(3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!(ring.pop(), Some(1));
        assert_eq!((ring.room(), ring.push(3)), (1, Ok(())));
        assert_eq!(*ring.drain_all(), [2, 3]);
        assert!(ring.is_empty());
    }
}
