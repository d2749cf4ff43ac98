//! Tests the public API as a whole: which methods each type has, by calling each of them, and a
//! listing of all signatures in `api/public.txt`, so that reviewers see each change of the API.
//! With `ISOBATH_UPDATE=1` the test writes a new listing.

mod api {
    mod listing;
    mod matrix;
}
