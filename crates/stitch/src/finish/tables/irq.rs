//! Interrupts.

use std::sync::Arc;

use super::{
    Make, P50, P95, P99, column, duration, frequencies, joined, moments, number, percentiles,
};
use crate::fact::Line;
use crate::fold::Irqs;
use crate::table::{Cell, Class, Column, Kind, Table};

pub(super) const LINE: Column = column("irq", "Interrupt", Kind::Irq, None);
const COUNT: Column = number("count", "Count", "interrupts");
const MIN: Column = duration("min", "Min");
const MEAN: Column = duration("avg", "Avg");
const MAX: Column = duration("max", "Max");
const DEVIATION: Column = duration("stdev", "Stdev");
const TOTAL: Column = duration("total", "Total");

const HARD: Class = Class {
    name: "irq-hard",
    title: "Hardware interrupts",
    columns: &[LINE, COUNT, MIN, MEAN, MAX, DEVIATION, TOTAL, P50, P95, P99],
};

const SOFT: Class = Class {
    name: "irq-soft",
    title: "Software interrupts",
    columns: &[
        LINE,
        COUNT,
        MIN,
        MEAN,
        MAX,
        DEVIATION,
        number("raise_count", "Raised", "interrupt raises"),
        duration("raise_min", "Min wait"),
        duration("raise_avg", "Avg wait"),
        duration("raise_max", "Max wait"),
        duration("raise_stdev", "Stdev wait"),
        TOTAL,
        P50,
        P95,
        P99,
    ],
};

const LENGTHS: Class = Class {
    name: "irq-freq",
    title: "Interrupts by length",
    columns: &[LINE, duration("from", "From"), duration("to", "To"), COUNT],
};

pub(super) const STATS: &[&Class] = &[&HARD, &SOFT];
pub(super) const FREQ: &[&Class] = &[&LENGTHS];

/// The kernel's soft interrupts, `include/linux/interrupt.h`.
const SOFT_NAMES: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

impl Make<'_> {
    pub(super) fn irqstats(&self) -> Vec<Table> {
        let irqs = self.summary.folds.irqs.clone().closed();
        let (mut hard, mut soft) = (Vec::new(), Vec::new());
        for (line, row) in irqs.rows.iter().filter(|(line, _)| self.wants_line(**line)) {
            let mut cells = vec![irq(&irqs, *line)];
            cells.extend(moments(&row.ns));
            if let Line::Soft(_) = line {
                cells.extend(moments(&row.raised));
            }
            cells.push(Cell::ns(row.ns.sum));
            cells.extend(percentiles(&row.lengths));
            match line {
                Line::Hard(_) => hard.push(cells),
                Line::Soft(_) => soft.push(cells),
            }
        }
        vec![self.table(&HARD, hard), self.table(&SOFT, soft)]
    }

    pub(super) fn irqfreq(&self) -> Vec<Table> {
        let irqs = self.summary.folds.irqs.clone().closed();
        let lines = irqs.rows.iter().filter(|(line, _)| self.wants_line(**line));
        let rows = lines.flat_map(|(line, row)| {
            let line = irq(&irqs, *line);
            frequencies(&row.lengths)
                .map(move |cells| [line.clone()].into_iter().chain(cells).collect())
        });
        vec![self.table(&LENGTHS, rows.collect())]
    }

    fn wants_line(&self, line: Line) -> bool {
        self.question.lines.is_empty() || self.question.lines.contains(&line)
    }
}

pub(in crate::finish) fn irq(irqs: &Irqs, line: Line) -> Cell {
    let name: Arc<str> = match line {
        Line::Hard(_) => irqs.names.get(&line).map(joined).unwrap_or_default(),
        Line::Soft(vector) => {
            SOFT_NAMES.get(usize::from(vector)).copied().unwrap_or_default().into()
        }
    };
    Cell::Irq { line, name }
}
