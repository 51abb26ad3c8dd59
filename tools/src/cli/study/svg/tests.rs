//! Drawings are well-formed, whatever is in them.

use towpath_lab::studies::{ALL, Axis, Level, Params, Plot, Report, Series, Style};

use super::*;

/// Checks that tags close in order and that text is escaped; returns how many of each name.
fn elements(svg: &str) -> std::collections::BTreeMap<String, usize> {
    let (mut open, mut counts) = (Vec::new(), std::collections::BTreeMap::new());
    let mut rest = svg;
    while let Some(begin) = rest.find('<') {
        assert!(!rest[..begin].contains('>'), "a stray > before {:?}", &rest[begin..]);
        let end = begin + rest[begin..].find('>').expect("a tag ends");
        let tag = &rest[begin + 1..end];
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
        } else {
            *counts.entry(name.to_owned()).or_default() += 1;
            if !tag.ends_with('/') {
                open.push(name.to_owned());
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty());
    counts
}

fn report(plots: Vec<Plot>) -> Report {
    let study = ALL[0];
    let given = std::collections::BTreeMap::new();
    let params = Params::new(study.params, 7, Level::Quick, &given).expect("defaults are good");
    Report { plots, ..Report::new(study.name, &params) }
}

fn plot(title: &str, points: Vec<(f64, f64)>) -> Plot {
    let series =
        |label: &str, style| Series { label: label.to_owned(), style, points: points.clone() };
    Plot {
        title: title.to_owned(),
        x: Axis::log("loss", "share"),
        y: Axis::linear("goodput", "Gb/s"),
        series: vec![
            series("ours & <theirs>", Style::Line),
            series("bound", Style::Bound),
            series("seen", Style::Points),
            series("published", Style::Span),
            series("by period", Style::Blocks),
        ],
    }
}

#[test]
fn a_drawing_is_well_formed_and_says_how_to_get_it_again() {
    let points = vec![(0.001, 90.0), (0.01, 50.0)];
    let plots = (0..5).map(|n| plot(&format!("panel {n}"), points.clone())).collect();
    let svg = draw(ALL[0], &report(plots), "towpath sim x --seed 7");
    let counts = elements(&svg);
    assert_eq!(counts["svg"], 1);
    // In each panel a line and a bound, and both in the legend.
    assert_eq!(counts["polyline"], 5 * 2 + 2);
    // The dots of a line and of points alone, and their legend.
    assert_eq!(counts["circle"], 5 * 4 + 2);
    for words in ["seed 7", "towpath sim x --seed 7", "loss (share)", "goodput (Gb/s)", "panel 4"] {
        assert!(svg.contains(words), "{words}");
    }
    assert!(svg.contains("ours &amp; &lt;theirs&gt;"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn nothing_to_draw_and_odd_numbers_still_make_a_drawing() {
    let odd = vec![(0.0, f64::NAN), (f64::INFINITY, -1.0), (1.0, 1.0)];
    for plots in [vec![], vec![plot("", vec![])], vec![plot("odd", odd)]] {
        let svg = draw(ALL[0], &report(plots), "");
        elements(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

/// Lines of a caption break at spaces, so words are looked for without them.
fn has(svg: &str, words: &str) -> bool {
    // Text and tags take turns.
    let text: String = svg.split(['<', '>']).step_by(2).collect();
    text.replace(char::is_whitespace, "").contains(&words.replace(' ', ""))
}

#[test]
fn the_caption_claims_virtual_time_seed_and_trace_only_where_there_are_any() {
    let virtual_time = "In virtual time; seed 7, trace ";
    let svg = draw(ALL[0], &report(vec![]), "towpath sim x");
    assert!(has(&svg, "In virtual time. towpath sim x"), "no run, no trace: {svg}");
    let mut traced = report(vec![]);
    traced.trace("a run", 1);
    assert!(has(&draw(ALL[0], &traced, ""), virtual_time));
    let Study { name, what, mirrors, params, run, .. } = *ALL[0];
    let measured = Study { clock: Clock::Machine, name, what, mirrors, params, run };
    for (report, seeded) in [(&report(vec![]), false), (&traced, true)] {
        let svg = draw(&measured, report, "");
        assert!(!has(&svg, "virtual"), "{svg}");
        assert!(has(&svg, "Measured in real time on the machine that ran it"), "{svg}");
        assert_eq!(has(&svg, "seed 7, trace "), seeded, "{svg}");
    }
}

#[test]
fn a_line_of_many_points_has_no_dots_that_would_cover_the_others() {
    let dots = |count: u32| {
        let points = (0..count).map(|x| (f64::from(x) + 1.0, 50.0)).collect();
        let line = Series { label: "a".to_owned(), style: Style::Line, points };
        let plot = Plot { series: vec![line], ..plot("one", vec![]) };
        // One is in the legend.
        elements(&draw(ALL[0], &report(vec![plot]), ""))["circle"] - 1
    };
    assert_eq!((dots(7), dots(140)), (7, 0));
}

#[test]
fn blocks_of_a_bar_stand_on_each_other() {
    let points = vec![(1.0, 10.0), (1.0, 30.0), (2.0, 30.0)];
    let bars = Series { label: "a".to_owned(), style: Style::Blocks, points };
    let x = Axis::linear("client", "").range(0.0, 3.0);
    let plot = Plot { x, series: vec![bars], ..plot("one", vec![]) };
    let svg = draw(ALL[0], &report(vec![plot]), "");
    let field = |rect: &str, name: &str| {
        let value = rect.split_once(&format!(" {name}=\"")).expect("it is there").1;
        value.split('"').next().and_then(|number| number.parse::<f64>().ok()).expect("a number")
    };
    // Before them come the ground and the legend.
    let rects: Vec<&str> = svg.split("<rect").skip(3).collect();
    let [low, high, alone] = rects[..] else { panic!("{svg}") };
    assert!((field(high, "y") + field(high, "height") - field(low, "y")).abs() < 0.2);
    let sum = field(low, "height") + field(high, "height");
    assert!((sum - field(alone, "height")).abs() < 0.3, "{svg}");
    assert!(field(alone, "x") > field(low, "x") && field(low, "x") == field(high, "x"));
}

#[test]
fn notes_are_in_the_drawing() {
    let mut noted = report(vec![]);
    noted.notes.push("the bound is Towpath's alone".to_owned());
    assert!(has(&draw(ALL[0], &noted, ""), "- the bound is Towpath's alone"));
}
