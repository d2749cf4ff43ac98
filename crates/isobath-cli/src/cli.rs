//! The arguments of the command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  done; for `get` the key is there, for `verify` and `dump` nothing is damaged, for `repair` nothing was lost
  1  `get`, `expire`: the key is not there; `transact`: something was not as the script expects; `verify`, `dump`: damage was found; `repair`: something was lost
  2  it could not be done: standard error says why and what to do
  3  it was done, or may have been, and then something failed: standard error says what; look before you repeat it

Keys and values are text: printable characters stand for themselves, a backslash is \\\\, other bytes are \\xNN (\\t, \\n, \\r and \\0 are understood too). With --hex they are pairs of hexadecimal digits. What begins with a dash comes after `--`.";

const TRANSACT_HELP: &str = "\
One operation a line; empty lines and lines that begin with # are skipped:
  put KEY VALUE        set a key
  delete KEY           remove a key; not an error if it is not there
  delete_range KEY END remove all keys from KEY on and below END
  delete_from KEY      remove all keys from KEY on
  delete_prefix PREFIX remove all keys that begin with it
  delete_all           remove all keys of the column family
  get KEY              print the key and its value, separated by a tab, once all is done; nothing if it is not there
  expect KEY VALUE     end with exit code 1, and change nothing, unless the key has this value
  expect-absent KEY    the same, unless the key is not there
  family NAME          the lines from here on mean this column family; at first it is `default`
  commit               the script is whole, and nothing follows; a script from a pipe has to end so

An operation sees what the lines before it did. With a tab in a line, tabs separate its words, so that words may hold spaces; otherwise spaces do. No key of delete_range or delete_from is empty, and no prefix. A line that cannot be read is found before the database is opened, and what depends on the database once it is open: a column family that is not there, a key that is too long, a value that the merge operator cannot read. Either way nothing is written.";

/// Look into, verify and change an Isobath database
#[derive(Debug, Parser)]
#[command(name = "isobath", version, propagate_version = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a database in a new or empty directory
    Create(Create),
    /// Print the value of a key; exit code 1 and no output if it is not there
    Get(Get),
    /// Set a key to a value
    Put(Put),
    /// Give the value of a key another end; exit code 1 if the key is not there
    Expire(Expire),
    /// Add an operand to a key: the merge operator of its column family makes the value
    Merge(Merge),
    /// Remove a key; not an error if it is not there
    Delete(Delete),
    /// Load sorted keys with their values, all at once, past the log
    Ingest(Ingest),
    /// Run a script of operations: all of them happen together, or none
    Transact(Transact),
    /// List prepared transactions that are in doubt, and decide them
    #[command(subcommand)]
    Transactions(Transactions),
    /// Print the keys of a range with their values, one entry a line, separated by a tab
    Scan(Scan),
    /// Print about how many keys a range has, and how much room they take, without reading them
    Estimate(Estimate),
    /// List and manage column families
    #[command(subcommand)]
    Families(Families),
    /// Move everything written so far from the log into tables
    Flush(Database),
    /// Compact a column family down to its last level
    Compact(Compact),
    /// Print what the database consists of and what it costs
    Stats(Stats),
    /// Check every checksum of every file; changes nothing; exit code 1 if damage was found
    Verify(Verify),
    /// Make a damaged database usable again with all that is readable, and say what was lost; a
    /// sound one is left alone. What is damaged is moved to the folder lost+found; exit code 1
    /// if something was lost
    Repair(Repair),
    /// Print what one file says: a manifest, CURRENT, a table or a log segment, whole or damaged;
    /// changes nothing; exit code 1 if damage was met
    Dump(Dump),
}

/// Which database.
#[derive(Args, Debug)]
pub(crate) struct Database {
    /// The database's directory
    #[arg(value_name = "DB")]
    pub(crate) path: PathBuf,
}

/// Which family of which database.
#[derive(Args, Debug)]
pub(crate) struct Keyspace {
    #[command(flatten)]
    pub(crate) database: Database,
    /// The column family
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub(crate) family: String,
}

#[derive(Args, Debug)]
pub(crate) struct HexFlag {
    /// Read and print keys and values as pairs of hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SyncFlag {
    /// Return only once it survives power loss, not just the death of the process
    #[arg(long)]
    pub(crate) sync: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) family: FamilyFlags,
}

#[derive(Args, Debug)]
pub(crate) struct FamilyFlags {
    /// How tables are compressed at every level [default: none in level 0, lz4 below]
    #[arg(long, value_enum)]
    pub(crate) codec: Option<CodecName>,
    /// The merge operator, for `merge`: isobath.append, isobath.counter, isobath.max, isobath.min
    /// or isobath.set_union; it stays for good [default: none]
    #[arg(long, value_name = "NAME")]
    pub(crate) merge_operator: Option<String>,
    /// How long values live that are put without --ttl, such as 90s, 15m, 2h or 3d [default: for
    /// ever]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<String>,
    /// Values of so many bytes and more lie in blob files, apart from their keys [default: none do]
    #[arg(long, value_name = "BYTES")]
    pub(crate) separate_from: Option<u64>,
    /// For how long deleted values may stay in tables, such as 15m, 2h or 3d [default: no bound]
    #[arg(long, value_name = "DURATION")]
    pub(crate) delete_within: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CodecName {
    None,
    Lz4,
    Zstd,
    Snappy,
}

#[derive(Args, Debug)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) keyspace: Keyspace,
    /// The key
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) form: HexFlag,
    /// Print the value's bytes as they are, and no newline
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print when the value ends, or `never`, instead of the value
    #[arg(long, conflicts_with = "raw")]
    pub(crate) expiry: bool,
    #[command(flatten)]
    pub(crate) when: AsOf,
}

#[derive(Args, Debug)]
#[command(override_usage = "isobath put [OPTIONS] <DB> <KEY> <VALUE|--from-file <FILE>>")]
pub(crate) struct Put {
    #[command(flatten)]
    pub(crate) keyspace: Keyspace,
    /// The key
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) value: GivenValue,
    /// When the value ends: a duration from now on such as 90s, 15m, 2h or 3d, a time such as
    /// 2026-11-22T15:04:05Z, or `never` [default: as the column family says]
    #[arg(long, value_name = "END")]
    pub(crate) ttl: Option<String>,
    #[command(flatten)]
    pub(crate) form: HexFlag,
    #[command(flatten)]
    pub(crate) sync: SyncFlag,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct GivenValue {
    /// The value; '' is the empty one. What a bundled merge operator of the column family cannot
    /// read is refused
    pub(crate) value: Option<OsString>,
    /// Take the value from a file, byte by byte as it is; `-` is standard input. A pipe must not be
    /// empty
    #[arg(long, value_name = "FILE")]
    pub(crate) from_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Expire {
    #[command(flatten)]
    pub(crate) keyspace: Keyspace,
    /// The key
    pub(crate) key: OsString,
    /// When its value ends: a duration from now on such as 90s, 15m, 2h or 3d, a time such as
    /// 2026-11-22T15:04:05Z, or `never`
    pub(crate) end: String,
    #[command(flatten)]
    pub(crate) form: HexFlag,
    #[command(flatten)]
    pub(crate) sync: SyncFlag,
}

#[derive(Args, Debug)]
pub(crate) struct Merge {
    #[command(flatten)]
    pub(crate) keyspace: Keyspace,
    /// The key
    pub(crate) key: OsString,
    /// The operand; a counter's has eight bytes, as in --hex 0100000000000000. What a bundled merge
    /// operator cannot read is refused
    pub(crate) operand: OsString,
    #[command(flatten)]
    pub(crate) form: HexFlag,
    #[command(flatten)]
    pub(crate) sync: SyncFlag,
}

#[derive(Args, Debug)]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) keyspace: Keyspace,
    /// The key; or give a range by --prefix, --from, --to or --all
    #[arg(
        required_unless_present_any = ["prefix", "from", "to", "all"],
        conflicts_with_all = ["prefix", "from", "to", "all"]
    )]
    pub(crate) key: Option<OsString>,
    /// All keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to", "all"])]
    pub(crate) prefix: Option<OsString>,
    #[command(flatten)]
    pub(crate) bounds: BoundFlags,
    /// All keys of the column family
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) form: HexFlag,
    #[command(flatten)]
    pub(crate) sync: SyncFlag,
}

#[derive(Args, Debug)]
#[command(after_help = TRANSACT_HELP)]
pub(crate) struct Transact {
    #[command(flatten)]
    pub(crate) database: Database,
    /// The script; `-` for standard input. From a pipe it ends with the line `commit`; a file must
    /// not be empty
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) form: HexFlag,
    #[command(flatten)]
    pub(crate) sync: SyncFlag,
}

#[derive(Args, Debug)]
pub(crate) struct Ingest {
    #[command(flatten)]
    pub(crate) keyspace: Keyspace,
    /// Files of lines as `scan` prints them, with or without --export, in the order of the keys, or
    /// sorted files that a program has made; `-` for lines from standard input. Lines from a pipe
    /// end with the line `# end`; a file must not be empty. Only an export tells its form: digits
    /// of a plain `scan --hex` are taken for text without --hex
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) form: HexFlag,
    #[command(flatten)]
    pub(crate) sync: SyncFlag,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Transactions {
    /// Print the names of the prepared transactions that are in doubt, one a line, with their
    /// isolation levels and lengths, separated by tabs; also beside the process that has the
    /// database open
    List(ListTransactions),
    /// Commit a prepared transaction: all that it wrote happens now
    Commit(DecideTransaction),
    /// End a prepared transaction without a trace
    Rollback(DecideTransaction),
}

#[derive(Args, Debug)]
pub(crate) struct ListTransactions {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Print everything as one JSON value
    #[arg(long, conflicts_with = "hex")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) form: HexFlag,
}

#[derive(Args, Debug)]
pub(crate) struct DecideTransaction {
    #[command(flatten)]
    pub(crate) database: Database,
    /// The name that it was prepared with
    #[arg(value_name = "XID")]
    pub(crate) xid: OsString,
    #[command(flatten)]
    pub(crate) form: HexFlag,
}

#[derive(Args, Debug)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) keyspace: Keyspace,
    #[command(flatten)]
    pub(crate) bounds: BoundFlags,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<OsString>,
    /// The largest number of entries to print
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// From the greatest key to the least
    #[arg(long, short)]
    pub(crate) reverse: bool,
    /// Print no values
    #[arg(long, short)]
    pub(crate) keys_only: bool,
    /// Print for `ingest`: also when each value ends, behind another tab, and around all the lines
    /// `# begin text`, or `# begin hex`, and `# end`. `ingest` takes nothing without the last one,
    /// or in the other form. Lines without --export do not tell their form
    #[arg(long, conflicts_with_all = ["keys_only", "reverse"])]
    pub(crate) export: bool,
    #[command(flatten)]
    pub(crate) when: AsOf,
    #[command(flatten)]
    pub(crate) form: HexFlag,
}

#[derive(Args, Debug)]
pub(crate) struct Estimate {
    #[command(flatten)]
    pub(crate) keyspace: Keyspace,
    #[command(flatten)]
    pub(crate) bounds: BoundFlags,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<OsString>,
    #[command(flatten)]
    pub(crate) form: HexFlag,
}

#[derive(Args, Debug)]
pub(crate) struct AsOf {
    /// Read the database as it was: at a time (2026-11-22T15:04:05Z, or 90s, 15m, 2h or 3d ago), or
    /// at a read point of 32 hexadecimal digits. What was written since the last flush has no time
    /// yet; a column family that was created later is empty, also if one of its name was there
    #[arg(long, value_name = "WHEN")]
    pub(crate) as_of: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct BoundFlags {
    /// The least key
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// Keys below this one, which must not be empty and lies above --from; itself not
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Families {
    /// Print the names of the column families, in the order of their creation
    List(ListFamilies),
    /// Create a column family
    Create(CreateFamily),
    /// Drop a column family and all its keys
    Drop(DropFamily),
    /// Give a column family another name
    Rename(RenameFamily),
    /// Make a column family that holds what another one holds; the two share their files
    Clone(CloneFamily),
}

#[derive(Args, Debug)]
pub(crate) struct ListFamilies {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Print ids, names and options as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CreateFamily {
    #[command(flatten)]
    pub(crate) database: Database,
    /// The name of the column family
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) family: FamilyFlags,
}

#[derive(Args, Debug)]
pub(crate) struct DropFamily {
    #[command(flatten)]
    pub(crate) database: Database,
    /// The name of the column family
    pub(crate) name: String,
}

#[derive(Args, Debug)]
pub(crate) struct RenameFamily {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Its name now
    pub(crate) name: String,
    /// Its name from now on
    pub(crate) new_name: String,
}

#[derive(Args, Debug)]
pub(crate) struct CloneFamily {
    #[command(flatten)]
    pub(crate) database: Database,
    /// The column family to clone
    pub(crate) source: String,
    /// The name of the clone
    pub(crate) name: String,
}

#[derive(Args, Debug)]
pub(crate) struct Compact {
    #[command(flatten)]
    pub(crate) keyspace: Keyspace,
    #[command(flatten)]
    pub(crate) bounds: BoundFlags,
    #[command(flatten)]
    pub(crate) form: HexFlag,
    /// Print what compactions did and why
    #[arg(long)]
    pub(crate) report: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Print everything as one JSON value
    #[arg(long)]
    pub(crate) json: bool,
    /// List every table file and what it holds
    #[arg(long)]
    pub(crate) files: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Print the report as one JSON value
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Repair {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Change nothing, and say what would be done; exit code 1 if anything is damaged
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Count whole log records that this version cannot read as lost, which otherwise end the
    /// repair. Only if no newer version has ever written to the database
    #[arg(long)]
    pub(crate) lose_unknown: bool,
    /// Print the report as one JSON value
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) form: HexFlag,
}

#[derive(Args, Debug)]
pub(crate) struct Dump {
    /// The file
    pub(crate) file: PathBuf,
    /// The largest number of edits, records or entries to print
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) form: HexFlag,
}
