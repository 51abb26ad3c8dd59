//! Files and what is none, opened as disks.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use towpath_disk::{Disk, NewFile, Op, Options, PAGE_BYTES, PageNumber, WritePages, open};
use towpath_memory::Pool;

const PAGES: u64 = 100;

fn new(page_count: u64, has_room: bool) -> Options {
    with_room(page_count, if has_room { page_count } else { 0 })
}

fn with_room(page_count: u64, room_pages: u64) -> Options {
    Options { create: Some(NewFile { page_count, room_pages }), ..Options::default() }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("room for a folder")
}

fn refusal(path: &Path, options: &Options) -> ErrorKind {
    match open(path, options) {
        Ok((_, report)) => panic!("it opens: {report}"),
        Err(error) => {
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
            error.source.kind()
        }
    }
}

#[test]
fn a_new_file_has_its_length_and_its_room_and_is_for_its_owner_alone() {
    let (folder, byte_len) = (folder(), PAGES * PAGE_BYTES as u64);
    for room_pages in [0, PAGES / 2, PAGES] {
        let path = folder.path().join(room_pages.to_string());
        let (disk, report) = open(&path, &with_room(PAGES, room_pages)).expect("there is room");
        assert_eq!((disk.page_count(), report.was_made, report.is_device), (PAGES, true, false));
        let found = fs::metadata(&path).expect("it is there");
        assert_eq!(found.len(), byte_len);
        let room_bytes = found.blocks() * 512;
        assert!(room_bytes >= room_pages * PAGE_BYTES as u64, "{room_bytes} bytes");
        assert_eq!(room_bytes >= byte_len, room_pages == PAGES, "{room_bytes} bytes");
        assert_eq!(found.permissions().mode() & 0o077, 0);
        assert!(disk.free_bytes().expect("it says so") > 0, "nobody else's room is the file's");
    }
}

#[test]
fn a_file_that_is_there_keeps_its_length_and_what_it_holds() {
    let folder = folder();
    let path = folder.path().join("disk");
    let mut bytes = vec![7; 3 * PAGE_BYTES + 99];
    fs::write(&path, &bytes).expect("there is room");
    let (disk, report) = open(&path, &new(PAGES, true)).expect("it is there");
    assert_eq!((disk.page_count(), report.was_made), (3, false));
    drop(disk);
    assert_eq!(fs::read(&path).expect("it is there"), bytes);
    bytes.truncate(PAGE_BYTES - 1);
    fs::write(&path, &bytes).expect("there is room");
    assert_eq!(refusal(&path, &new(PAGES, true)), ErrorKind::Other, "less than a page");
}

#[test]
fn an_empty_file_is_made_anew_as_after_a_crash() {
    let folder = folder();
    let path = folder.path().join("disk");
    File::create(&path).expect("there is room");
    assert_eq!(refusal(&path, &Options::default()), ErrorKind::Other, "nobody wants it made");
    let (disk, report) = open(&path, &new(PAGES, true)).expect("there is room");
    assert_eq!((disk.page_count(), report.was_made), (PAGES, true));
}

#[test]
fn a_file_for_which_there_is_no_room_takes_none() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = folder.path().join("disk");
    // A file system in memory knows at once that it has less than 64 TiB.
    assert_eq!(refusal(&path, &new(1 << 34, true)), ErrorKind::StorageFull);
    let found = fs::metadata(&path).expect("the name may stay");
    assert_eq!((found.len(), found.blocks()), (0, 0));
    open(&path, &new(PAGES, true)).expect("there is room for so few");
}

#[test]
fn what_is_no_file_and_what_is_not_there_is_refused() {
    let folder = folder();
    let nowhere = folder.path().join("nowhere");
    assert_eq!(refusal(&nowhere, &Options::default()), ErrorKind::NotFound);
    assert!(!nowhere.exists());
    assert_eq!(refusal(folder.path(), &new(PAGES, true)), ErrorKind::IsADirectory);
    let null = open(Path::new("/dev/null"), &Options::default()).err().expect("it is neither");
    assert_eq!((null.step, null.source.kind()), ("opening", ErrorKind::Other));
    assert_eq!(refusal(&nowhere, &new(0, true)), ErrorKind::FileTooLarge);
    assert_eq!(refusal(&nowhere, &new(u64::MAX, true)), ErrorKind::FileTooLarge);
}

#[test]
fn the_page_cache_is_passed_by_only_where_that_is_wanted() {
    let folder = folder();
    let path = folder.path().join("disk");
    let options = Options { is_direct: false, ..new(PAGES, true) };
    let (disk, report) = open(&path, &options).expect("there is room");
    assert!(!report.is_direct, "{report}");
    drop(disk);
    // Whether this file system can is its own affair, and the disk works either way.
    let (disk, report) = open(&path, &Options::default()).expect("it is there");
    println!("{report}, {} pages", disk.page_count());
}

/// Writes a page and flushes; how the flush ends.
fn flush_after_a_write(disk: &mut dyn Disk) -> Result<(), ErrorKind> {
    let pool = Pool::with_count(PAGE_BYTES, 1).expect("memory");
    let mut page = pool.take().expect("a fresh pool");
    page.set_len(PAGE_BYTES).expect("it fits");
    let from = WritePages::new(page).expect("it is a page");
    let mut outcome = Ok(());
    for op in [Op::write(PageNumber(3), from), Op::Flush] {
        disk.submit(0, op).expect("it has nothing else to do");
        let mut done = Vec::new();
        while done.is_empty() {
            disk.wait(Duration::from_secs(10), &mut done).expect("it speaks");
        }
        outcome = done.remove(0).outcome.map_err(|error| error.source.kind());
    }
    outcome
}

#[test]
fn a_flush_of_a_file_that_was_removed_or_moved_away_fails() {
    let ways: [fn(&Path); 3] = [
        |path| fs::remove_file(path).expect("it is there"),
        |path| fs::remove_dir_all(path.parent().expect("a folder")).expect("it is there"),
        |path| {
            let folder = path.parent().expect("a folder");
            fs::rename(folder, folder.with_extension("old")).expect("it is there");
            fs::create_dir(folder).expect("room for a folder");
            fs::write(path, [0; PAGE_BYTES]).expect("room for another file");
        },
    ];
    for in_memory in [false, true] {
        for (is_uring, is_direct) in [(true, true), (false, false)] {
            for (number, way) in ways.iter().enumerate() {
                let outer = match in_memory && Path::new("/dev/shm").is_dir() {
                    true => tempfile::tempdir_in("/dev/shm").expect("room for a folder"),
                    false => folder(),
                };
                let path = outer.path().join("data/disk");
                fs::create_dir(outer.path().join("data")).expect("room for a folder");
                let options = Options { is_uring, is_direct, ..new(PAGES, true) };
                let (mut disk, report) = open(&path, &options).expect("there is room");
                println!("way {number}: {report}");
                way(&path);
                assert_eq!(flush_after_a_write(&mut *disk), Err(ErrorKind::NotFound));
            }
        }
    }
    let folder = folder();
    let (mut disk, _) = open(&folder.path().join("disk"), &new(PAGES, true)).expect("room");
    (0..3).for_each(|_| assert_eq!(flush_after_a_write(&mut *disk), Ok(())));
}
