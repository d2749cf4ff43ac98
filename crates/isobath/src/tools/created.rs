//! Families that records of the log create, for tools: whether an open by this build accepts their
//! options, which a record carries as bytes.

use crate::error::Decoded;
use crate::format::{Lsn, Payload};
use crate::options::FamilyOptions;

/// Fails if the record at `lsn` creates a family whose options an open by this build refuses. Of
/// changes up to `changes_known` an open goes by the manifest.
pub(super) fn demand_options(lsn: Lsn, payload: &Payload<'_>, changes_known: Lsn) -> Decoded<()> {
    match payload {
        Payload::FamilyCreate { options, .. } if lsn > changes_known => {
            FamilyOptions::from_stored(options)?.demand_codecs().map(drop)
        }
        _ => Ok(()),
    }
}
