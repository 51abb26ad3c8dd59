//! Admission (section II C): whether a reservation can be kept beside those that there are.

use core::fmt;
use towpath_base::Nanos;

/// What a client asks for, or has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Tokens that it gets in each period if it can use them.
    pub reservation: u32,
    /// Tokens that it may use in a period altogether.
    pub limit: Option<u32>,
    /// What it gets of the pool beside others; zero counts as 1.
    pub weight: u16,
}

impl Share {
    /// A reservation without a limit, of weight 1.
    #[must_use]
    pub fn reserved(reservation: u32) -> Self {
        Self { reservation, limit: None, weight: 1 }
    }
}

/// What a server can do, in tokens a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// All clients together (the paper's C_G).
    pub all: u32,
    /// One client by itself (C_L).
    pub one: u32,
}

/// Why a client is not admitted. Each says what would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AdmissionError {
    /// All reservations together would exceed what the server can do.
    Aggregate {
        /// What is left to reserve.
        left: u32,
        /// What one client can do.
        one: u32,
    },
    /// One client cannot do so much.
    Local {
        /// What is left to reserve.
        left: u32,
        /// What one can do.
        one: u32,
    },
    /// The limit is below the reservation.
    LimitBelowReservation,
    /// There are as many clients as there may be.
    Full {
        /// How many.
        max: usize,
    },
}

impl fmt::Display for AdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aggregate { left, one } => write!(
                f,
                "the other reservations leave {left} tokens a period, and one client can use {one}"
            ),
            Self::Local { left, one } => write!(
                f,
                "one client can use {one} tokens a period, and the other reservations leave {left}"
            ),
            Self::LimitBelowReservation => write!(f, "the limit is below the reservation"),
            Self::Full { max } => write!(f, "there are {max} clients already"),
        }
    }
}

impl core::error::Error for AdmissionError {}

/// Whether one more client can be promised its share, where the others have reserved `reserved`.
///
/// # Errors
/// [`AdmissionError`].
pub fn admit(share: &Share, reserved: u64, capacities: Capacities) -> Result<(), AdmissionError> {
    if share.limit.is_some_and(|limit| limit < share.reservation) {
        return Err(AdmissionError::LimitBelowReservation);
    }
    let left = u64::from(capacities.all).saturating_sub(reserved) as u32;
    let one = capacities.one;
    if share.reservation > one {
        return Err(AdmissionError::Local { left, one });
    }
    if share.reservation > left {
        return Err(AdmissionError::Aggregate { left, one });
    }
    Ok(())
}

/// Whether a client that has enough to do can still get what is reserved for it: Definition 2's
/// local constraint, R - N <= (T - t) C_L.
#[must_use]
pub fn is_within_reach(left: u32, time_left: Nanos, period: Nanos, one: u32) -> bool {
    u128::from(left) * u128::from(period.0) <= u128::from(one) * u128::from(time_left.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITIES: Capacities = Capacities { all: 1_570_000, one: 400_000 };

    #[test]
    fn what_is_left_is_said_for_all_and_for_one() {
        let ask =
            |reservation, reserved| admit(&Share::reserved(reservation), reserved, CAPACITIES);
        assert_eq!(ask(400_000, 1_170_000), Ok(()));
        assert_eq!(ask(400_001, 0), Err(AdmissionError::Local { left: 1_570_000, one: 400_000 }));
        assert_eq!(
            ask(1_001, 1_569_000),
            Err(AdmissionError::Aggregate { left: 1_000, one: 400_000 })
        );
        assert_eq!(ask(1, u64::MAX), Err(AdmissionError::Aggregate { left: 0, one: 400_000 }));
        let share = Share { limit: Some(9), ..Share::reserved(10) };
        assert_eq!(admit(&share, 0, CAPACITIES), Err(AdmissionError::LimitBelowReservation));
    }

    #[test]
    fn the_second_example_of_the_paper_is_out_of_reach_in_half_of_the_period() {
        let second = Nanos::from_secs(1);
        let half = Nanos(second.0 / 2);
        assert!(is_within_reach(40, second, second, 50));
        assert!(!is_within_reach(30, half, second, 50));
        assert!(is_within_reach(25, half, second, 50));
    }
}
