//! What a store does, whatever its table is.

mod buckets;
mod gate;
mod growth;
mod ring;
mod room;
mod table;

pub use buckets::Buckets;
pub use gate::{Gate, Pass};
pub use room::Figures;
pub use table::Table;

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::published::Published;
use smallvec::SmallVec;
use std::fmt::Debug;
use std::sync::Arc;
use towpath_base::Time;

/// A key or a value. A short one lies in its entry, which saves the look at memory elsewhere that
/// most of the time of an operation goes to.
pub type Bytes = SmallVec<[u8; 24]>;

/// What becomes of entries when there is no room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// They stay, and what needs room is refused.
    Never,
    /// Those that were not used for long go: approximately the least recently used first.
    LeastRecentlyUsed,
}

/// When a value is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Whether there is one or not.
    Always,
    /// Only where there is none.
    Absent,
    /// Only where there is one.
    Present,
}

/// How a value is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// On which condition.
    pub when: When,
    /// From when on it is not there any more; [`Time::NEVER`] where it stays.
    pub expires: Time,
}

impl Put {
    /// On no condition, and for ever.
    pub const ALWAYS: Self = Self { when: When::Always, expires: Time::NEVER };
}

/// What a key has.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// Its value.
    pub value: &'a [u8],
    /// From when on it is not there any more.
    pub expires: Time,
}

/// What is to become of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It stays as it is.
    Leave,
    /// It has this value.
    Put {
        /// The value.
        value: Bytes,
        /// From when on it is not there any more.
        expires: Time,
    },
    /// It has none.
    Remove,
}

/// Why a change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no room, and nothing may go, or not enough.
    #[error("the store is full")]
    Full,
    /// The key is longer than any.
    #[error("a key has at most {KEY_BYTES_MAX} bytes")]
    KeyTooLong,
    /// The value is longer than any.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes")]
    ValueTooLong,
}

/// Why a number was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncrError {
    /// The value is no decimal number of 64 bits.
    #[error("the value is not a whole number of 64 bits")]
    NotANumber,
    /// The sum is none.
    #[error("the sum is beyond 64 bits")]
    Overflow,
    /// The sum cannot be kept.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// A table of keys and values that threads share. Each operation on a key takes effect at one
/// moment between its begin and its end.
///
/// `now` is of one clock for all calls; an entry is not there from the time on at which it expires.
pub trait Store: Debug + Send + Sync {
    /// Gives the value of a key to `take`, once; whether there is one.
    fn get(&self, key: &[u8], now: Time, take: &mut dyn FnMut(&[u8])) -> bool;

    /// Lets `decide` say what is to become of a key. It is asked again when another thread was
    /// faster, or when room had to be made, and its last answer is what was done. It answers the
    /// same for the same.
    ///
    /// # Errors
    /// [`Refused`], and the key is as it was.
    fn change(
        &self,
        key: &[u8],
        now: Time,
        decide: &mut dyn FnMut(Option<Held<'_>>) -> Step,
    ) -> Result<(), Refused>;

    /// Gives keys and values to `take`, in no order, until it returns false. Entries that change
    /// meanwhile may be missing.
    fn each(&self, now: Time, take: &mut dyn FnMut(&[u8], &[u8]) -> bool);

    /// Removes the entries that were there when it began.
    fn clear(&self);

    /// Removes what has expired; how many.
    fn sweep(&self, now: Time) -> u64;

    /// What the store has come to.
    fn figures(&self) -> Figures;

    /// What clients may read of it by themselves; none where nothing is published.
    fn published(&self) -> Option<&Arc<Published>> {
        None
    }

    /// By which several operations are one. A thread that serves requests enters it, for each or
    /// for some.
    fn gate(&self) -> &Gate;

    /// Bounds its bytes anew. What is there stays until room is needed.
    fn set_bytes_max(&self, bytes_max: u64);

    /// Puts a value; whether the condition held.
    ///
    /// # Errors
    /// [`Refused`], and the key is as it was.
    fn set(&self, key: &[u8], value: &[u8], put: Put, now: Time) -> Result<bool, Refused> {
        let mut is_put = false;
        self.change(key, now, &mut |held| {
            is_put = match put.when {
                When::Always => true,
                When::Absent => held.is_none(),
                When::Present => held.is_some(),
            };
            match is_put {
                true => Step::Put { value: value.into(), expires: put.expires },
                false => Step::Leave,
            }
        })?;
        Ok(is_put)
    }

    /// Removes a key; whether it was there.
    fn del(&self, key: &[u8], now: Time) -> bool {
        let mut was_there = false;
        // Nothing is refused of what needs no room.
        let _ = self.change(key, now, &mut |held| {
            was_there = held.is_some();
            if was_there { Step::Remove } else { Step::Leave }
        });
        was_there
    }

    /// Adds to the decimal number that a key has, or to 0; the sum. It expires as before.
    ///
    /// # Errors
    /// [`IncrError`], and the key is as it was.
    fn incr(&self, key: &[u8], by: i64, now: Time) -> Result<i64, IncrError> {
        let mut sum = Ok(0);
        self.change(key, now, &mut |held| {
            let (number, expires) = match held {
                Some(held) => (number_of(held.value), held.expires),
                None => (Some(0), Time::NEVER),
            };
            sum = match number.map(|number| number.checked_add(by)) {
                Some(Some(sum)) => Ok(sum),
                Some(None) => Err(IncrError::Overflow),
                None => Err(IncrError::NotANumber),
            };
            match sum {
                Ok(sum) => Step::Put { value: sum.to_string().as_bytes().into(), expires },
                Err(_) => Step::Leave,
            }
        })?;
        sum
    }
}

/// A number as `to_string` writes it, and nothing else: the sum is written like it again.
fn number_of(value: &[u8]) -> Option<i64> {
    let text = str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// What a key and a value must be to be kept.
fn check(key: &[u8], value: &[u8]) -> Result<(), Refused> {
    match () {
        () if key.len() > KEY_BYTES_MAX => Err(Refused::KeyTooLong),
        () if value.len() > VALUE_BYTES_MAX => Err(Refused::ValueTooLong),
        () => Ok(()),
    }
}
