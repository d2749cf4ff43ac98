//! RocksDB as a [`Store`]: its own defaults, with buffers as small as Isobath's.

use super::{Failure, Store};
use crate::kernel::check::Found;
use crate::kernel::history::{FAMILIES, Plan, Value, Write};
use rocksdb::{DB, IteratorMode, Options, WriteBatch, WriteOptions};
use std::path::Path;

struct RocksDb(DB);

impl From<rocksdb::Error> for Failure {
    fn from(error: rocksdb::Error) -> Failure {
        match error.kind() {
            rocksdb::ErrorKind::IOError => Failure::Io(error.to_string()),
            _ => Failure::Other(error.to_string()),
        }
    }
}

pub(super) fn open(dir: &Path, plan: &Plan) -> Result<Box<dyn Store>, Failure> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_write_buffer_size(plan.write_buffer as usize);
    Ok(Box::new(RocksDb(DB::open_cf(&options, dir, FAMILIES)?)))
}

impl RocksDb {
    fn family(&self, family: usize) -> &rocksdb::ColumnFamily {
        self.0.cf_handle(FAMILIES[family]).expect("opened with all of them")
    }
}

impl Store for RocksDb {
    fn read_all(&self) -> Result<Found, Failure> {
        let mut found = Found::default();
        for (family, values) in found.families.iter_mut().enumerate() {
            for row in self.0.iterator_cf(self.family(family), IteratorMode::Start) {
                let (key, value) = row?;
                values.insert(key.into_vec(), value.into_vec());
            }
        }
        Ok(found)
    }

    fn write(&self, writes: &[Write], is_synced: bool) -> Result<u64, Failure> {
        let mut batch = WriteBatch::default();
        for Write { place: (family, key), value, .. } in writes {
            match value.as_ref().map(Value::bytes) {
                Some(value) => batch.put_cf(self.family(*family), key, value),
                None => batch.delete_cf(self.family(*family), key),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(is_synced);
        self.0.write_opt(batch, &options)?;
        Ok(0)
    }

    fn sync(&self) -> Result<u64, Failure> {
        self.0.flush_wal(true)?;
        Ok(0)
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(self.0.flush()?)
    }

    fn compact(&self) -> Result<(), Failure> {
        self.0.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}
