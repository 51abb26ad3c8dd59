//! What is drawn has the shares that are asked for.

use super::*;

fn printed(seed: u64) -> Prng {
    println!("seed {seed}");
    Prng::new(seed)
}

/// How often each rank is drawn, of `draws`.
fn histogram(zipf: &Zipf, draws: u64, prng: &mut Prng) -> Vec<u64> {
    let mut counts = vec![0; zipf.items() as usize];
    for _ in 0..draws {
        counts[zipf.draw(prng) as usize] += 1;
    }
    counts
}

/// The worst of ranks 0 and 1, and of ranges of ranks that double: drawn, of what Zipf's law gives.
fn worst(zipf: &Zipf, counts: &[u64]) -> (f64, f64) {
    let draws = counts.iter().sum::<u64>() as f64;
    let off = |ranks: std::ops::Range<usize>| {
        let law: f64 = ranks.clone().map(|rank| zipf.probability(rank as u64)).sum();
        let drawn: u64 = counts[ranks].iter().sum();
        (drawn as f64 / draws / law - 1.0).abs()
    };
    let firsts = off(0..1).max(off(1..2));
    let octaves = (1..).map(|bits| 1_usize << bits).take_while(|&from| from < counts.len());
    let later = octaves.map(|from| off(from..(2 * from).min(counts.len())));
    (firsts, later.fold(0.0, f64::max))
}

#[test]
fn ranks_are_drawn_about_as_often_as_zipfs_law_says() {
    let mut prng = printed(1);
    for items in [3, 100, 1_000, 100_000] {
        let zipf = Zipf::new(items, THETA);
        let counts = histogram(&zipf, 4_000_000, &mut prng);
        let (firsts, later) = worst(&zipf, &counts);
        assert!(firsts < 0.01, "{items}: ranks 0 and 1 are exact, {firsts}");
        // The formula of Gray et al. is an approximation: ranks 2 and 3 come 16 % too rarely.
        assert!(later < 0.17, "{items}: {later}");
    }
}

#[test]
fn ranks_are_drawn_exactly_as_often_as_the_formula_says() {
    let (items, draws) = (1_000_u64, 4_000_000_u64);
    let zipf = Zipf::new(items, THETA);
    let counts = histogram(&zipf, draws, &mut printed(2));
    let law: Vec<f64> = (1..=items).map(|rank| (rank as f64).powf(-THETA)).collect();
    let zeta: f64 = law.iter().sum();
    let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - (law[0] + law[1]) / zeta);
    // From which random number on a rank or a later one is drawn.
    let begins = |rank: u64| match rank {
        0 => 0.0,
        1 => law[0] / zeta,
        2 => (law[0] + law[1]) / zeta,
        _ => ((rank as f64 / items as f64).powf(1.0 - THETA) - 1.0 + eta) / eta,
    };
    let term = |rank: u64| {
        let expected = (begins(rank + 1) - begins(rank)) * draws as f64;
        (counts[rank as usize] as f64 - expected).powi(2) / expected
    };
    let chi_square: f64 = (0..items).map(term).sum();
    // Six standard deviations above the mean of that distribution.
    let freedom = items as f64 - 1.0;
    assert!(chi_square < freedom + 6.0 * (2.0 * freedom).sqrt(), "{chi_square}");
}

#[test]
fn a_law_that_grew_is_that_of_all_items() {
    let mut grown = Zipf::new(1_000, THETA);
    (1_001..=2_000).for_each(|items| grown.grow(items));
    let whole = Zipf::new(2_000, THETA);
    for rank in [0, 1, 17, 1_999] {
        assert!((grown.probability(rank) / whole.probability(rank) - 1.0).abs() < 1e-9);
    }
    let (mut one, mut other) = (printed(3), Prng::new(3));
    assert!((0..10_000).all(|_| grown.draw(&mut one) == whole.draw(&mut other)));
    grown.grow(10);
    assert_eq!(grown.items(), 2_000, "it never shrinks");
}

#[test]
fn scrambled_numbers_and_names_are_those_of_ycsb() {
    // The name of YCSB's first key.
    let mut name = String::new();
    key_name(Mix::A, 0, &mut name);
    assert_eq!(name, "user6284781860667377211");
    key_name(Mix::Study, 0, &mut name);
    assert_eq!(name, format!("user{:060}", 6_284_781_860_667_377_211_u64));
    assert!((0..100_000).all(|key| scramble(key) < 1 << 63));
}

#[test]
fn popular_keys_lie_apart_and_have_their_share() {
    let (keys, draws) = (1_000_u64, 1_000_000_u64);
    let (scrambled, mut prng) = (Scrambled::new(keys), printed(4));
    let mut counts = vec![0_u64; keys as usize];
    for _ in 0..draws {
        counts[scrambled.draw(&mut prng) as usize] += 1;
    }
    let ranks = Zipf::of_scrambled();
    // A key has also its share of the many ranks that are mapped to it.
    let firsts: f64 = (0..100).map(|rank| ranks.probability(rank)).sum();
    let rest = (1.0 - firsts) / keys as f64;
    for rank in [0, 1] {
        let drawn = counts[(scramble(rank) % keys) as usize] as f64 / draws as f64;
        let law = ranks.probability(rank) + rest;
        assert!((drawn / law - 1.0).abs() < 0.05, "rank {rank}: {drawn}, not {law}");
    }
    assert!(counts.iter().all(|&count| count > 0), "no key is left out");
}

#[test]
fn the_zeta_of_the_scrambled_items_is_theirs() {
    // The sum over the first million and, beyond, the integral by Euler and Maclaurin.
    let (terms, power) = (1_000_000_u64, 1.0 - THETA);
    let head: f64 = (1..=terms).map(|item| (item as f64).powf(-THETA)).sum();
    let integral = (1e10_f64.powf(power) - (terms as f64).powf(power)) / power;
    let ends = (1e10_f64.powf(-THETA) - (terms as f64).powf(-THETA)) / 2.0;
    let zeta = 1.0 / Zipf::of_scrambled().probability(0);
    assert!((head + integral + ends - zeta).abs() < 1e-6, "{}", head + integral + ends);
}

/// How often each kind of task comes, of so many.
fn kinds(mix: Mix, tasks: u64) -> [f64; 4] {
    let mut client = Workload::new(mix, 1_000, 5).client(0);
    let mut counts = [0.0; 4];
    for _ in 0..tasks {
        let task = client.next_task();
        counts[task.kind as usize] += 1.0 / tasks as f64;
        if task.kind == Kind::Insert {
            client.inserted(task.key);
        }
    }
    counts
}

#[test]
fn mixes_have_the_shares_of_ycsb_and_of_the_study() {
    let expected = [
        (Mix::A, [0.5, 0.5, 0.0, 0.0]),
        (Mix::B, [0.95, 0.05, 0.0, 0.0]),
        (Mix::C, [1.0, 0.0, 0.0, 0.0]),
        (Mix::D, [0.95, 0.0, 0.05, 0.0]),
        (Mix::F, [0.5, 0.0, 0.0, 0.5]),
        (Mix::Study, [30.0 / 31.0, 1.0 / 31.0, 0.0, 0.0]),
    ];
    for (mix, shares) in expected {
        let drawn = kinds(mix, 100_000);
        // Six standard deviations of a half.
        let close = drawn.iter().zip(shares).all(|(drawn, share)| (drawn - share).abs() < 0.01);
        assert!(close, "{mix:?}: {drawn:?}");
        assert_eq!(Mix::of(mix.word()), Some(mix));
    }
    assert_eq!(Mix::of("e"), None, "no scans");
}

#[test]
fn inserts_make_the_newest_keys_the_popular_ones() {
    let workload = Workload::new(Mix::D, 1_000, 6);
    let mut client = workload.client(0);
    let (mut there, mut newest, mut law) = (1_000, 0.0, 0.0);
    let mut ages = Zipf::new(there, THETA);
    for _ in 0..200_000 {
        let task = client.next_task();
        if task.kind == Kind::Insert {
            assert_eq!(task.key, there, "the next number");
            client.inserted(task.key);
            there += 1;
            ages.grow(there);
        } else {
            assert!(task.key < there, "{} is not there yet", task.key);
            law += ages.probability(0);
            newest += f64::from(u8::from(task.key == there - 1));
        }
    }
    assert!((10_700..=11_300).contains(&there), "{there}: 1,000 and 5 % of 200,000");
    // The first rank's share falls from 0.13 to 0.10 on the way.
    assert!((newest / law - 1.0).abs() < 0.03, "{newest}, not {law}");
}

#[test]
fn a_key_is_read_only_when_it_and_all_before_it_are_there() {
    let keys = Sequence::new(10);
    assert_eq!([keys.take(), keys.take(), keys.take()], [10, 11, 12]);
    keys.inserted(12);
    keys.inserted(11);
    assert_eq!(keys.there(), 10);
    keys.inserted(10);
    assert_eq!(keys.there(), 13);
    keys.inserted(10);
    assert_eq!(keys.there(), 13, "told again");
}

#[test]
fn clients_draw_apart_and_each_the_same_again() {
    for mix in Mix::ALL {
        let draw = |seed, number| -> Vec<Task> {
            let mut client = Workload::new(mix, 10_000, seed).client(number);
            (0..100).map(|_| client.next_task()).collect()
        };
        assert_eq!(draw(1, 0), draw(1, 0), "{mix:?}");
        assert_ne!(draw(1, 0), draw(1, 1), "{mix:?}");
        assert_ne!(draw(1, 0), draw(2, 0), "{mix:?}");
        let mut value = Vec::new();
        Workload::new(mix, 0, 1).client(0).value(&mut value);
        assert_eq!(value.len(), mix.value_bytes());
        assert_eq!(Workload::new(mix, 0, 1).keys.there(), 1, "one key at least");
    }
}
