//! Numbered places for what the worker waits for: the numbers are the tokens that the endpoint
//! knows.

/// Places, of which those that were left are taken again first.
pub(crate) struct Places<T> {
    taken: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { taken: Vec::new(), free: Vec::new() }
    }
}

impl<T> Places<T> {
    /// The number of the place that is taken next.
    pub(crate) fn next(&self) -> u64 {
        self.free.last().copied().unwrap_or(self.taken.len()) as u64
    }

    /// Takes the [next](Self::next) place.
    pub(crate) fn put(&mut self, item: T) {
        match self.free.pop() {
            Some(place) => self.taken[place] = Some(item),
            None => self.taken.push(Some(item)),
        }
    }

    /// Leaves a place; what was there.
    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        let place = usize::try_from(number).ok()?;
        let item = self.taken.get_mut(place)?.take()?;
        self.free.push(place);
        Some(item)
    }

    /// What is in all of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.taken.iter().flatten()
    }

    /// Leaves all places.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        self.taken.drain(..).flatten()
    }
}
