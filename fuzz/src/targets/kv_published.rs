//! Published memory of the key-value store, as READs bring it: what it begins with, and a bucket.

use crate::class;
use std::mem::discriminant;
use towpath_kv::published::{Found, SHAPE_BYTES, Shape, find};

/// The length of a slot (one byte: multiples of 8) and of the key that is sought (one byte), then
/// the key, then what memory begins with, then a bucket.
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((&[slot, key_len], rest)) = input.split_first_chunk() else { return 0 };
    let Some((key, rest)) = rest.split_at_checked(usize::from(key_len)) else { return 1 };
    let (shape, bucket) = match rest.split_first_chunk::<SHAPE_BYTES>() {
        Some((bytes, bucket)) => match Shape::parse(bytes, 1 << 24) {
            Ok(shape) => {
                assert!(shape.bytes() <= 1 << 24 && shape.bucket_of(key) < shape.buckets);
                (2, bucket)
            }
            Err(error) => {
                (crate::fnv1a(format!("{:?}", discriminant(&error)).into_bytes()), bucket)
            }
        },
        None => (3, rest),
    };
    let found = match find(bucket, usize::from(slot) * 8, key) {
        Found::Value(value) => {
            assert!(value.len() + key.len() < bucket.len());
            4
        }
        Found::Absent => 5,
        Found::Closed => 6,
        Found::Torn => 7,
    };
    class(&[shape, found])
}

#[cfg(test)]
mod tests {
    use crate::seeds;
    use std::sync::Arc;
    use towpath_base::Time;
    use towpath_kv::published::Published;
    use towpath_kv::{Evict, Put, Store, Table};

    #[test]
    fn seeds_are_those_committed() {
        let published = Arc::new(Published::new(1 << 14, 64).expect("memory"));
        let table = Table::publishing(8 << 20, Evict::Never, Arc::clone(&published));
        table.set(b"key", b"value", Put::ALWAYS, Time::ZERO).expect("room");
        let shape = published.shape();
        let mut bucket = vec![0; shape.bucket_bytes()];
        let place = shape.place(shape.bucket_of(b"key"));
        published.memory().read(place, &mut bucket).expect("within");
        let with = |key: &[u8], bucket: &[u8]| {
            let head = [64 / 8, key.len() as u8];
            [&head, key, &shape.emit(), bucket].concat()
        };
        let mut closed = bucket.clone();
        closed[0] |= 1;
        let mut torn = bucket.clone();
        torn[30] ^= 1;
        let made = [
            ("there", with(b"key", &bucket)),
            ("absent", with(b"yek", &bucket)),
            ("closed", with(b"key", &closed)),
            ("torn", with(b"key", &torn)),
        ];
        seeds::check("kv_published", &made);
    }
}
