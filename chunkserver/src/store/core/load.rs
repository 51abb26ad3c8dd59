//! Reads a checkpoint: the directory, and the pages of the map that it names.

use std::io;

use super::blocking::Blocking;
use super::directory::{ENTRIES, Entry, decode as decode_directory};
use super::map::Map;
use super::map_damage;
use super::map_page::{BLOCKS, decode};
use super::page::PageBytes;
use super::superblock::Superblock;
use crate::store::damage::Damage;

/// A checkpoint as far as it can be read.
pub(super) struct Loaded {
    pub(super) map: Map,
    /// By page of the map.
    pub(super) entries: Vec<Entry>,
    /// What of it cannot be read, or is something else.
    pub(super) damage: Vec<Damage>,
}

/// Reads all of the checkpoint that `superblock` names.
pub(super) fn load(disk: &mut Blocking<'_>, superblock: &Superblock) -> io::Result<Loaded> {
    let Superblock { layout, store_id, generation, map_pages_used, .. } = *superblock;
    let mut damage = Vec::new();
    let mut entries = vec![Entry::default(); map_pages_used as usize];
    let pages = map_pages_used.div_ceil(ENTRIES as u32);
    let wanted = (0..pages).map(|page| (page.into(), layout.directory_page(generation, page)));
    let mut bad_entries = Vec::new();
    disk.each(wanted, |page, bytes| {
        let first = page as usize * ENTRIES;
        let found = bytes.and_then(|bytes| decode_directory(bytes).ok());
        let is_it = |index: u64, found_generation: u64, id: u64| {
            index == page && found_generation == generation && id == store_id
        };
        match found.filter(|(head, _)| is_it(head.index, head.generation, head.store_id)) {
            Some((_, found)) => {
                let last = entries.len().min(first + ENTRIES);
                entries[first..last].copy_from_slice(&found[..last - first]);
            }
            None => bad_entries.push(page as u32),
        }
    })?;
    for page in bad_entries {
        let at = layout.directory_page(generation, page);
        damage.push(map_damage(at, "a page of the directory is damaged"));
    }
    let mut map = Map::new(layout.blocks());
    let mut bad_pages = Vec::new();
    let written = entries.iter().enumerate().filter(|(_, entry)| entry.generation != 0);
    let wanted = written.map(|(page, at)| (page as u64, layout.map_page(page as u32, at.place)));
    disk.each(wanted, |page, bytes| {
        if !take(&mut map, page as u32, store_id, entries[page as usize], bytes) {
            bad_pages.push(page as u32);
        }
    })?;
    for page in bad_pages {
        let at = layout.map_page(page, entries[page as usize].place);
        damage.push(map_damage(at, "a page of the map is damaged"));
    }
    map.finish_load(map_pages_used);
    Ok(Loaded { map, entries, damage })
}

/// Takes in a page of the map; false where it is not the one that it should be.
fn take(map: &mut Map, page: u32, store_id: u64, entry: Entry, bytes: Option<&PageBytes>) -> bool {
    let Some(Ok((head, crc, blocks))) = bytes.map(decode) else { return false };
    let is_it = head.store_id == store_id
        && head.index == u64::from(page)
        && head.generation == entry.generation
        && crc == entry.crc;
    if !is_it {
        return false;
    }
    let mut is_sound = true;
    for (number, block) in blocks.into_iter().enumerate() {
        if let Some(block) = block {
            is_sound &= map.load(page * BLOCKS as u32 + number as u32, block);
        }
    }
    is_sound
}
