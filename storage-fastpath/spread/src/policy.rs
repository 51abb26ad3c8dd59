//! How a file is spread.

use std::fmt;
use std::str::FromStr;
use towpath_ec::{Code, Shape, ShapeError};

/// Copies of a file at most.
const COPIES_MAX: usize = 7;

/// How a file is spread over servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// So many whole copies, 1 to 7, which the client writes itself.
    Flat(usize),
    /// Erasure-coded, by the client: `k` data parts and `m` parity parts, any `k` of which are
    /// enough.
    Coded(Shape),
}

/// Why a text is no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Another form.
    #[error("a policy is flat:COPIES or rs:DATA+PARITY, as in flat:3 or rs:6+3")]
    Form,
    /// Too many copies, or none.
    #[error("there may be 1 to {COPIES_MAX} copies, not {0}")]
    Copies(usize),
    /// Parts that cannot be.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

impl Policy {
    /// The servers that it needs, one for each part.
    #[must_use]
    pub fn parts(self) -> usize {
        match self {
            Self::Flat(copies) => copies,
            Self::Coded(shape) => shape.shards(),
        }
    }

    /// The parts that are enough to read the file.
    #[must_use]
    pub fn enough(self) -> usize {
        self.data()
    }

    /// The parts that a file is cut into, apart from those that are there for its safety.
    pub(crate) fn data(self) -> usize {
        match self {
            Self::Flat(_) => 1,
            Self::Coded(shape) => shape.k(),
        }
    }

    /// The code of it. Copies are one too: of one data shard each parity with the coefficient one
    /// would be a copy, but they are not made so; none.
    pub(crate) fn code(self) -> Option<Code> {
        match self {
            Self::Flat(_) => None,
            Self::Coded(shape) => Some(Code::new(shape)),
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let number = |text: &str| {
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<usize>().ok().filter(|_| is_plain).ok_or(PolicyError::Form)
        };
        match text.split_once(':') {
            Some(("flat", copies)) => match number(copies)? {
                copies @ 1..=COPIES_MAX => Ok(Self::Flat(copies)),
                copies => Err(PolicyError::Copies(copies)),
            },
            Some(("rs", shape)) => {
                let (k, m) = shape.split_once('+').ok_or(PolicyError::Form)?;
                Ok(Self::Coded(Shape::new(number(k)?, number(m)?)?))
            }
            _ => Err(PolicyError::Form),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat(copies) => write!(f, "flat:{copies}"),
            Self::Coded(shape) => write!(f, "rs:{}+{}", shape.k(), shape.m()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_from_its_text_and_nothing_else_is() {
        for text in ["flat:1", "flat:7", "rs:6+3", "rs:1+0", "rs:28+4"] {
            let policy: Policy = text.parse().expect("a policy");
            assert_eq!(policy.to_string(), text);
        }
        for wrong in ["", "flat", "flat:", "flat:+3", "ring:3", "rs:6", "rs:6+", "rs:6+3,x"] {
            assert_eq!(wrong.parse::<Policy>(), Err(PolicyError::Form), "{wrong}");
        }
        assert_eq!("flat:8".parse::<Policy>(), Err(PolicyError::Copies(8)));
        assert!(matches!("rs:0+3".parse::<Policy>(), Err(PolicyError::Shape(_))));
        assert!(matches!("rs:30+3".parse::<Policy>(), Err(PolicyError::Shape(_))));
    }
}
