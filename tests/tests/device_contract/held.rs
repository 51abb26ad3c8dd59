//! Buffers that are a device's from posting to completion, and nobody else's meanwhile.

use crate::rig::{End, Rig};
use towpath_memory::{Buf, Lent, Pool, Region};
use towpath_verbs::{
    Access, Device, PdNum, QpNum, QpState, RecvWr, SendOp, SendWr, SgList, Sge, Verb, VerbError,
    WcStatus,
};

const BYTES: usize = 64;

/// A pool that a device knows, and its key there.
fn pool<D: Device<Memory = Region>>(end: &mut End<D>) -> (Pool, u32) {
    let pool = Pool::with_count(BYTES, 2).expect("memory for a test");
    let keys = end.device.reg_mr(PdNum::DEFAULT, pool.region(), Access::LOCAL);
    (pool, keys.expect("room").lkey)
}

/// A lent buffer, full of `byte`.
fn lent(pool: &Pool, byte: u8) -> Lent {
    let mut buf = pool.take().expect("a pool of two");
    buf.set_len(BYTES).expect("it fits");
    buf.fill(byte);
    buf.lend()
}

fn recv<D: Device<Memory = Region>>(end: &mut End<D>, qp: QpNum, wr_id: u64, sge: Sge) {
    let wr = RecvWr { wr_id, sg_list: SgList::one(sge) };
    end.device.post_recv(qp, &[wr]).expect("room for a receive");
}

pub(crate) fn until_completion<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    let ((a_pool, a_key), (b_pool, b_key)) = (pool(&mut rig.a), pool(&mut rig.b));
    let (from, to) = (lent(&a_pool, 7), lent(&b_pool, 0));
    recv(&mut rig.b, b_qp, 1, to.sge(b_key, 0, BYTES));
    let to = to.reclaim().expect_err("it is posted");
    let wr = SendWr::new(1, SendOp::Send, SgList::one(from.sge(a_key, 0, BYTES)));
    rig.a.device.post_send(a_qp, &[wr]).expect("room for a send");
    let from = match rig.a.device.caps().sends_at_once {
        true => from,
        false => from.reclaim().expect_err("it is posted"),
    };
    rig.run();
    assert_eq!((rig.a.completions().len(), rig.b.completions().len()), (1, 1));
    assert!(from.reclaim().is_ok());
    assert_eq!(&to.reclaim().expect("it has completed")[..], [7; BYTES]);
}

pub(crate) fn until_the_queue_pair_is_gone<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    for how in [Some(QpState::Err), Some(QpState::Reset), None] {
        let (_, qp) = rig.uc();
        let (pool, key) = pool(&mut rig.b);
        let posted = lent(&pool, 0);
        recv(&mut rig.b, qp, 1, posted.sge(key, 0, BYTES));
        rig.b.device.dereg_mr(key).expect("it is registered");
        let posted = posted.reclaim().expect_err("it is posted, registered or not");
        match how {
            Some(state) => rig.b.device.modify_qp(qp, state).expect("it is there"),
            None => rig.b.device.destroy_qp(qp).expect("it is there"),
        }
        rig.run();
        let flushed = rig.b.completions();
        assert_eq!(flushed.len(), usize::from(how != Some(QpState::Reset)), "{how:?}");
        assert!(flushed.iter().all(|wc| wc.status == WcStatus::WrFlushErr));
        assert!(posted.reclaim().is_ok(), "{how:?}");
    }
}

pub(crate) fn refused_unless_lent<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    let ((a_pool, a_key), (b_pool, b_key)) = (pool(&mut rig.a), pool(&mut rig.b));
    let named = |buf: &Buf, lkey| Sge { addr: buf.as_ptr() as u64, length: 8, lkey };
    let (from, to) = (a_pool.take().expect("of two"), b_pool.take().expect("of two"));
    let sg_list = SgList::one(named(&to, b_key));
    let refused = rig.b.device.post_recv(b_qp, &[RecvWr { wr_id: 1, sg_list }]);
    assert_eq!(refused.unwrap_err().error, VerbError::BadMemory(Verb::PostRecv));
    let good = lent(&a_pool, 7);
    // The first entry is lent, and is not kept for the sake of the second.
    let list = SgList::two(good.sge(a_key, 0, 8), named(&from, a_key));
    let refused = rig.a.device.post_send(a_qp, &[SendWr::new(1, SendOp::Send, list)]);
    assert_eq!(refused.unwrap_err().error, VerbError::BadMemory(Verb::PostSend));
    assert!(good.reclaim().is_ok());
    // What is only to be read takes no receive.
    let frozen = to.freeze();
    let sge = Sge { addr: frozen.as_ptr() as u64, length: 8, lkey: b_key };
    let wr = RecvWr { wr_id: 1, sg_list: SgList::one(sge) };
    assert!(rig.b.device.post_recv(b_qp, &[wr]).is_err());
}
