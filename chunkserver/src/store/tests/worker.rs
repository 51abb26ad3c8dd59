//! The worker: batches, order, buffers that come back, failures that reach their requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{never, unbounded};

use super::*;
use crate::store::asked::Asked;
use crate::store::unfinished::Unfinished;
use crate::store::wakeful::Wakeful;
use crate::store::work::Work;
use crate::store::{Completion, Reply, Request, StoreWorker, WorkerConfig};

const CHUNK: ChunkId = ChunkId(1);

fn write_request(offset: u64, bytes: Vec<u8>) -> Request<Vec<u8>> {
    let crcs = writer_crcs(CHUNK, offset, &bytes);
    Request::Write { chunk: CHUNK, offset, data: vec![bytes], crcs, verified: false }
}

fn spawn(media: &SimMedia) -> StoreWorker<Vec<u8>> {
    StoreWorker::spawn(open(media), 64).expect("a thread starts")
}

#[test]
fn requests_are_answered_with_their_tokens_and_buffers_and_many_share_a_commit() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, CHUNK);
    // The queue is filled before the thread runs, so that the batch is the same every time.
    let worker = StoreWorker::spawn(store, 64).expect("a thread starts");
    for token in 0..40u64 {
        worker.send(token, write_request(token * 4096, vec![token as u8; 4096])).unwrap();
    }
    for token in 0..40u64 {
        let Completion { token: found, reply } = worker.completions().recv().unwrap();
        let Reply::Write { result, data, crcs } = reply else { panic!("a write") };
        assert!(result.is_ok());
        assert_eq!((found, &data[0][..], crcs.len()), (token, &[token as u8; 4096][..], 1));
    }
    let request = Request::Read {
        chunk: CHUNK,
        offset: 7 * 4096,
        byte_len: 4096,
        buf: vec![0; 8192],
        crcs: Vec::new(),
    };
    worker.send(100, request).unwrap();
    let Reply::Read { result, buf, crcs } = worker.completions().recv().unwrap().reply else {
        panic!("a read")
    };
    assert_eq!(result.unwrap().chunk_bytes, 40 * 4096);
    assert_eq!((&buf[..4096], &buf[4096..]), (&[7; 4096][..], &[0; 4096][..]));
    assert_eq!(crcs, [slice_crc(CHUNK, 7, &buf[..4096])]);
    worker.send(101, Request::Stats).unwrap();
    let Reply::Stats(stats) = worker.completions().recv().unwrap().reply else { panic!("stats") };
    assert!(stats.commits <= 41 && stats.writes == 40);
    worker.stop().unwrap();
    assert_eq!(open(&media).stat(CHUNK).unwrap().byte_len, 40 * 4096);
}

#[test]
fn every_kind_of_request_is_answered() {
    let media = SimMedia::new(1);
    let worker = spawn(&media);
    worker
        .send(
            1,
            Request::Create {
                chunk: CHUNK,
                limit_bytes: Some(4096),
                unfinished: false,
                resident: false,
            },
        )
        .unwrap();
    worker
        .send(
            2,
            Request::Create { chunk: CHUNK, limit_bytes: None, unfinished: false, resident: false },
        )
        .unwrap();
    worker.send(3, write_request(4096, vec![1])).unwrap();
    // Refusals come before the commit, acknowledgements after it.
    let mut replies: Vec<_> = (0..3).map(|_| worker.completions().recv().unwrap()).collect();
    replies.sort_by_key(|c| c.token);
    assert!(matches!(replies[0].reply, Reply::Create(Ok(_))));
    assert!(matches!(replies[1].reply, Reply::Create(Err(CreateError::Exists(_)))));
    let limit = &replies[2].reply;
    assert!(matches!(limit, Reply::Write { result: Err(WriteError::LimitExceeded { .. }), .. }));
    let ask = |request| {
        worker.send(9, request).unwrap();
        worker.completions().recv().unwrap().reply
    };
    assert!(matches!(ask(Request::Stat { chunk: CHUNK }), Reply::Stat(Some(_))));
    let listed = ask(Request::List { after: None, count_max: 5 });
    assert!(matches!(listed, Reply::List(list) if list.len() == 1));
    assert!(matches!(ask(Request::Scrub { budget_slices: 5 }), Reply::Scrub(r) if r.pass_done));
    let short =
        Request::Read { chunk: CHUNK, offset: 0, byte_len: 2, buf: vec![0], crcs: Vec::new() };
    assert!(matches!(ask(short), Reply::Read { result: Err(ReadError::Length { .. }), .. }));
    assert!(matches!(ask(Request::Delete { chunk: CHUNK }), Reply::Delete(Ok(_))));
    assert!(matches!(ask(Request::Stat { chunk: CHUNK }), Reply::Stat(None)));
    worker.stop().unwrap();
}

#[test]
fn a_failed_flush_reaches_every_request_of_its_batch_with_its_buffer() {
    let media = SimMedia::new(1);
    let worker = spawn(&media);
    worker
        .send(
            1,
            Request::Create { chunk: CHUNK, limit_bytes: None, unfinished: false, resident: false },
        )
        .unwrap();
    assert!(matches!(worker.completions().recv().unwrap().reply, Reply::Create(Ok(_))));
    media.fail_flush(2);
    for token in 0..10 {
        worker.send(token, write_request(0, vec![1; 4096])).unwrap();
    }
    let mut undecided = 0;
    for _ in 0..10 {
        let Reply::Write { result, data, .. } = worker.completions().recv().unwrap().reply else {
            panic!("a write")
        };
        assert_eq!(data[0].len(), 4096);
        match result {
            Ok(_) | Err(WriteError::Refused(Refused::Failed(_))) => {}
            Err(WriteError::Refused(Refused::Undecided(_))) => undecided += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(undecided > 0);
    worker.send(10, Request::Delete { chunk: CHUNK }).unwrap();
    let reply = worker.completions().recv().unwrap().reply;
    let Reply::Delete(Err(error)) = reply else { panic!("a failed delete") };
    assert!(matches!(error, DeleteError::Refused(Refused::Failed(_))), "{error:?}");
    assert!(worker.stop().is_err());
}

#[test]
fn a_write_whose_log_flush_failed_is_undecided_since_a_restart_may_show_it() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, CHUNK);
    write(&mut store, CHUNK, 0, &[1; 4096]);
    let worker = StoreWorker::spawn(store, 64).expect("a thread starts");
    // The flush of the data passes, that of the log does not.
    media.fail_flush(1);
    worker.send(1, write_request(0, vec![2; 4096])).unwrap();
    let Reply::Write { result, .. } = worker.completions().recv().unwrap().reply else {
        panic!("a write")
    };
    assert!(matches!(result, Err(WriteError::Refused(Refused::Undecided(_)))), "{result:?}");
    assert!(worker.stop().is_err());
    assert_eq!(read(&mut open(&media), CHUNK, 0, 4096).unwrap(), [2; 4096]);
}

#[test]
fn several_who_ask_get_their_own_answers_and_the_last_one_closes_the_store() {
    const ASKERS: u64 = 3;
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, CHUNK);
    let config = WorkerConfig::new(8);
    let workers = StoreWorker::<Vec<u8>>::spawn_for(3, store, config).expect("a thread starts");
    assert_eq!(workers.len() as u64, ASKERS);
    std::thread::scope(|scope| {
        for (asker, worker) in (0..ASKERS).zip(&workers) {
            scope.spawn(move || {
                for round in 0..30u64 {
                    let place = (round * ASKERS + asker) * 4096;
                    let bytes = vec![asker as u8 + 1; 4096];
                    worker.send(round, write_request(place, bytes)).expect("it runs");
                    let Completion { token, reply } =
                        worker.completions().recv().expect("an answer");
                    let Reply::Write { result, data, .. } = reply else { panic!("a write") };
                    assert!(result.is_ok());
                    assert_eq!((token, data[0][0]), (round, asker as u8 + 1));
                }
            });
        }
    });
    let last = workers
        .into_iter()
        .reduce(|worker, next| {
            worker.stop().expect("good for all but the last");
            assert!(next.is_running());
            next
        })
        .expect("three");
    assert_eq!(last.answers_waiting(), 0, "nobody got another's answer");
    last.stop().expect("the store closes");
    let mut store = open(&media);
    let mut crcs = Vec::new();
    for place in 0..30 * ASKERS {
        let mut bytes = vec![0; 4096];
        store.read(CHUNK, place * 4096, &mut bytes, &mut crcs).expect("acknowledged");
        assert_eq!(bytes, vec![(place % ASKERS) as u8 + 1; 4096]);
    }
}

#[test]
fn the_mark_is_written_when_the_store_was_quiet_for_a_while_and_again_after_the_next_change() {
    for by_askers in [false, true] {
        let media = SimMedia::new(1);
        let config = WorkerConfig::new(8).by_askers(by_askers);
        let worker = StoreWorker::<Vec<u8>>::spawn_with(open(&media), config).expect("a thread");
        let mut last = None;
        for id in 1..=2 {
            let chunk = ChunkId(id.into());
            let create =
                Request::Create { chunk, limit_bytes: None, unfinished: false, resident: false };
            worker.send(id, create).unwrap();
            worker.completions().recv().expect("it answers");
            while media.content("mark") == last {
                std::thread::sleep(Duration::from_millis(5));
            }
            last = media.content("mark");
        }
        worker.stop().expect("the medium flushes");
    }
}

#[test]
fn who_stops_a_store_whose_flush_hangs_waits_no_longer_than_asked() {
    let media = SimMedia::new(1);
    let worker = spawn(&media);
    media.flush_takes(Duration::from_secs(3600));
    worker
        .send(
            1,
            Request::Create { chunk: CHUNK, limit_bytes: None, unfinished: false, resident: false },
        )
        .unwrap();
    assert!(worker.stop_within(Duration::from_millis(10)).is_none());
    let worker = spawn(&SimMedia::new(2));
    worker
        .send(
            1,
            Request::Create { chunk: CHUNK, limit_bytes: None, unfinished: false, resident: false },
        )
        .unwrap();
    assert_eq!(worker.stop_within(Duration::from_secs(3600)), Some(Ok(())));
}

#[test]
fn an_unfinished_chunk_whose_delete_was_refused_is_still_swept_when_its_time_is_over() {
    let mut store = open(&SimMedia::new(1));
    store.stage_unfinished(CHUNK, None).expect("the chunk is new");
    store.commit().expect("the medium flushes");
    // The log is full, and the medium has no room for a checkpoint.
    (store.log.end, store.log.deferred) = (store.log.size_bytes, true);
    let keep = Duration::from_secs(10);
    let ((requests, incoming), (outgoing, completions)) = (unbounded(), unbounded());
    let unfinished = Unfinished::new(store.map.unfinished(), Instant::now());
    let mut work = Work::<_, Vec<u8>, Vec<u8>> {
        store,
        config: WorkerConfig::new(16).unfinished_keep(Some(keep)),
        asked: Asked::new(vec![incoming]),
        long: vec![Arc::default()],
        outgoing: vec![outgoing],
        unanswered: Vec::new(),
        wakeful: Wakeful::default(),
        unfinished,
    };
    requests.send((1, Request::Delete { chunk: CHUNK })).expect("somebody serves");
    work.batch(&never());
    let reply = completions.recv().expect("it is answered").reply;
    assert!(matches!(reply, Reply::Delete(Err(DeleteError::Refused(_)))), "{reply:?}");
    work.store.log.wants_checkpoint = true;
    work.store.checkpoint_if_due();
    work.sweep(Instant::now() + keep);
    assert!(work.store.stat(CHUNK).is_none(), "nobody removes it any more");
}
