//! Every order in which engines can reach the words between the steps of the monitor's look: no
//! token is given twice, whatever the order.

use towpath_base::{Nanos, Time};
use towpath_qos::{
    Capacities, Conversion, Epoch, Monitor, MonitorConfig, PoolWord, Report, Rules, Share, Slot,
    Taken, Words,
};

const ALL: u32 = 100;
const RESERVED: u32 = 30;
const BATCH: u32 = 25;

/// What may happen between two steps of the monitor.
#[derive(Clone, Copy, Debug)]
enum Move {
    Nothing,
    Takes(usize),
    Tells(usize),
    /// An engine that has slept since the period before adds to the word.
    TakesLate,
}

const MOVES: [Move; 6] = [
    Move::Nothing,
    Move::Takes(0),
    Move::Takes(1),
    Move::Tells(0),
    Move::Tells(1),
    Move::TakesLate,
];

/// The words, and two engines that use nothing of what they take.
struct Stage {
    pool: u64,
    reports: [u64; 2],
    held: [u32; 2],
    beats: [bool; 2],
    epoch: Epoch,
    /// What comes before each step, as digits.
    script: Vec<Move>,
    step: usize,
}

impl Stage {
    fn new() -> Self {
        let (reports, held, beats) = ([0; 2], [0; 2], [false; 2]);
        Self { pool: 0, reports, held, beats, epoch: Epoch(0), script: Vec::new(), step: 0 }
    }

    fn take(&mut self, epoch: Epoch) -> u32 {
        let was = self.pool;
        self.pool = was.wrapping_add(PoolWord::operand(BATCH));
        match PoolWord::taken(was, epoch, BATCH) {
            Taken::Tokens(taken) => taken,
            Taken::OtherEpoch => 0,
        }
    }

    fn before_step(&mut self) {
        let next = self.script.get(self.step).copied().unwrap_or(Move::Nothing);
        self.step += 1;
        match next {
            Move::Nothing => {}
            Move::Takes(engine) => self.held[engine] += self.take(self.epoch),
            Move::Tells(engine) => {
                self.beats[engine] = !self.beats[engine];
                let (held, beat) = (self.held[engine], self.beats[engine]);
                let report = Report { beat, held, residual: RESERVED / 2, ..Report::default() };
                self.reports[engine] = report.pack(self.epoch, 0);
            }
            Move::TakesLate => {
                let late = Epoch(self.epoch.0.wrapping_sub(1));
                assert_eq!(self.take(late), 0, "of another period");
            }
        }
    }

    /// Tokens that were given out or may be taken.
    fn given(&self) -> i64 {
        let held: u32 = self.held.iter().sum();
        i64::from(held + RESERVED) + PoolWord::unpack(self.pool).tokens.max(0)
    }
}

impl Words for Stage {
    fn pool(&mut self) -> u64 {
        self.before_step();
        self.pool
    }

    fn exchange_pool(&mut self, from: u64, to: u64) -> Result<(), u64> {
        self.before_step();
        if self.pool == from {
            self.pool = to;
            return Ok(());
        }
        Err(self.pool)
    }

    fn overwrite_pool(&mut self, to: u64) {
        self.before_step();
        self.pool = to;
    }

    fn report(&mut self, slot: Slot) -> u64 {
        self.before_step();
        self.reports[slot.index()]
    }
}

/// Two looks with these moves between their steps, at the start of a period; the most that was
/// given at any time.
fn most_given(rules: Rules, scripts: [&[Move]; 2]) -> i64 {
    let config = MonitorConfig::new(Capacities { all: ALL, one: ALL }).rules(rules);
    // So short a tick that no capacity is gone by the second look.
    let mut monitor = Monitor::new(MonitorConfig { tick: Nanos(1), ..config });
    for _ in 0..2 {
        monitor.join(Share::reserved(RESERVED / 2)).expect("it fits");
    }
    let mut stage = Stage::new();
    monitor.begin(Time::ZERO, &mut stage);
    stage.epoch = monitor.epoch();
    let mut most = stage.given();
    for (look, script) in scripts.into_iter().enumerate() {
        (stage.script, stage.step) = (script.to_vec(), 0);
        monitor.tick(Time(look as u64 + 1), &mut stage);
        most = most.max(stage.given());
    }
    most
}

/// All scripts of so many moves out of the first `kinds`.
fn scripts(length: u32, kinds: usize) -> impl Iterator<Item = Vec<Move>> {
    (0..kinds.pow(length)).map(move |mut number| {
        let digit = |_| {
            let digit = number % kinds;
            number /= kinds;
            MOVES[digit]
        };
        (0..length).map(digit).collect()
    })
}

#[test]
fn no_order_of_steps_gives_a_token_twice() {
    let second: Vec<_> = scripts(6, 3).collect();
    let mut runs = 0;
    for first in scripts(6, MOVES.len()) {
        // All pairs would be 34 million: each first look has some second looks, all in all each.
        let every = 9;
        for second in second.iter().skip(runs % every).step_by(every) {
            runs += 1;
            let most = most_given(Rules::OURS, [&first, second]);
            assert!(most <= i64::from(ALL), "{most}: {first:?} {second:?}");
        }
    }
    println!("{runs} runs");
}

#[test]
fn the_exploration_finds_what_overwriting_and_blindness_do() {
    let worst = |rules| {
        let all = scripts(6, 3);
        all.map(|first| most_given(rules, [&first, &[]])).max().unwrap_or(0)
    };
    assert!(worst(Rules { conversion: Conversion::Overwrite, ..Rules::OURS }) > i64::from(ALL));
    assert!(worst(Rules { counts_held: false, ..Rules::OURS }) > i64::from(ALL));
}
