//! `families`: list, create, drop, rename, clone.

use super::Outcome;
use super::open::{Existing, family_options, reading, with_database};
use super::output::Output;
use crate::cli::{Families, ListFamilies};
use crate::failure::{Failure, Result};
use isobath::FamilyOptions;
use serde::Serialize;

#[derive(Serialize)]
struct Listed {
    id: u32,
    name: String,
    options: FamilyOptions,
}

pub(super) fn families(asked: &Families) -> Result<Outcome> {
    match asked {
        Families::List(asked) => list(asked),
        Families::Create(asked) => with_database(&asked.database.path, |db| {
            if db.family_if_exists(&asked.name)?.is_some() {
                return Err(Failure::Request(format!(
                    "a column family {:?} exists already",
                    asked.name
                )));
            }
            db.family((&asked.name, family_options(&asked.family)?))?;
            Ok(Outcome::Yes)
        }),
        Families::Drop(asked) => with_database(&asked.database.path, |db| {
            db.drop_family(&db.existing(&asked.name)?)?;
            Ok(Outcome::Yes)
        }),
        Families::Rename(asked) => with_database(&asked.database.path, |db| {
            db.rename_family(&db.existing(&asked.name)?, &asked.new_name)?;
            Ok(Outcome::Yes)
        }),
        Families::Clone(asked) => with_database(&asked.database.path, |db| {
            db.clone_family(&db.existing(&asked.source)?, &asked.name)?;
            Ok(Outcome::Yes)
        }),
    }
}

fn list(asked: &ListFamilies) -> Result<Outcome> {
    reading(&asked.database.path, |db| {
        let mut output = Output::new();
        let names = db.list_families();
        if asked.json {
            let mut listed = Vec::with_capacity(names.len());
            for name in names {
                let family = db.existing(&name)?;
                listed.push(Listed { id: family.id(), name, options: family.options() });
            }
            output.json(&listed)?;
        } else {
            for name in names {
                output.line(&name)?;
            }
        }
        output.finish()?;
        Ok(Outcome::Yes)
    })
}
