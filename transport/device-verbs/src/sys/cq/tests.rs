//! The extended completion queue, on a driver that is made up: one that follows the manual page of
//! `ibv_create_cq_ex` to the letter, and notes every breach of it.

use super::*;
use rdma_sys::__be32;

/// What the driver has in its queue.
#[derive(Clone, Copy, Default)]
struct Entry {
    wr_id: u64,
    status: ibv_wc_status::Type,
    opcode: ibv_wc_opcode::Type,
    byte_len: u32,
    imm_data: Option<u32>,
    qp_num: u32,
    src_qp: u32,
    vendor_err: u32,
    ticks: u64,
}

/// A driver. The queue that it shows is its first field, as drivers have it.
#[repr(C)]
struct Driver {
    cq: ibv_cq_ex,
    entries: Vec<Entry>,
    /// The completion that is shown while polling.
    at: usize,
    polling: bool,
    /// What was done wrong.
    breaches: Vec<&'static str>,
    polls_ended: usize,
}

impl Driver {
    fn new(entries: Vec<Entry>) -> Box<Self> {
        // SAFETY: numbers, pointers and functions that may be null.
        let mut cq: ibv_cq_ex = unsafe { zeroed() };
        cq.start_poll = Some(start_poll);
        cq.next_poll = Some(next_poll);
        cq.end_poll = Some(end_poll);
        cq.read_opcode = Some(read_opcode);
        cq.read_vendor_err = Some(read_vendor_err);
        cq.read_byte_len = Some(read_byte_len);
        cq.read_imm_data = Some(read_imm_data);
        cq.read_qp_num = Some(read_qp_num);
        cq.read_src_qp = Some(read_src_qp);
        cq.read_wc_flags = Some(read_wc_flags);
        cq.read_completion_ts = Some(read_completion_ts);
        Box::new(Self { cq, entries, at: 0, polling: false, breaches: Vec::new(), polls_ended: 0 })
    }

    /// What one poll takes.
    fn poll(&mut self) -> Vec<RawWc> {
        let mut taken = Vec::new();
        let raw = NonNull::from(&mut *self).cast();
        poll_extended(raw, &mut |wc| taken.push(wc));
        taken
    }

    fn show(&mut self) -> i32 {
        let Some(entry) = self.entries.get(self.at) else { return libc::ENOENT };
        (self.cq.wr_id, self.cq.status) = (entry.wr_id, entry.status);
        0
    }

    /// The completion that is shown; of one in error only what every completion has.
    fn shown(&mut self, of_success: bool) -> Entry {
        let entry = self.entries.get(self.at).copied().filter(|_| self.polling);
        let Some(entry) = entry else {
            self.breaches.push("read where nothing is shown");
            return Entry::default();
        };
        if of_success && entry.status != ibv_wc_status::IBV_WC_SUCCESS {
            self.breaches.push("read of a completion in error what it does not have");
        }
        entry
    }
}

fn driver<'a>(cq: *mut ibv_cq_ex) -> &'a mut Driver {
    // SAFETY: every queue here is the first field of a driver, which one thread uses.
    unsafe { &mut *cq.cast::<Driver>() }
}

extern "C" fn start_poll(cq: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> i32 {
    let driver = driver(cq);
    if driver.polling {
        driver.breaches.push("begun twice");
    }
    let status = driver.show();
    driver.polling = status == 0;
    status
}

extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> i32 {
    let driver = driver(cq);
    if !driver.polling || driver.at == driver.entries.len() {
        driver.breaches.push("went on without a completion");
    }
    driver.at += 1;
    driver.show()
}

extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    let driver = driver(cq);
    if !driver.polling {
        driver.breaches.push("ended what had not begun");
    }
    driver.polling = false;
    driver.polls_ended += 1;
    // What was shown last is consumed with the end, unless there was none any more.
    let consumed = (driver.at + 1).min(driver.entries.len());
    driver.entries.drain(..consumed);
    driver.at = 0;
}

extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode::Type {
    driver(cq).shown(true).opcode
}

extern "C" fn read_vendor_err(cq: *mut ibv_cq_ex) -> u32 {
    driver(cq).shown(false).vendor_err
}

extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    driver(cq).shown(true).byte_len
}

extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> __be32 {
    let imm_data = driver(cq).shown(true).imm_data;
    imm_data.map_or(0xdead_beef, u32::to_be)
}

extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    driver(cq).shown(false).qp_num
}

extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    driver(cq).shown(true).src_qp
}

extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> u32 {
    let has_imm = driver(cq).shown(true).imm_data.is_some();
    if has_imm { ibv_wc_flags::IBV_WC_WITH_IMM.0 } else { 0 }
}

extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    driver(cq).shown(true).ticks
}

fn entry(wr_id: u64) -> Entry {
    Entry { wr_id, qp_num: 17, ticks: 1_000 + wr_id, ..Entry::default() }
}

#[test]
fn each_completion_comes_with_the_time_that_it_carries() {
    let received = Entry {
        opcode: ibv_wc_opcode::IBV_WC_RECV,
        byte_len: 64,
        imm_data: Some(0x0102_0304),
        src_qp: 9,
        ..entry(2)
    };
    let failed =
        Entry { status: ibv_wc_status::IBV_WC_RETRY_EXC_ERR, vendor_err: 0x81, ..entry(3) };
    let mut driver = Driver::new(vec![entry(1), received, failed]);
    let taken = driver.poll();
    assert_eq!(driver.breaches, Vec::<&str>::new());
    assert!(taken.iter().map(|wc| wc.wr_id).eq([1, 2, 3]));
    assert!(taken.iter().all(|wc| wc.qp_num == 17));
    let times = taken.iter().map(|wc| wc.ticks);
    assert!(times.eq([Some(1_001), Some(1_002), None]), "an error has no time");
    let wc = &taken[1];
    assert_eq!((wc.opcode, wc.byte_len), (ibv_wc_opcode::IBV_WC_RECV, 64));
    assert_eq!((wc.imm_data, wc.src_qp), (Some(0x0102_0304), 9));
    assert_eq!((taken[0].imm_data, taken[0].vendor_err), (None, 0));
    assert_eq!((taken[2].status, taken[2].vendor_err), (failed.status, 0x81));
}

#[test]
fn an_empty_queue_is_left_without_an_end() {
    let mut driver = Driver::new(Vec::new());
    assert!(driver.poll().is_empty());
    assert_eq!((driver.breaches.as_slice(), driver.polls_ended), (&[][..], 0));
}

#[test]
fn a_full_batch_leaves_the_rest_in_the_queue() {
    let count = POLL_BATCH as u64 + 3;
    let mut driver = Driver::new((0..count).map(entry).collect());
    let first = driver.poll();
    assert_eq!(first.len(), POLL_BATCH);
    let second = driver.poll();
    let all = first.iter().chain(&second).map(|wc| wc.wr_id);
    assert!(all.eq(0..count), "none is lost between two polls");
    assert!(driver.poll().is_empty());
    assert_eq!((driver.breaches.as_slice(), driver.polls_ended), (&[][..], 2));
}
