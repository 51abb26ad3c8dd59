//! Who waits for room.

use super::*;
use crate::bell::Bell;
use crate::links::Links;

#[test]
fn room_is_told_to_each_of_two_who_wait_for_it() {
    let pool = towpath_memory::Pool::with_count(64, EGRESS_MAX).expect("memory");
    let doorbell = Doorbell::new(Arc::new(Bell::new(None)));
    let link = Links::new(1).vacant().expect("room");
    let egress = Arc::new(Egress::new(link, ChannelId(0)));
    for _ in 0..EGRESS_MAX {
        let payload = pool.take().expect("a buffer").into();
        let (tell, _) = bounded(1);
        let post = Outgoing { payload, options: SendOptions::new(), reply: Reply::Ticket(tell, 0) };
        assert!(egress.try_post(&doorbell, post).is_ok());
    }
    egress.watch_room(&doorbell);
    egress.watch_room(&doorbell);
    assert!(egress.room().is_empty());
    // The worker takes all there is before either of them runs.
    while egress.take().is_some() {}
    assert!(!egress.room().is_empty() && egress.take_room(&doorbell));
    egress.unwatch_room();
    assert!(!egress.room().is_empty(), "the second one sleeps while the queue is empty");
    assert!(egress.take_room(&doorbell));
}
