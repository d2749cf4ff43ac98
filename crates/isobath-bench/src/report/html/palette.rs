//! A colour for each engine, the same in every figure, told apart by colour-blind readers too
//! (after Okabe and Ito).

use plotters::style::RGBColor;

pub(super) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(super) const FAINT: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
pub(super) const FONT: &str = "sans-serif";

pub(super) fn engine_color(engine: &str) -> RGBColor {
    match engine {
        "isobath" => RGBColor(0x00, 0x72, 0xb2),
        "rocksdb" => RGBColor(0xd5, 0x5e, 0x00),
        "tidesdb" => RGBColor(0x00, 0x9e, 0x73),
        "lmdb" => RGBColor(0xcc, 0x79, 0xa7),
        "fjall" => RGBColor(0xe6, 0x9f, 0x00),
        "redb" => RGBColor(0x56, 0xb4, 0xe9),
        "memory" => RGBColor(0x77, 0x77, 0x77),
        _ => RGBColor(0xaa, 0xaa, 0xaa),
    }
}
