//! How a file is spread.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use towpath_ec::{Code, Shape, ShapeError};
use towpath_fastpath::{ROUTE_MAX, Route, RouteError, RouteKind};

/// Copies of a file at most.
pub(crate) const COPIES_MAX: usize = ROUTE_MAX;

/// How a file is spread over servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// So many whole copies, 1 to 7, which the client writes itself.
    Flat(usize),
    /// So many whole copies, 1 to 7, which servers pass on one to the next.
    Ring(usize),
    /// So many whole copies, 1 to 7, which each server passes on to two.
    Tree(usize),
    /// Copies that servers pass on, of which the first ones are enough for an answer.
    Acked(Acked),
    /// Erasure-coded, by the servers: the client sends each of `k` data parts once, and those that
    /// have them pass them on to those that have the `m` parity parts.
    Triec(Shape),
    /// Erasure-coded, by the client: `k` data parts and `m` parity parts, any `k` of which are
    /// enough.
    Coded(Shape),
}

/// Copies along a ring or tree, of which the first ones are enough for an answer: the others are
/// made afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Acked {
    is_tree: bool,
    copies: usize,
    enough: usize,
}

/// Why a text is no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Another form.
    #[error(
        "a policy is flat:COPIES, ring:COPIES, tree:COPIES, one of these two with ,ack:COPIES, \
         rs:DATA+PARITY or rs:DATA+PARITY,triec, as in ring:3 or rs:6+3"
    )]
    Form,
    /// Too many copies, or none.
    #[error("there may be 1 to {COPIES_MAX} copies, not {0}")]
    Copies(usize),
    /// More copies that are enough than there are, or none.
    #[error("1 to {copies} copies may be enough for an answer, not {given}")]
    Acked {
        /// There are.
        copies: usize,
        /// Given.
        given: usize,
    },
    /// Parts that cannot be.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

impl Policy {
    /// The servers that it needs, one for each part.
    #[must_use]
    pub fn parts(self) -> usize {
        match self {
            Self::Flat(copies) | Self::Ring(copies) | Self::Tree(copies) => copies,
            Self::Acked(acked) => acked.copies,
            Self::Coded(shape) | Self::Triec(shape) => shape.shards(),
        }
    }

    /// The parts that are enough to read the file.
    #[must_use]
    pub fn enough(self) -> usize {
        self.data()
    }

    /// The first parts, on whose servers all is durable when it is answered: all of them, or those
    /// that `ack` says.
    #[must_use]
    pub fn acked(self) -> usize {
        match self {
            Self::Acked(acked) => acked.enough,
            _ => self.parts(),
        }
    }

    /// The parts that a file is cut into, apart from those that are there for its safety.
    pub(crate) fn data(self) -> usize {
        match self {
            Self::Flat(_) | Self::Ring(_) | Self::Tree(_) | Self::Acked(_) => 1,
            Self::Coded(shape) | Self::Triec(shape) => shape.k(),
        }
    }

    /// How servers pass on what is written; none where the client writes each part.
    #[must_use]
    pub fn route(self) -> Option<RouteKind> {
        match self {
            Self::Ring(_) => Some(RouteKind::Ring),
            Self::Tree(_) => Some(RouteKind::Tree),
            Self::Acked(Acked { is_tree: false, .. }) => Some(RouteKind::Ring),
            Self::Acked(Acked { is_tree: true, .. }) => Some(RouteKind::Tree),
            Self::Triec(_) => Some(RouteKind::Stripe),
            Self::Flat(_) | Self::Coded(_) => None,
        }
    }

    /// Along which servers its units go; none where the client sends each part.
    pub(crate) fn routes(self, places: &[SocketAddr]) -> Result<Vec<Arc<Route>>, RouteError> {
        let data = self.data() as u8;
        let routes: Result<Vec<Route>, RouteError> = match self.route() {
            None => return Ok(Vec::new()),
            Some(RouteKind::Stripe) => {
                (0..data).map(|rank| Route::stripe(rank, data, places)).collect()
            }
            Some(kind) => Route::new(kind, places)
                .and_then(|route| route.acked_by(self.acked() as u8))
                .map(|route| vec![route]),
        };
        Ok(routes?.into_iter().map(Arc::new).collect())
    }

    /// The code of it; none for copies, which are made without one.
    pub(crate) fn code(self) -> Option<Code> {
        match self {
            Self::Flat(_) | Self::Ring(_) | Self::Tree(_) | Self::Acked(_) => None,
            Self::Coded(shape) | Self::Triec(shape) => Some(Code::new(shape)),
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
            Some((way @ ("flat" | "ring" | "tree"), copies)) => {
                let (copies, enough) = match copies.split_once(",ack:") {
                    Some((copies, enough)) if way != "flat" => (copies, Some(number(enough)?)),
                    _ => (copies, None),
                };
                let copies = number(copies)?;
                if !(1..=COPIES_MAX).contains(&copies) {
                    return Err(PolicyError::Copies(copies));
                }
                if let Some(enough) = enough.filter(|enough| *enough != copies) {
                    if !(1..copies).contains(&enough) {
                        return Err(PolicyError::Acked { copies, given: enough });
                    }
                    return Ok(Self::Acked(Acked { is_tree: way == "tree", copies, enough }));
                }
                Ok(match way {
                    "flat" => Self::Flat(copies),
                    "ring" => Self::Ring(copies),
                    _ => Self::Tree(copies),
                })
            }
            Some(("rs", shape)) => {
                let (shape, by) = match shape.split_once(',') {
                    None => (shape, Self::Coded as fn(Shape) -> Self),
                    Some((shape, "triec")) => (shape, Self::Triec as fn(Shape) -> Self),
                    Some(_) => return Err(PolicyError::Form),
                };
                let (k, m) = shape.split_once('+').ok_or(PolicyError::Form)?;
                Ok(by(Shape::new(number(k)?, number(m)?)?))
            }
            _ => Err(PolicyError::Form),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat(copies) => write!(f, "flat:{copies}"),
            Self::Ring(copies) => write!(f, "ring:{copies}"),
            Self::Tree(copies) => write!(f, "tree:{copies}"),
            Self::Acked(Acked { is_tree, copies, enough }) => {
                let way = if *is_tree { "tree" } else { "ring" };
                write!(f, "{way}:{copies},ack:{enough}")
            }
            Self::Coded(shape) => write!(f, "rs:{}+{}", shape.k(), shape.m()),
            Self::Triec(shape) => write!(f, "rs:{}+{},triec", shape.k(), shape.m()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_from_its_text_and_nothing_else_is() {
        for text in
            ["flat:1", "flat:7", "ring:3", "tree:7", "rs:6+3", "rs:1+0", "rs:28+4", "rs:6+3,triec"]
        {
            let policy: Policy = text.parse().expect("a policy");
            assert_eq!(policy.to_string(), text);
        }
        for wrong in ["", "flat", "flat:", "flat:+3", "chain:3", "rs:6", "rs:6+", "rs:6+3,x"] {
            assert_eq!(wrong.parse::<Policy>(), Err(PolicyError::Form), "{wrong}");
        }
        for text in ["ring:3,ack:2", "tree:7,ack:1"] {
            let policy: Policy = text.parse().expect("a policy");
            assert_eq!(policy.to_string(), text);
            assert!(policy.acked() < policy.parts());
        }
        assert_eq!("ring:3,ack:3".parse(), Ok(Policy::Ring(3)), "all have one form");
        for (wrong, given) in [("ring:3,ack:4", 4), ("tree:3,ack:0", 0)] {
            let error = PolicyError::Acked { copies: 3, given };
            assert_eq!(wrong.parse::<Policy>(), Err(error));
        }
        for wrong in ["flat:3,ack:2", "ring:3,ack:", "ring:3,ack:x", "rs:6+3,ack:2", "ring:3,x"] {
            assert_eq!(wrong.parse::<Policy>(), Err(PolicyError::Form), "{wrong}");
        }
        for many in ["flat:8", "ring:8", "tree:8"] {
            assert_eq!(many.parse::<Policy>(), Err(PolicyError::Copies(8)));
        }
        assert!(matches!("rs:0+3".parse::<Policy>(), Err(PolicyError::Shape(_))));
        assert!(matches!("rs:30+3".parse::<Policy>(), Err(PolicyError::Shape(_))));
    }
}
