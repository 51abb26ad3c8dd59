//! Who waits for room.

use super::*;
use crate::queue::bounded;
use crate::room::Room;
use std::pin::Pin;
use std::task::{Context, Wake, Waker};
use towpath_transport::for_handles::Bell;
use towpath_wake::Taking;

#[test]
fn room_is_told_to_each_of_two_who_wait_for_it() {
    let pool = towpath_memory::Pool::with_count(64, EGRESS_MAX).expect("memory");
    let doorbell = Doorbell::new(Arc::new(Bell::new(None)));
    let link = LinkId::first();
    let egress = Arc::new(Egress::new(link, ChannelId(0)));
    for _ in 0..EGRESS_MAX {
        let payload = pool.take().expect("a buffer").into();
        let (tell, _) = bounded(1);
        let post = Outgoing { payload, options: SendOptions::new(), reply: Reply::Ticket(tell, 0) };
        assert!(egress.try_post(&doorbell, post).is_ok());
    }
    let room = Room { egress: &egress, bell: &doorbell };
    let (mut first, mut second) = (Taking::new(room), Taking::new(room));
    let (told, mut cx) = (Arc::new(Told::default()), Vec::new());
    for waiting in [&mut first, &mut second] {
        let waker = Waker::from(Arc::clone(&told));
        assert!(Pin::new(waiting).poll(&mut Context::from_waker(&waker)).is_pending());
        cx.push(waker);
    }
    let _one = egress.take();
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
