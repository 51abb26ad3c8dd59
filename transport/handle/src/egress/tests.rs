//! Who waits for room.

use super::*;
use crate::inbox::Inbox;
use crate::queue::queue;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use towpath_transport::for_handles::Bell;
use towpath_wake::Taking;

#[test]
fn room_is_told_to_each_of_two_who_wait_for_it() {
    let pool = towpath_memory::Pool::with_count(64, EGRESS_MAX).expect("memory");
    let inbox = Inbox::new(Arc::new(Bell::new(None)));
    let link = LinkId::first();
    let egress = Arc::new(Egress::new(link, ChannelId(0)));
    for _ in 0..EGRESS_MAX {
        let payload = pool.take().expect("a buffer").into();
        let (tell, _) = queue();
        let post = Outgoing { payload, options: SendOptions::new(), reply: Reply::Ticket(tell, 0) };
        assert!(inbox.post(&egress, post).is_ok());
    }
    let (mut first, mut second) = (Taking::new(&*egress), Taking::new(&*egress));
    let (told, mut cx) = (Arc::new(Told::default()), Vec::new());
    for waiting in [&mut first, &mut second] {
        let waker = Waker::from(Arc::clone(&told));
        assert!(Pin::new(waiting).poll(&mut Context::from_waker(&waker)).is_pending());
        cx.push(waker);
    }
    egress.free();
    assert_eq!((told.0.load(Ordering::SeqCst), egress.room.count()), (1, 1));
    // The first one goes without a look.
    drop(first);
    assert_eq!((told.0.load(Ordering::SeqCst), egress.room.count()), (2, 0));
    assert!(Pin::new(&mut second).poll(&mut Context::from_waker(&cx[1])).is_ready());
}

/// Counts how often it was woken.
#[derive(Default)]
struct Told(AtomicUsize);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
