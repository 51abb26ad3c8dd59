//! What is in the lists of links, and when.

use super::*;
use crate::class::ClassReport;
use crate::conn::Control;
use towpath_base::{Nanos, Prng};

fn links(count: u16) -> Links {
    let mut links = Links::new(usize::from(count));
    for _ in 0..count {
        let id = links.vacant().expect("there is room");
        let (control, _) = Control::new().expect("memory");
        links.insert(Conn::new(id, ClassReport::new(Class::Silver, 0), control));
    }
    links
}

fn set(links: &mut Links, index: u16, timer: Time) {
    links.at(index).expect("it is there").timer = timer;
    links.file_timer(index);
}

#[test]
fn each_timer_comes_once_and_no_link_is_in_the_list_of_timers_twice() {
    let seed = 7;
    println!("seed {seed}");
    let (mut links, mut prng, mut now) = (links(64), Prng::new(seed), Time(1));
    let mut timers = [Time::NEVER; 64];
    for round in 0..2_000 {
        for _ in 0..prng.below(40) {
            let index = prng.below(64) as u16;
            let span = [100, 2_000, 1_000_000][prng.below(3) as usize];
            let timer = if prng.chance(0.1) { Time::NEVER } else { now + Nanos(span) };
            timers[usize::from(index)] = timer;
            set(&mut links, index, timer);
        }
        if round == 1_000 {
            for index in [3, 40] {
                links.remove(index);
                let id = links.vacant().expect("one has left");
                let (control, _) = Control::new().expect("memory");
                links.insert(Conn::new(id, ClassReport::new(Class::Silver, 0), control));
                timers[usize::from(index)] = Time::NEVER;
            }
        }
        assert!(links.timers.len() <= 64);
        let first = timers.iter().min().copied().unwrap_or(Time::NEVER);
        assert!(links.next_timer() <= first, "round {round}");
        if prng.chance(0.5) {
            links.file_anew();
            assert_eq!(links.next_timer(), first, "round {round}");
        }
        now += Nanos(prng.below(300));
        let mut due: Vec<u16> = std::iter::from_fn(|| links.pop_due(now)).collect();
        due.sort_unstable();
        let ours = (0..64).filter(|&index| timers[usize::from(index)] <= now);
        assert_eq!(due, ours.collect::<Vec<_>>(), "round {round}");
        due.iter().for_each(|&index| timers[usize::from(index)] = Time::NEVER);
    }
}

#[test]
fn looking_at_the_links_that_are_due_looks_at_no_others() {
    let mut links = links(1_000);
    for index in 0..1_000 {
        set(&mut links, index, Time(1_000_000 + u64::from(index)));
    }
    for index in (0..1_000).step_by(100) {
        set(&mut links, index, Time(10));
    }
    let filed = links.timers.clone();
    let due = std::iter::from_fn(|| links.pop_due(Time(10))).count();
    assert_eq!(due, 10);
    let taken: Vec<_> = filed.difference(&links.timers).collect();
    assert_eq!((taken.len(), links.timers.len()), (10, 990), "the others are where they were");
}
