//! Lines over a number: batch size, value size, threads, a swept parameter, time.

use super::palette::{FAINT, FONT, INK, engine_color};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// A line: an engine, a qualifier of its name, its points.
pub(super) struct Line {
    pub(super) engine: String,
    pub(super) qualifier: String,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct LineFigure<'a> {
    pub(super) title: &'a str,
    pub(super) x_name: &'a str,
    pub(super) y_name: &'a str,
    pub(super) lines: &'a [Line],
    pub(super) axes: Axes,
    pub(super) format: fn(f64) -> String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Axes {
    /// Time runs to the right, values rise linearly.
    Time,
    /// The values of x are steps of equal width, such as 1, 10, 100; y is logarithmic.
    Steps,
}

const SIZE: (u32, u32) = (900, 380);
/// Height of the title and the legend.
const HEAD: u32 = 56;
const LEGEND_LEFT: i32 = 82;

impl LineFigure<'_> {
    /// The figure as an SVG element.
    pub(super) fn draw(&self) -> Result<String> {
        let steps = self.steps();
        let lines: Vec<Vec<(f64, f64)>> =
            self.lines.iter().map(|line| self.placed(&steps, &line.points)).collect();
        let points = || lines.iter().flatten();
        let x_max = points().map(|point| point.0).fold(0.0, f64::max);
        let y_max = points().map(|point| point.1).fold(0.0, f64::max).max(1e-9);
        let y_min = points().map(|point| point.1).fold(y_max / 2.0, f64::min);
        let mut svg = String::new();
        let outcome = match self.axes {
            Axes::Time => self.chart(&mut svg, &lines, 0.0..x_max.max(1e-9), 0.0..y_max * 1.1),
            Axes::Steps => self.chart(
                &mut svg,
                &lines,
                -0.2..x_max + 0.2,
                (y_min * 0.7..y_max * 1.4).log_scale(),
            ),
        };
        outcome.map_err(|error| anyhow!("drawing {}: {error}", self.title))?;
        Ok(svg)
    }

    /// The values of x that occur, ascending.
    fn steps(&self) -> Vec<f64> {
        let mut steps: Vec<f64> =
            self.lines.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
        steps.sort_unstable_by(f64::total_cmp);
        steps.dedup();
        steps
    }

    /// Where the points lie on the axes; what a logarithm can't show is left out.
    fn placed(&self, steps: &[f64], points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        if self.axes == Axes::Time {
            return points.to_vec();
        }
        let step = |x: f64| steps.partition_point(|step| *step < x) as f64;
        points.iter().filter(|(_, y)| *y > 0.0).map(|(x, y)| (step(*x), *y)).collect()
    }

    fn x_label(&self, steps: &[f64], x: f64) -> String {
        let on_step = (x - x.round()).abs() < 1e-6;
        match self.axes {
            Axes::Time => plain(x),
            Axes::Steps if on_step && x >= 0.0 => {
                steps.get(x.round() as usize).map_or(String::new(), |value| plain(*value))
            }
            Axes::Steps => String::new(),
        }
    }

    fn chart<Y>(
        &self,
        svg: &mut String,
        lines: &[Vec<(f64, f64)>],
        x: Range<f64>,
        y: Y,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let steps = self.steps();
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (head, body) = area.split_vertically(HEAD);
        self.head(&head)?;
        let x_labels = if self.axes == Axes::Steps { steps.len() * 2 + 1 } else { 11 };
        let mut chart = ChartBuilder::on(&body)
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(72)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_labels(x_labels)
            .x_desc(self.x_name)
            .y_desc(self.y_name)
            .light_line_style(WHITE.mix(0.0))
            .bold_line_style(FAINT)
            .label_style((FONT, 12).into_font().color(&INK))
            .x_label_formatter(&|value| self.x_label(&steps, *value))
            .y_label_formatter(&|value| (self.format)(*value))
            .draw()?;
        for (place, points) in lines.iter().enumerate() {
            let color = self.color(place);
            chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
            if points.len() < 40 {
                let dots = points.iter().map(|point| Circle::new(*point, 3, color.filled()));
                chart.draw_series(dots)?;
            }
        }
        area.present()?;
        Ok(())
    }

    fn color(&self, place: usize) -> RGBAColor {
        let line = &self.lines[place];
        let strength = if line.qualifier.is_empty() { 1.0 } else { fade(place) };
        engine_color(&line.engine).mix(strength)
    }

    /// Title and legend, above the lines so that it hides none.
    fn head(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let text =
            |size| (FONT, size).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(self.title.to_owned(), (12, 16), text(17)))?;
        let mut x = LEGEND_LEFT;
        for (place, line) in self.lines.iter().enumerate() {
            let name = format!("{} {}", line.engine, line.qualifier);
            let name = name.trim_end().to_owned();
            let stroke = self.color(place).stroke_width(3);
            area.draw(&PathElement::new(vec![(x, 42), (x + 14, 42)], stroke))?;
            let width = 32 + 7 * name.len() as i32;
            area.draw(&Text::new(name, (x + 19, 42), text(12)))?;
            x += width;
        }
        Ok(())
    }
}

/// Lines of one engine differ in strength.
fn fade(place: usize) -> f64 {
    1.0 - 0.18 * (place % 5) as f64
}

fn plain(value: f64) -> String {
    if value.fract().abs() < 1e-9 { format!("{value:.0}") } else { format!("{value:.1}") }
}
