//! Horizontal bars in groups: a group for each row, a bar for each engine, whiskers over the
//! repeats.

use super::palette::{FAINT, FONT, INK, engine_color};
use super::series::Group;
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(super) struct BarFigure<'a> {
    pub(super) title: &'a str,
    pub(super) engines: &'a [&'a str],
    pub(super) groups: &'a [Group],
    pub(super) logarithmic: bool,
    /// A value to draw a dark line at, such as 1 for ratios.
    pub(super) reference: Option<f64>,
    pub(super) format: fn(f64) -> String,
}

const WIDTH: i32 = 900;
const LEFT: i32 = 200;
const RIGHT: i32 = 90;
const TOP: i32 = 62;
const BAR: i32 = 15;
const GAP: i32 = 12;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl BarFigure<'_> {
    /// The figure as an SVG element.
    pub(super) fn draw(&self) -> Result<String> {
        let group_height = self.engines.len() as i32 * BAR + GAP;
        let height = TOP + self.groups.len() as i32 * group_height + 16;
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32))
                .into_drawing_area();
            self.draw_on(&area, height, group_height)
                .map_err(|error| anyhow!("drawing {}: {error}", self.title))?;
        }
        Ok(svg)
    }

    fn draw_on(
        &self,
        area: &Area<'_>,
        height: i32,
        group_height: i32,
    ) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        self.head(area)?;
        let scale = Scale::of(self.groups, self.logarithmic, self.reference);
        for tick in scale.ticks() {
            let x = LEFT + scale.pixels(tick);
            area.draw(&PathElement::new(vec![(x, TOP - 4), (x, height - 12)], FAINT))?;
            area.draw(&Text::new((self.format)(tick), (x, height - 6), style(10, HPos::Center)))?;
        }
        for (place, group) in self.groups.iter().enumerate() {
            let top = TOP + place as i32 * group_height;
            let middle = top + self.engines.len() as i32 * BAR / 2;
            area.draw(&Text::new(group.name.clone(), (LEFT - 8, middle), style(13, HPos::Right)))?;
            for (engine, value) in group.values.iter().enumerate() {
                let Some(value) = value else { continue };
                let y = top + engine as i32 * BAR;
                let end = LEFT + scale.pixels(value.median).max(1);
                // Bars of ratios start at the reference: to the right if faster, to the left if
                // slower.
                let start = self.reference.map_or(LEFT, |reference| LEFT + scale.pixels(reference));
                let color = engine_color(self.engines[engine]);
                let corners = [(start.min(end), y), (start.max(end).max(start + 1), y + BAR - 2)];
                area.draw(&Rectangle::new(corners, color.filled()))?;
                let (low, high) = (LEFT + scale.pixels(value.low), LEFT + scale.pixels(value.high));
                if high > low {
                    let line = y + BAR / 2 - 1;
                    area.draw(&PathElement::new(vec![(low, line), (high, line)], INK))?;
                }
                let text = (self.format)(value.median);
                area.draw(&Text::new(
                    text,
                    (end.max(high).max(start) + 5, y + BAR / 2 - 1),
                    style(11, HPos::Left),
                ))?;
            }
        }
        if let Some(reference) = self.reference {
            let x = LEFT + scale.pixels(reference);
            area.draw(&PathElement::new(vec![(x, TOP - 4), (x, height - 12)], INK))?;
        }
        area.present()?;
        Ok(())
    }

    /// Title and legend.
    fn head(&self, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let scale = if self.logarithmic { " (logarithmic)" } else { "" };
        area.draw(&Text::new(format!("{}{scale}", self.title), (12, 18), style(17, HPos::Left)))?;
        let mut x = LEFT;
        for engine in self.engines {
            area.draw(&Rectangle::new([(x, 36), (x + 12, 48)], engine_color(engine).filled()))?;
            area.draw(&Text::new((*engine).to_owned(), (x + 17, 42), style(13, HPos::Left)))?;
            x += 40 + 8 * engine.len() as i32;
        }
        Ok(())
    }
}

fn style(size: i32, horizontal: HPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK).pos(Pos::new(horizontal, VPos::Center))
}

/// Values to pixels from the left edge.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    fn of(groups: &[Group], logarithmic: bool, reference: Option<f64>) -> Scale {
        let values = || groups.iter().flat_map(|group| group.values.iter().flatten());
        let high = values().map(|value| value.high).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let high = reference.map_or(high, |reference| high.max(reference * 1.2));
        let least = values().map(|value| value.low).filter(|low| *low > 0.0).fold(high, f64::min);
        let least = reference.map_or(least, |reference| least.min(reference / 1.2));
        // A logarithmic scale begins slightly below the power of ten at or below the least value,
        // so that every bar is visible.
        let low = match (logarithmic, reference) {
            (false, _) => 0.0,
            (true, None) => 10f64.powf(least.log10().floor() - 0.2),
            (true, Some(_)) => least * 0.9,
        };
        Scale { low, high, logarithmic }
    }

    fn pixels(&self, value: f64) -> i32 {
        let room = f64::from(WIDTH - LEFT - RIGHT);
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            value / self.high
        };
        (share.clamp(0.0, 1.0) * room) as i32
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (first, last) = (self.low.log10().floor() as i32, self.high.log10().floor() as i32);
            let few = last - first < 3;
            let steps: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let ticks = (first..=last)
                .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            return ticks.filter(|tick| (self.low..=self.high).contains(tick)).collect();
        }
        let step = round_step(self.high / 5.0);
        (1..).map(|times| step * f64::from(times)).take_while(|tick| *tick <= self.high).collect()
    }
}

/// The least of 1, 2, 2.5 and 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * 0.999).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_about_five() {
        for (high, step) in [(8.64e6, 2e6), (1.0, 0.2), (51.0, 20.0), (4.9, 1.0)] {
            let scale = Scale { low: 0.0, high, logarithmic: false };
            let ticks = scale.ticks();
            assert!((ticks[0] - step).abs() < step * 1e-9, "{high}: {ticks:?}");
            assert!((2..=5).contains(&ticks.len()), "{high}: {ticks:?}");
        }
    }
}
