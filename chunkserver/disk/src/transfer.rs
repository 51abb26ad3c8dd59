//! Whole reads and writes out of calls that may do a part only.

use std::io::{self, IoSlice, IoSliceMut};

use smallvec::SmallVec;

/// Buffers that take no allocation.
const AT_EASE: usize = 4;

/// Whether a call that failed in this way is made again: nothing is wrong.
fn is_repeated(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

/// Fills all of `into` with the bytes from `offset` on.
pub(crate) fn read_all<'a>(
    into: impl IntoIterator<Item = &'a mut [u8]>,
    mut offset: u64,
    mut call: impl FnMut(&mut [IoSliceMut<'a>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut slices: SmallVec<[IoSliceMut<'a>; AT_EASE]> =
        into.into_iter().map(IoSliceMut::new).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        match call(left, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                offset += len as u64;
                IoSliceMut::advance_slices(&mut left, len);
            }
            Err(error) if is_repeated(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `from` to where `offset` is and behind.
pub(crate) fn write_all<'a>(
    from: impl IntoIterator<Item = &'a [u8]>,
    mut offset: u64,
    mut call: impl FnMut(&[IoSlice<'a>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut slices: SmallVec<[IoSlice<'a>; AT_EASE]> = from.into_iter().map(IoSlice::new).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        match call(left, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => {
                offset += len as u64;
                IoSlice::advance_slices(&mut left, len);
            }
            Err(error) if is_repeated(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    /// A medium that does at most some bytes at a time, and is interrupted now and then.
    fn part(prng: &mut Prng, most: usize) -> io::Result<usize> {
        match prng.chance(0.2) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(prng.between(1, most as u64) as usize),
        }
    }

    #[test]
    fn what_a_call_does_in_part_is_gone_on_with_where_it_ended() {
        for seed in 0..200 {
            println!("seed {seed}");
            let mut prng = Prng::new(seed);
            let mut bytes = [0; 900];
            prng.fill(&mut bytes);
            let mut medium = [0; 1_000];
            let (first, rest) = bytes.split_at(prng.below(900) as usize);
            let from = [first, &rest[..rest.len() / 2], &rest[rest.len() / 2..]];
            write_all(from, 100, |slices, offset| {
                let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                let len = part(&mut prng, all.len())?;
                medium[offset as usize..][..len].copy_from_slice(&all[..len]);
                Ok(len)
            })
            .expect("it always goes on");
            assert_eq!(medium[100..], bytes);
            let mut back = [0; 900];
            let (first, rest) = back.split_at_mut(prng.below(900) as usize);
            read_all([first, rest], 100, |slices, offset| {
                let all: usize = slices.iter().map(|slice| slice.len()).sum();
                let len = part(&mut prng, all)?;
                let mut left = &medium[offset as usize..][..len];
                for slice in slices {
                    let (now, then) = left.split_at(left.len().min(slice.len()));
                    slice[..now.len()].copy_from_slice(now);
                    left = then;
                }
                Ok(len)
            })
            .expect("it always goes on");
            assert_eq!(back, bytes);
        }
    }

    #[test]
    fn an_end_and_an_error_end_it() {
        let end = read_all([&mut [0; 4][..]], 0, |_, at| Ok(if at == 0 { 2 } else { 0 }));
        assert_eq!(end.map_err(|e| e.kind()), Err(io::ErrorKind::UnexpectedEof));
        let end = write_all([&[0; 4][..]], 0, |_, at| Ok(if at == 0 { 2 } else { 0 }));
        assert_eq!(end.map_err(|e| e.kind()), Err(io::ErrorKind::WriteZero));
        let full = write_all([&[0; 4][..]], 0, |_, _| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(full.map_err(|e| e.kind()), Err(io::ErrorKind::StorageFull));
    }
}
