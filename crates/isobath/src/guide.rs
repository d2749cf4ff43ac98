//! The pages of the guide (`docs/guide/`) as doc tests: each program in them is compiled and run.
//! This module is in no build.

#[doc = include_str!("../guide/README.md")]
mod contents {}
#[doc = include_str!("../guide/opening.md")]
mod opening {}
#[doc = include_str!("../guide/families.md")]
mod families {}
#[doc = include_str!("../guide/durability.md")]
mod durability {}
#[doc = include_str!("../guide/deleting-ranges.md")]
mod deleting_ranges {}
#[doc = include_str!("../guide/expiry.md")]
mod expiry {}
#[doc = include_str!("../guide/merge-operators.md")]
mod merge_operators {}
#[doc = include_str!("../guide/large-values.md")]
mod large_values {}
#[doc = include_str!("../guide/compaction-filters.md")]
mod compaction_filters {}
#[doc = include_str!("../guide/reading-while-writing.md")]
mod reading_while_writing {}
#[doc = include_str!("../guide/time-travel.md")]
mod time_travel {}
#[doc = include_str!("../guide/ingest.md")]
mod ingest {}
#[doc = include_str!("../guide/transactions.md")]
mod transactions {}
#[doc = include_str!("../guide/queue.md")]
mod queue {}
#[doc = include_str!("../guide/backups.md")]
mod backups {}
#[doc = include_str!("../guide/tuning.md")]
mod tuning {}
#[doc = include_str!("../guide/from-rocksdb.md")]
mod from_rocksdb {}
