//! Rounds of what is compared, in turn.

use towpath_lab::studies::{Params, Runner, StudyError};

/// Measures each of `points` once in each round, one at a time, so that what the machine does
/// beside it meets all of them; returns the rounds of each point.
///
/// # Errors
/// The first of a measurement, or [`StudyError::Stopped`].
pub fn in_turn<P: Sync, T: Send>(
    params: &Params,
    runner: &Runner<'_>,
    points: &[P],
    measure: impl Fn(&P) -> Result<T, StudyError> + Sync,
) -> Result<Vec<Vec<T>>, StudyError> {
    let turns: Vec<&P> = (0..params.count("rounds")).flat_map(|_| points).collect();
    let runs = runner.one_at_a_time().map(&turns, |&point| measure(point))?;
    let mut of_points: Vec<Vec<T>> = points.iter().map(|_| Vec::new()).collect();
    for (run, place) in runs.into_iter().zip((0..points.len()).cycle()) {
        of_points[place].push(run);
    }
    Ok(of_points)
}
