//! Tests the gaps of a family against claims that are kept for each key apart.

use super::*;
use crate::mvcc::Lsn;
use proptest::prelude::*;

/// The keys of the tests. Every gap begins and ends at one of them or directly behind it.
const KEYS: u8 = 12;

#[derive(Clone, Debug)]
enum Step {
    /// A scan finds the keys from the first on and below the second dead; so many commits have
    /// their LSN and are not visible.
    Found(u8, u8, u64),
    Put(u8),
    /// Nothing but time.
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        6 => (0..KEYS, 1..5u8, 0..3u64)
            .prop_map(|(start, len, under_way)| Step::Found(start, start + len, under_way)),
        2 => (0..KEYS).prop_map(Step::Put),
        1 => Just(Step::Commit),
    ];
    prop::collection::vec(one, 1..60)
}

/// What may be claimed of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// From this point on it was found dead, and never put.
    known: Option<Lsn>,
    /// It was announced, with this tail.
    announced: Option<Lsn>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// `Gaps` may claim less, but nothing else.
    #[test]
    fn gaps_claim_of_a_key_what_scans_have_found_and_puts_have_left(steps in steps()) {
        let mut gaps = Gaps::default();
        let mut claims = [Claim::default(); (KEYS + 5) as usize];
        let mut point = 100;
        for step in &steps {
            match *step {
                Step::Commit => point += 1,
                Step::Put(key) => {
                    gaps.cut(&[key]);
                    claims[key as usize] = Claim::default();
                    point += 1;
                }
                Step::Found(start, end, under_way) => {
                    let stretch = Stretch::of(&[start], &[end]);
                    let tail = point + under_way;
                    let claims = &mut claims[start as usize..end as usize];
                    match gaps.lesson(&stretch, point) {
                        Lesson::Nothing => {}
                        Lesson::Confirms => gaps.confirm(&stretch, point),
                        Lesson::New => {
                            gaps.announce(&stretch);
                            let is_held = |key| gaps.hold(&[key]);
                            prop_assert!((start..end).all(is_held), "writers see it before the touch");
                            gaps.touched(point, tail);
                            for claim in claims.iter_mut() {
                                claim.announced = Some(tail);
                            }
                        }
                    }
                    for claim in claims {
                        if claim.announced.is_some_and(|tail| tail <= point) {
                            claim.known.get_or_insert(point);
                        }
                    }
                }
            }
            for key in 0..KEYS + 5 {
                let claim = claims[key as usize];
                for reader in 95..point + 3 {
                    let is_claimed = gaps.find(&[key], reader).is_some();
                    prop_assert!(!is_claimed || claim.known.is_some_and(|from| from <= reader));
                    prop_assert!(!is_claimed || gaps.hold(&[key]), "a put would not cut it");
                    let at = [key];
                    let mut within = gaps.within(&at, Some(&at), reader);
                    prop_assert_eq!(is_claimed, within.any(|gap| gap.holds(&at)));
                }
            }
        }
    }
}

fn known(gaps: &Gaps, point: Lsn) -> Vec<(Vec<u8>, Vec<u8>)> {
    gaps.within(b"", None, point).map(|gap| (gap.start.to_vec(), gap.end.to_vec())).collect()
}

fn found(gaps: &mut Gaps, start: &[u8], end: &[u8], point: Lsn, tail: Lsn) {
    gaps.announce(&Stretch::of(start, end));
    gaps.touched(point, tail);
}

fn pair(start: &[u8], end: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (start.to_vec(), end.to_vec())
}

#[test]
fn a_gap_is_known_at_once_if_nothing_is_under_way_and_else_once_that_is_visible() {
    let mut gaps = Gaps::default();
    found(&mut gaps, b"b", b"d", 100, 100);
    assert_eq!(known(&gaps, 100), [pair(b"b", b"d")]);
    assert_eq!(known(&gaps, 99), [], "readers before it see what they saw");
    found(&mut gaps, b"f", b"h", 100, 130);
    assert_eq!(known(&gaps, 500), [pair(b"b", b"d")]);
    assert!(gaps.hold(b"g") && gaps.find(b"g", 500).is_none());
    let stretch = Stretch::of(b"f", b"i");
    assert_eq!(gaps.lesson(&stretch, 129), Lesson::Nothing, "it waits");
    assert_eq!(gaps.lesson(&stretch, 130), Lesson::Confirms);
    gaps.confirm(&stretch, 140);
    assert_eq!(known(&gaps, 140), [pair(b"b", b"d"), pair(b"f", b"h")]);
    assert_eq!(known(&gaps, 139), [pair(b"b", b"d")]);
    assert_eq!(gaps.lesson(&stretch, 140), Lesson::New, "it reaches further");
    assert_eq!(gaps.lesson(&Stretch::of(b"f", b"g"), 140), Lesson::Nothing);
}

#[test]
fn a_put_leaves_both_sides_of_a_gap_also_of_one_that_is_announced() {
    let mut gaps = Gaps::default();
    found(&mut gaps, b"b", b"f", 100, 100);
    found(&mut gaps, b"p", b"t", 100, 130);
    gaps.cut(b"d");
    gaps.cut(b"p");
    assert_eq!(known(&gaps, 100), [pair(b"b", b"d"), pair(b"d\0", b"f")]);
    assert!(!gaps.hold(b"d") && gaps.hold(b"d\0") && !gaps.hold(b"p") && gaps.hold(b"p\0"));
    gaps.confirm(&Stretch::of(b"a", b"z"), 130);
    assert_eq!(known(&gaps, 130).last(), Some(&pair(b"p\0", b"t")));
}

#[test]
fn a_longer_gap_takes_the_place_of_those_in_it_and_narrows_those_beside_it() {
    let mut gaps = Gaps::default();
    for (start, end) in [(b"a", b"d"), (b"e", b"f"), (b"h", b"m")] {
        found(&mut gaps, start, end, 100, 100);
    }
    found(&mut gaps, b"c", b"i", 120, 120);
    let all = [pair(b"a", b"c"), pair(b"c", b"i"), pair(b"i", b"m")];
    assert_eq!(known(&gaps, 120), all);
    assert_eq!(known(&gaps, 100), [all[0].clone(), all[2].clone()]);
    assert_eq!(gaps.lesson(&Stretch::of(b"d", b"g"), 130), Lesson::Nothing);
}

#[test]
fn a_gap_that_someone_fills_is_forgotten_after_a_while() {
    let mut gaps = Gaps::default();
    found(&mut gaps, &[0], &[200], 100, 100);
    for key in 0..gaps::CUTS_MAX {
        assert!(!gaps.is_empty(), "forgotten after {key}");
        gaps.cut(&[key]);
    }
    assert!(gaps.is_empty());
}

#[test]
fn of_too_many_gaps_the_oldest_is_forgotten() {
    let mut gaps = Gaps::default();
    for nth in 0..300u16 {
        let (start, point) = (nth.to_be_bytes(), 100 + Lsn::from(nth));
        found(&mut gaps, &start, &[start[0], start[1], 0], point, point);
    }
    let left = known(&gaps, 1000).len();
    assert!((100..300).contains(&left), "{left}");
    assert!(!gaps.hold(&[0, 0]) && gaps.hold(&299u16.to_be_bytes()));
    for nth in 0..20u16 {
        found(&mut gaps, &(1000 + nth).to_be_bytes(), &(1001 + nth).to_be_bytes(), 1000, 1001);
    }
    assert!(!gaps.hold(&1000u16.to_be_bytes()) && gaps.hold(&1019u16.to_be_bytes()));
}

#[test]
fn gaps_that_touch_do_not_overlap() {
    let mut gaps = Gaps::default();
    found(&mut gaps, b"b", b"d", 100, 130);
    // The scan is too old to confirm the gap beside which it has passed dead keys.
    assert_eq!(gaps.lesson(&Stretch::of(b"d", b"f"), 120), Lesson::New);
    assert_eq!(gaps.lesson(&Stretch::of(b"a", b"b"), 120), Lesson::New);
    assert_eq!(gaps.lesson(&Stretch::of(b"c", b"f"), 120), Lesson::Nothing);
    found(&mut gaps, b"d", b"f", 120, 130);
    gaps.confirm(&Stretch::of(b"a", b"z"), 130);
    assert_eq!(known(&gaps, 130), [pair(b"b", b"d"), pair(b"d", b"f")]);
}

#[test]
fn two_gaps_in_a_row_become_one_and_long_keys_bound_none() {
    let mut gaps = Gaps::default();
    found(&mut gaps, b"b", b"d", 100, 100);
    found(&mut gaps, b"d", b"f", 100, 100);
    let mut walk = Walk::new(Some(gaps.into()), 100);
    walk.begin();
    assert_eq!(walk.pass(Toward::End, b"c"), Some(&b"d"[..]));
    assert_eq!(walk.pass(Toward::End, b"d"), Some(&b"f"[..]));
    walk.end(None);
    let Stretch { start, end, .. } = walk.take().unwrap();
    assert_eq!((start, end), (b"b".to_vec(), b"f".to_vec()));
    let long = vec![b'x'; 2000];
    for keys in [[&b"p"[..], b"q", &long], [b"p", b"q", b"r"]] {
        let mut walk = Walk::new(None, 100);
        walk.begin();
        keys.iter().for_each(|key| assert!(walk.pass(Toward::End, key).is_none()));
        walk.end(None);
        assert_eq!(walk.has_found(), keys[2].len() == 1);
    }
}
