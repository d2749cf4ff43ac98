//! The bank's books: which column family holds what, under which keys, and how they are opened and
//! first filled.
//!
//! ```text
//! default      "founded" = number of accounts    "day" = the day    "done" TELLER = jobs done for the teller
//! accounts     ACCOUNT = balance
//! entries      TELLER NUMBER = a transfer; a teller's numbers begin with 1 and have no holes
//! statements   ACCOUNT TELLER NUMBER = what the transfer did to the account
//! queue        TELLER NUMBER = a transfer whose message is not sent yet
//! letters      TELLER NUMBER = a long statement: that of the teller's last transfer with one
//! day-N        ACCOUNT = transfers of the day N that the account took part in
//! archive      the day before, once it has been put away
//! ```
//!
//! Numbers are big-endian. Money neither comes nor goes: the sum of all balances is what the bank
//! was founded with. A letter may also be there for the transfer that the teller makes next.

use crate::Trouble;
use isobath::{Batch, Codec, Db, Error, Family, FamilyOptions, WriteOptions, Xid};
use std::sync::{Mutex, RwLock};

/// Tellers, each a thread that transfers money.
pub(crate) const TELLERS: usize = 3;
pub(crate) const ACCOUNTS: u64 = 24;
pub(crate) const OPENING_BALANCE: i64 = 1000;
pub(crate) const ARCHIVE: &str = "archive";
/// The families that are always there.
pub(crate) const FAMILIES: [&str; 5] = ["accounts", "entries", "statements", "queue", "letters"];

/// An open bank.
pub(crate) struct Bank {
    pub(crate) db: Db,
    pub(crate) accounts: Family,
    pub(crate) entries: Family,
    pub(crate) statements: Family,
    pub(crate) queue: Family,
    pub(crate) letters: Family,
    /// A thread that writes a batch holds the locks of both accounts, from reading their balances
    /// to writing the new ones. Transactions share them: they are protected from each other by the
    /// engine, but a batch that read before them would undo them.
    pub(crate) locks: Vec<RwLock<()>>,
    /// By teller. A batch that is written twice would bring back a job that was done in between. So
    /// a thread holds this lock while it writes such a batch, or does jobs of the teller.
    pub(crate) jobs: Vec<Mutex<()>>,
    /// A transfer belongs to one day: a thread holds this for reading while it makes one.
    pub(crate) day: RwLock<Day>,
    /// A family that was dropped.
    pub(crate) dropped: Mutex<Option<Family>>,
}

/// The present day.
#[derive(Clone)]
pub(crate) struct Day {
    pub(crate) number: u64,
    pub(crate) family: Family,
}

impl Bank {
    /// Takes over a database in which there is a bank, or founds one.
    pub(crate) fn of(db: Db) -> Result<Bank, Trouble> {
        let is_founded = db.contains("founded")?;
        for name in FAMILIES {
            if is_founded && db.family_if_exists(name)?.is_none() {
                return Err(Trouble::wrong(format!("{name} is gone")));
            }
        }
        db.open_families(FAMILIES.map(|name| match name {
            "entries" => (name, FamilyOptions::new().codec(Codec::Zstd).block_size(1 << 10)),
            "queue" => (name, FamilyOptions::new().filter_bits_per_key(0)),
            "statements" => (name, FamilyOptions::new().level_size_ratio(4).separate_from(10)),
            _ => (name, FamilyOptions::new().level_size_ratio(4)),
        }))?;
        let day = if is_founded { number(&db, b"day")? } else { found(&db)? };
        Ok(Bank {
            accounts: db.existing("accounts")?,
            entries: db.existing("entries")?,
            statements: db.existing("statements")?,
            queue: db.existing("queue")?,
            letters: db.existing("letters")?,
            locks: (0..ACCOUNTS).map(|_| RwLock::new(())).collect(),
            jobs: (0..TELLERS).map(|_| Mutex::new(())).collect(),
            day: RwLock::new(Day { number: day, family: db.existing(&day_name(day))? }),
            dropped: Mutex::new(None),
            db,
        })
    }
}

/// Opens all accounts by one synced batch. Returns the day.
fn found(db: &Db) -> Result<u64, Trouble> {
    db.family(day_name(0))?;
    let accounts = db.existing("accounts")?;
    let mut batch = Batch::with_capacity(1 << 10);
    batch.put("founded", ACCOUNTS.to_be_bytes()).put("day", 0_u64.to_be_bytes());
    for account in 0..ACCOUNTS {
        batch.of(&accounts).put(account.to_be_bytes(), OPENING_BALANCE.to_be_bytes());
    }
    db.with(WriteOptions::sync()).write(batch)?;
    Ok(0)
}

pub(crate) fn day_name(day: u64) -> String {
    format!("day-{day}")
}

pub(crate) fn done_key(teller: usize) -> Vec<u8> {
    [b"done", &[teller as u8][..]].concat()
}

/// The name of a transfer in two phases.
pub(crate) fn transfer_name(teller: usize, number: u64) -> Xid {
    Xid::new(format!("transfer {teller}.{number}"))
}

/// The key of an entry, of its job, and of its letter.
pub(crate) fn entry_key(teller: usize, number: u64) -> Vec<u8> {
    [&[teller as u8][..], &number.to_be_bytes()].concat()
}

/// Teller and number of an entry's key.
pub(crate) fn of_entry_key(key: &[u8]) -> Result<(usize, u64), Trouble> {
    match key.split_first() {
        Some((teller, number)) if usize::from(*teller) < TELLERS => {
            Ok((usize::from(*teller), decode(number)?))
        }
        _ => {
            Err(Trouble::wrong(format!("a key of no teller: {:?}", key.escape_ascii().to_string())))
        }
    }
}

pub(crate) fn statement_key(account: u64, teller: usize, number: u64) -> Vec<u8> {
    [&account.to_be_bytes()[..], &entry_key(teller, number)].concat()
}

/// A number of the default family; 0 if it is not there.
pub(crate) fn number(db: &Db, key: &[u8]) -> Result<u64, Trouble> {
    db.get(key)?.map_or(Ok(0), |value| decode(&value))
}

pub(crate) fn decode(bytes: &[u8]) -> Result<u64, Trouble> {
    let bytes = bytes.try_into();
    bytes.map(u64::from_be_bytes).map_err(|_| Trouble::wrong("a number is not of eight bytes"))
}

/// Money that goes from one account to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) amount: i64,
    pub(crate) day: u64,
    /// The length of the memo, from which its text follows.
    pub(crate) memo_len: u64,
    /// The length of the letter about it; 0 if there is none.
    pub(crate) letter_len: u64,
}

impl Transfer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48 + self.memo_len as usize);
        let Transfer { from, to, amount, day, memo_len, letter_len } = *self;
        for part in [from, to, amount as u64, day, memo_len, letter_len] {
            bytes.extend(part.to_be_bytes());
        }
        bytes.extend(self.memo());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Transfer, Trouble> {
        let short = || Trouble::wrong("an entry is too short");
        let part = |index: usize| decode(bytes.get(index * 8..index * 8 + 8).ok_or_else(short)?);
        let transfer = Transfer {
            from: part(0)?,
            to: part(1)?,
            amount: part(2)? as i64,
            day: part(3)?,
            memo_len: part(4)?,
            letter_len: part(5)?,
        };
        let is_whole = transfer.from < ACCOUNTS
            && transfer.to < ACCOUNTS
            && transfer.memo_len <= bytes.len() as u64
            && transfer.encode() == bytes;
        if is_whole {
            Ok(transfer)
        } else {
            Err(Trouble::wrong("an entry is not what was written"))
        }
    }

    fn memo(&self) -> impl Iterator<Item = u8> {
        let seed = self.from ^ (self.amount as u64);
        (0..self.memo_len).map(move |at| (seed.wrapping_mul(31) + at * at % 23) as u8)
    }
}

/// Families that must exist already.
pub(crate) trait Existing {
    /// The family of this name, or [`UnknownFamily`](isobath::ErrorKind::UnknownFamily).
    fn existing(&self, name: &str) -> isobath::Result<Family>;
}

impl Existing for Db {
    fn existing(&self, name: &str) -> isobath::Result<Family> {
        self.family_if_exists(name)?.ok_or_else(|| Error::unknown_family(name))
    }
}
