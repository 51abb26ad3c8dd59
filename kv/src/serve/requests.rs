//! What is said on a connection in the store's own form: requests one after the other.

use super::{Dialogue, Next, Taken};
use crate::execute::{Caller, Service};
use crate::limits::OUTPUT_PAUSE_BYTES;
use crate::wire::{Ask, Failure, Method, Reply, ReplyHead, Request, WireError};
use towpath_base::Time;

/// One connection of the store's own form.
#[derive(Debug)]
pub struct RequestDialogue {
    service: Service,
    caller: Caller,
}

impl RequestDialogue {
    /// Serves this service.
    #[must_use]
    pub fn new(service: Service) -> Self {
        Self { service, caller: Caller::default() }
    }
}

impl Dialogue for RequestDialogue {
    fn take(&mut self, input: &[u8], now: Time, out: &mut Vec<u8>) -> Taken {
        let mut taken = Taken { used: 0, requests: 0, next: Next::Paused };
        while out.len() < OUTPUT_PAUSE_BYTES {
            let (request, len) = match Request::parse(&input[taken.used..]) {
                Ok(parsed) => parsed,
                Err(WireError::Short(needed)) => {
                    return Taken { next: Next::More { needed }, ..taken };
                }
                Err(error) => {
                    refuse(error, out);
                    return Taken { next: Next::Malformed, ..taken };
                }
            };
            self.service.answer(&request, &mut self.caller, now, out);
            taken.used += len;
            taken.requests += 1;
            if request.ask == Ask::Exit {
                return Taken { next: Next::Close, ..taken };
            }
        }
        taken
    }
}

/// Answers the request that a message is; whether it is one.
pub(crate) fn answer_message(
    service: &Service,
    bytes: &[u8],
    caller: &mut Caller,
    now: Time,
    out: &mut Vec<u8>,
) -> bool {
    let error = match Request::parse(bytes) {
        Ok((request, len)) if len == bytes.len() => {
            service.answer(&request, caller, now, out);
            return true;
        }
        Ok(_) => WireError::Unexpected("length"),
        Err(error) => error,
    };
    refuse(error, out);
    false
}

/// The reply to what cannot be read. Nobody knows whose it was.
fn refuse(error: WireError, out: &mut Vec<u8>) {
    let failure = match error {
        WireError::Method(_) => Failure::UnknownMethod,
        _ => Failure::Malformed,
    };
    let head = ReplyHead { client: 0, sequence: 0, method: Method::Unknown };
    Reply { head, answer: Err(failure) }.emit(out);
}
