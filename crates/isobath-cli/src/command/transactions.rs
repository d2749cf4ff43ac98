//! `transactions`: those that are prepared and in doubt, and what becomes of them.

use super::Outcome;
use super::open::{reading, with_database};
use super::output::Output;
use crate::cli::{DecideTransaction, ListTransactions, Transactions};
use crate::failure::Result;
use crate::text::Form;
use isobath::{Isolation, Xid};

pub(super) fn transactions(asked: &Transactions) -> Result<Outcome> {
    match asked {
        Transactions::List(asked) => list(asked),
        Transactions::Commit(asked) => {
            let xid = xid_of(asked)?;
            with_database(&asked.database.path, |db| {
                db.commit_prepared(&xid)?;
                Ok(Outcome::Yes)
            })
        }
        Transactions::Rollback(asked) => {
            let xid = xid_of(asked)?;
            with_database(&asked.database.path, |db| {
                db.rollback_prepared(&xid)?;
                Ok(Outcome::Yes)
            })
        }
    }
}

fn xid_of(asked: &DecideTransaction) -> Result<Xid> {
    Ok(Xid::new(Form::of(asked.form.hex).read(&asked.xid)?))
}

fn list(asked: &ListTransactions) -> Result<Outcome> {
    let in_doubt = reading(&asked.database.path, |db| Ok(db.in_doubt()))?;
    let (mut output, form) = (Output::new(), Form::of(asked.form.hex));
    if asked.json {
        output.json(&in_doubt)?;
    } else {
        for one in &in_doubt {
            let (xid, level) = (form.show(one.xid.as_bytes()), name_of(one.isolation));
            output.line(&format!("{xid}\t{level}\t{} bytes", one.bytes))?;
        }
    }
    output.finish()?;
    Ok(Outcome::Yes)
}

fn name_of(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadUncommitted => "read uncommitted",
        Isolation::ReadCommitted => "read committed",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::Snapshot => "snapshot",
        _ => "serializable",
    }
}
