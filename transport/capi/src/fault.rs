//! Why a call failed: a code that a program can act on, and a text for people.

use crate::ffi::tow_status;
use std::error::Error;
use std::fmt::Write as _;
use towpath_transport::{
    AllocError, ChannelError, ConnectError, EndpointError, LaneError, ListenError, MemoryError,
    OpError, PollFdError, Refusal, SubmitError,
};

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) status: tow_status,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(status: tow_status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::new(tow_status::TOW_E_NULL, format!("{what} is NULL"))
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(tow_status::TOW_E_ARGUMENT, text)
    }

    pub(crate) fn stale(what: &str) -> Self {
        Self::new(
            tow_status::TOW_E_STALE,
            format!("this {what} is not, or no longer, one of this endpoint"),
        )
    }

    fn of(status: tow_status, error: &dyn Error) -> Self {
        Self::new(status, whole_text(error))
    }
}

/// What an error says, with what caused it.
fn whole_text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Some errors say what caused them themselves.
        if !text.contains(&more) {
            // Writing to a string does not fail.
            let _ = write!(text, ": {more}");
        }
        cause = error.source();
    }
    text
}

impl From<EndpointError> for Fault {
    fn from(error: EndpointError) -> Self {
        let status = match &error {
            EndpointError::Memory(_) => tow_status::TOW_E_NO_MEMORY,
            EndpointError::Mtu { .. } | EndpointError::TooLarge { .. } => {
                tow_status::TOW_E_ARGUMENT
            }
            EndpointError::TooManyRegions { .. } => tow_status::TOW_E_LIMIT,
            EndpointError::NoCarrier { .. } => tow_status::TOW_E_UNSUPPORTED,
            _ => tow_status::TOW_E_SYSTEM,
        };
        Self::of(status, &error)
    }
}

impl From<ListenError> for Fault {
    fn from(error: ListenError) -> Self {
        let status = match &error {
            ListenError::TooMany { .. } => tow_status::TOW_E_LIMIT,
            ListenError::AddressNotLocal(_) => tow_status::TOW_E_ARGUMENT,
            _ => tow_status::TOW_E_SYSTEM,
        };
        Self::of(status, &error)
    }
}

impl From<&ConnectError> for Fault {
    fn from(error: &ConnectError) -> Self {
        let status = match error {
            ConnectError::TooMany { .. } => tow_status::TOW_E_LIMIT,
            ConnectError::Dial { .. } | ConnectError::Broken { .. } => {
                tow_status::TOW_E_UNREACHABLE
            }
            ConnectError::Timeout { .. } => tow_status::TOW_E_TIMEOUT,
            ConnectError::Full { .. } | ConnectError::Refused { refusal: Refusal::Full, .. } => {
                tow_status::TOW_E_FULL
            }
            ConnectError::Local { .. } => tow_status::TOW_E_SYSTEM,
            _ => tow_status::TOW_E_REFUSED,
        };
        Self::of(status, error)
    }
}

impl From<ChannelError> for Fault {
    fn from(error: ChannelError) -> Self {
        use towpath_transport::OpenError;
        let status = match error {
            ChannelError::NoSuchLink | ChannelError::Link(OpenError::Down) => {
                tow_status::TOW_E_STALE
            }
            ChannelError::Link(OpenError::NotOpen) => tow_status::TOW_E_NOT_OPEN,
            _ => tow_status::TOW_E_LIMIT,
        };
        Self::of(status, &error)
    }
}

impl From<SubmitError> for Fault {
    fn from(error: SubmitError) -> Self {
        let status = match error {
            SubmitError::NoSuchLink | SubmitError::ShutDown => tow_status::TOW_E_STALE,
            SubmitError::NotOpen(_) => tow_status::TOW_E_NOT_OPEN,
            SubmitError::TooLong { .. } => tow_status::TOW_E_TOO_LONG,
            SubmitError::EmptySegment | SubmitError::NotRegistered { .. } => {
                tow_status::TOW_E_ARGUMENT
            }
            _ => tow_status::TOW_E_FULL,
        };
        Self::of(status, &error)
    }
}

impl From<AllocError> for Fault {
    fn from(error: AllocError) -> Self {
        let status = match error {
            AllocError::TooLong { .. } => tow_status::TOW_E_TOO_LONG,
            AllocError::AllOut { .. } => tow_status::TOW_E_NO_BUFFER,
            _ => tow_status::TOW_E_NO_MEMORY,
        };
        Self::of(status, &error)
    }
}

impl From<MemoryError> for Fault {
    fn from(error: MemoryError) -> Self {
        let status = match error {
            MemoryError::OutOfMemory { .. } => tow_status::TOW_E_NO_MEMORY,
            _ => tow_status::TOW_E_ARGUMENT,
        };
        Self::of(status, &error)
    }
}

impl From<LaneError> for Fault {
    fn from(error: LaneError) -> Self {
        let status = match error {
            LaneError::NoSuchLink | LaneError::Op(OpError::LinkDown | OpError::NoSuchGrant) => {
                tow_status::TOW_E_STALE
            }
            LaneError::TooManyLanes { .. } => tow_status::TOW_E_LIMIT,
            LaneError::Op(OpError::Full { .. }) => tow_status::TOW_E_FULL,
            LaneError::Op(OpError::Rights { .. } | OpError::Range { .. }) => {
                tow_status::TOW_E_DENIED
            }
            LaneError::Memory(_) => tow_status::TOW_E_NO_MEMORY,
            LaneError::Verb(_) => tow_status::TOW_E_SYSTEM,
            _ => tow_status::TOW_E_ARGUMENT,
        };
        Self::of(status, &error)
    }
}

impl From<PollFdError> for Fault {
    fn from(error: PollFdError) -> Self {
        let status = match &error {
            PollFdError::System(_) => tow_status::TOW_E_SYSTEM,
            _ => tow_status::TOW_E_UNSUPPORTED,
        };
        Self::of(status, &error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_what_caused_it_once() {
        let source = std::io::Error::other("the cable is out");
        let addr = ([127, 0, 0, 1], 7).into();
        let fault = Fault::from(&ConnectError::Dial { addr, source });
        assert_eq!(fault.status, tow_status::TOW_E_UNREACHABLE);
        assert!(fault.text.ends_with("is the peer listening there?: the cable is out"));
        let fault = Fault::from(LaneError::Op(OpError::Misaligned));
        assert_eq!(fault.status, tow_status::TOW_E_ARGUMENT);
        assert_eq!(fault.text, OpError::Misaligned.to_string());
    }
}
