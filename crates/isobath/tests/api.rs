//! The public API as a whole: which methods each type has, by calling each of them, and a listing
//! of all signatures in `api/public.txt`, so that a change of the API is seen in review. With
//! `ISOBATH_UPDATE=1` the listing is written anew.

mod api {
    mod listing;
    mod matrix;
}
