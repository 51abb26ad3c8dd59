//! Units of a stripe, made of others and held against them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use towpath_ec::{Code, Decoder, ShardSet};

use crate::error::SpreadError;
use crate::policy::Policy;

/// Units of a stripe, by part, equally long; or what stands for them, where that is linear.
pub(crate) struct Units {
    pub(crate) of: Vec<Option<Vec<u8>>>,
}

impl Units {
    pub(crate) fn new(parts: usize) -> Self {
        Self { of: vec![None; parts] }
    }

    /// The parts whose units are here.
    pub(crate) fn present(&self) -> ShardSet {
        let here = self.of.iter().enumerate().filter(|(_, unit)| unit.is_some());
        here.map(|(part, _)| part).collect()
    }

    /// Those of some parts alone.
    fn of_parts(&self, parts: ShardSet) -> Self {
        let of = |part: usize| if parts.contains(part) { self.of[part].clone() } else { None };
        Self { of: (0..self.of.len()).map(of).collect() }
    }
}

/// Makes units by a policy.
pub(crate) struct Coder {
    enough: usize,
    code: Option<Code>,
    decoders: HashMap<(ShardSet, ShardSet), Decoder>,
}

impl Coder {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { enough: policy.enough(), code: policy.code(), decoders: HashMap::new() }
    }

    /// Whether parts differ from each other.
    pub(crate) fn has_code(&self) -> bool {
        self.code.is_some()
    }

    /// Makes units of others, of `bytes` each; there are enough of them.
    pub(crate) fn make(
        &mut self,
        bytes: usize,
        wanted: ShardSet,
        units: &mut Units,
    ) -> Result<(), SpreadError> {
        let present = units.present();
        let wanted = wanted.without(present);
        let Some(code) = &self.code else {
            let copy = units.of.iter().flatten().next().cloned();
            wanted.iter().for_each(|part| units.of[part].clone_from(&copy));
            return Ok(());
        };
        let failed = |error: &dyn std::fmt::Display| SpreadError::Code(error.to_string());
        let key = (present, wanted);
        let decoder = match self.decoders.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let made = Decoder::new(code, present, wanted);
                place.insert(made.map_err(|error| failed(&error))?)
            }
        };
        let mut made = vec![vec![0; bytes]; wanted.len()];
        {
            let from: Vec<&[u8]> = decoder
                .sources()
                .iter()
                .map(|part| units.of[part].as_deref().unwrap_or(&[]))
                .collect();
            let mut into: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            decoder.decode(&from, &mut into).map_err(|error| failed(&error))?;
        }
        wanted.iter().zip(made).for_each(|(part, unit)| units.of[part] = Some(unit));
        Ok(())
    }

    /// Whether units belong together; none where there are no more of them than are needed to make
    /// all.
    pub(crate) fn fits(
        &mut self,
        bytes: usize,
        units: &Units,
    ) -> Result<Option<bool>, SpreadError> {
        let present = units.present();
        let first: ShardSet = present.iter().take(self.enough).collect();
        let others = present.without(first);
        if first.len() < self.enough || others.is_empty() {
            return Ok(None);
        }
        let mut made = units.of_parts(first);
        self.make(bytes, others, &mut made)?;
        Ok(Some(others.iter().all(|part| made.of[part] == units.of[part])))
    }

    /// The one part whose unit does not belong to the others, which belong together and are more
    /// than are needed to make all; none where no part is the only one of that kind.
    pub(crate) fn odd_one(
        &mut self,
        bytes: usize,
        units: &Units,
    ) -> Result<Option<usize>, SpreadError> {
        let (present, mut found) = (units.present(), None);
        for part in present.iter() {
            let others = units.of_parts(present.without([part].into_iter().collect()));
            if self.fits(bytes, &others)? == Some(true) && found.replace(part).is_some() {
                return Ok(None);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(policy: &str, data: &[&[u8]]) -> (Coder, Units) {
        let policy: Policy = policy.parse().expect("a policy");
        let mut units = Units::new(policy.parts());
        for (unit, data) in units.of.iter_mut().zip(data) {
            *unit = Some(data.to_vec());
        }
        let mut coder = Coder::new(policy);
        let all: ShardSet = (0..policy.parts()).collect();
        coder.make(data[0].len(), all, &mut units).expect("enough are there");
        (coder, units)
    }

    #[test]
    fn the_odd_one_out_is_found_where_the_others_are_more_than_enough() {
        let two: &[&[u8]] = &[b"one", b"two"];
        for (policy, data) in [("rs:2+2", two), ("rs:2+3", two), ("flat:3", &[b"one"])] {
            let (mut coder, whole) = units(policy, data);
            assert_eq!(coder.fits(3, &whole).expect("it fits"), Some(true));
            for part in 0..whole.of.len() {
                let mut wrong = Units { of: whole.of.clone() };
                wrong.of[part].as_mut().expect("it is there")[1] ^= 4;
                assert_eq!(coder.fits(3, &wrong).expect("it fits"), Some(false));
                assert_eq!(coder.odd_one(3, &wrong).expect("it fits"), Some(part), "{policy}");
            }
        }
        // Any part of it could be the wrong one.
        for (policy, data) in [("rs:2+1", two), ("flat:2", &[b"one"])] {
            let (mut coder, mut wrong) = units(policy, data);
            wrong.of[0].as_mut().expect("it is there")[1] ^= 4;
            assert_eq!(coder.fits(3, &wrong).expect("it fits"), Some(false));
            assert_eq!(coder.odd_one(3, &wrong).expect("it fits"), None, "{policy}");
        }
        let (mut coder, mut few) = units("rs:2+1", two);
        few.of[0] = None;
        assert_eq!(coder.fits(3, &few).expect("it fits"), None);
    }
}
