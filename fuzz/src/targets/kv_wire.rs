//! The key-value store's own form: requests, replies, listings, and what is answered to them.

use crate::class;
use crate::input::coarse;
use std::mem::discriminant;
use std::sync::Arc;
use towpath_base::Time;
use towpath_kv::limits::STORE_BYTES_MIN;
use towpath_kv::wire::{Answer, Listing, Reply, Request, WireError};
use towpath_kv::{Caller, Evict, Service, Table};

/// Requests one after the other, as a stream has them; each is answered.
pub(crate) fn requests(input: &[u8]) -> u64 {
    let service = Service::new(Arc::new(Table::new(STORE_BYTES_MIN, Evict::Never)));
    let (mut rest, mut caller, mut classes) = (input, Caller::default(), vec![]);
    loop {
        let (request, len) = match Request::parse(rest) {
            Ok(parsed) => parsed,
            Err(error) => {
                classes.push(error_class(error, rest.len()));
                return class(&classes);
            }
        };
        let (mut emitted, mut out) = (Vec::new(), Vec::new());
        request.emit(&mut emitted);
        assert_eq!(emitted, rest[..len]);
        service.answer(&request, &mut caller, Time::ZERO, &mut out);
        let (reply, reply_len) = Reply::parse(&out).expect("our own reply");
        assert_eq!(reply_len, out.len());
        assert_eq!(reply.head, (&request).into());
        classes.push(answer_class(&reply));
        classes.truncate(4);
        rest = &rest[len..];
    }
}

/// A reply, and the listing that it may have.
pub(crate) fn reply(input: &[u8]) -> u64 {
    let (reply, len) = match Reply::parse(input) {
        Ok(parsed) => parsed,
        Err(error) => return class(&[1, error_class(error, input.len())]),
    };
    let mut emitted = Vec::new();
    reply.emit(&mut emitted);
    assert_eq!(emitted, input[..len]);
    let Ok(Answer::Value(value)) = reply.answer else { return answer_class(&reply) };
    let entries = Listing::parse(value).map(|listing| {
        let bytes = |(key, value): (&[u8], &[u8])| 6 + key.len() + value.len();
        let lens: Vec<_> = listing.entries().map(|entry| entry.map(bytes)).collect();
        let read: usize = lens.iter().flatten().sum();
        assert!(read <= listing.entries.len());
        class(&[coarse(lens.len() as u64), lens.iter().filter(|len| len.is_err()).count() as u64])
    });
    class(&[2, entries.unwrap_or(0)])
}

fn error_class(error: WireError, have: usize) -> u64 {
    if let WireError::Short(needed) = error {
        assert!(needed > have, "{needed} of {have} are there");
    }
    class(&[crate::fnv1a(format!("{:?}", discriminant(&error)).into_bytes())])
}

fn answer_class(reply: &Reply<'_>) -> u64 {
    let answer = match reply.answer {
        Ok(Answer::Done) => 0,
        Ok(Answer::Value(value)) => 16 + coarse(value.len() as u64),
        Ok(Answer::Sum(_)) => 1,
        Err(failure) => 128 + failure as u64,
    };
    class(&[reply.head.method as u64, answer])
}

#[cfg(test)]
mod tests {
    use crate::seeds;
    use towpath_kv::When;
    use towpath_kv::wire::{Answer, Ask, Failure, Method, Reply, ReplyHead, Request};

    #[test]
    fn seeds_are_those_committed() {
        let set = Ask::Set { key: b"k", value: b"41", when: When::Absent, expire_ms: 9 };
        let incr = Ask::Incr { key: b"k", by: 1 };
        let opt = Ask::SetOpt { name: b"store-bytes", value: b"5000000" };
        let get = Ask::Get { key: b"k" };
        let all = [set, incr, incr, get, Ask::Dump, Ask::Del { key: b"k" }, Ask::Ping, opt];
        let mut stream = Vec::new();
        for (number, ask) in all.into_iter().chain([Ask::Reset, Ask::Exit]).enumerate() {
            let (client, sequence) = (number as u64 / 2, number as u64);
            Request { client, sequence, ask: Ask::Ping }.emit(&mut stream);
            Request { client, sequence, ask }.emit(&mut stream);
        }
        seeds::check("kv_requests", &[("all", stream)]);
        let reply = |method, answer| {
            let (head, mut out) = (ReplyHead { client: 1, sequence: 2, method }, Vec::new());
            Reply { head, answer }.emit(&mut out);
            out
        };
        let mut listing = [1, 0, 0, 0, 0, 0, 0, 0, 201, 0, 0, 0, 0, 0, 0, 0].to_vec();
        listing.extend_from_slice(&[1, 0, 2, 0, 0, 0, b'k', b'4', b'1']);
        let made = [
            ("value", reply(Method::Get, Ok(Answer::Value(b"41")))),
            ("listing", reply(Method::Dump, Ok(Answer::Value(&listing)))),
            ("sum", reply(Method::Incr, Ok(Answer::Sum(42)))),
            ("failure", reply(Method::Set, Err(Failure::Full))),
        ];
        seeds::check("kv_reply", &made);
    }
}
