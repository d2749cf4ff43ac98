//! One page that holds everything: figures as inline SVG, tables, the environment, the
//! configuration. No network is needed to read it.

mod bars;
mod escape;
mod figures;
mod lines;
mod page;
mod palette;
mod series;
mod timelines;

pub(super) use page::render;

#[cfg(test)]
mod tests;
