//! Sums of series by cell as text: the deltas of a metric, behind them the counters that add them up.

use std::io::{self, BufWriter, Read, Write};

use export::Counter;
use rules::{counter, increase, value};
use wire::openmetrics::{Kind, Writer};
use wire::remote_write::Labels;

use super::Scratch;
use super::runs::BySeries;
use super::window::Cells;
use crate::cells::{FORGET_MS, Grid, IDLE_MS};

/// What was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) series: u64,
    pub(super) samples: u64,
    pub(super) inexact: u64,
    pub(super) left_out: u64,
}

/// Tells series in the order of [`BySeries`].
pub(super) struct Teller<W: Write, C: Scratch> {
    grid: Grid,
    /// Nothing is told of cells that begin then or later.
    until_ms: i64,
    out: Writer<W>,
    /// Counters of the metric that is being told, which follow its deltas.
    counters: Writer<BufWriter<C>>,
    metric: Option<String>,
    series: Option<Line>,
    told: Told,
}

/// The series that is being told.
struct Line {
    delta: Labels,
    counter: Labels,
    total: Counter,
    /// The cell that it had samples in last.
    seen_ms: i64,
}

impl<W: Write, C: Scratch> Teller<W, C> {
    pub(super) fn new(grid: Grid, until_ms: i64, out: W, counters: C) -> Self {
        Self {
            grid,
            until_ms,
            out: Writer::new(out),
            counters: Writer::new(BufWriter::new(counters)),
            metric: None,
            series: None,
            told: Told::default(),
        }
    }

    /// Cells of a series, behind those that it had before.
    pub(super) fn tell(&mut self, series: &BySeries, cells: &Cells) -> io::Result<()> {
        let delta = &series.0;
        let Some((&first_ms, _)) = cells.first_key_value() else { return Ok(()) };
        let is_same = self.series.as_ref().is_some_and(|line| line.delta == *delta);
        let mut line = match self.series.take() {
            Some(line) if is_same => line,
            before => {
                before.iter().try_for_each(|before| self.idle(before, self.until_ms))?;
                self.begin(delta, first_ms)?
            }
        };
        for (&cell_ms, &sum) in cells {
            self.idle(&line, cell_ms)?;
            if cell_ms.saturating_sub(line.seen_ms) > FORGET_MS {
                line.total = Counter::new(cell_ms);
            }
            let grown = increase(line.total, sum, cell_ms);
            (line.total, line.seen_ms) = (grown.counter, cell_ms);
            let (delta, is_exact) = value(sum);
            self.told.inexact += u64::from(!is_exact);
            self.told.left_out += u64::from(grown.left_out != 0);
            let end_ms = self.grid.end_of(cell_ms);
            self.out.sample(&line.delta, delta, end_ms)?;
            self.counters.sample(&line.counter, line.total.value(), end_ms)?;
            self.told.samples += 2;
        }
        self.series = Some(line);
        Ok(())
    }

    /// All that there is was told.
    pub(super) fn finish(mut self) -> io::Result<Told> {
        self.end_metric()?;
        self.out.finish()?;
        Ok(self.told)
    }

    fn begin(&mut self, delta: &Labels, first_ms: i64) -> io::Result<Line> {
        let metric = delta.metric();
        if self.metric.as_deref() != Some(metric) {
            self.end_metric()?;
            let help = "Sums of samples of profiles, by the time at which they were taken.";
            self.out.family(metric, Kind::Gauge, help)?;
            let counted = counter(delta);
            let help = "The same added up.";
            self.counters.family(counted.metric(), Kind::Unknown, help)?;
            self.metric = Some(metric.to_owned());
        }
        self.told.series += 1;
        let total = Counter::new(first_ms);
        Ok(Line { delta: delta.clone(), counter: counter(delta), total, seen_ms: first_ms })
    }

    /// The counter of a series goes on for a while in cells without samples of it.
    fn idle(&mut self, line: &Line, before_ms: i64) -> io::Result<()> {
        let ended_ms = line.seen_ms.saturating_add(IDLE_MS).min(before_ms);
        let mut cell_ms = self.grid.end_of(line.seen_ms);
        while cell_ms < ended_ms {
            let end_ms = self.grid.end_of(cell_ms);
            self.counters.sample(&line.counter, line.total.value(), end_ms)?;
            self.told.samples += 1;
            cell_ms = end_ms;
        }
        Ok(())
    }

    /// The counters follow what was told of the metric.
    fn end_metric(&mut self) -> io::Result<()> {
        if let Some(line) = self.series.take() {
            self.idle(&line, self.until_ms)?;
        }
        let counters = self.counters.inner();
        counters.flush()?;
        let file = counters.get_mut();
        let length = file.stream_position()?;
        file.rewind()?;
        io::copy(&mut (&mut *file).take(length), self.out.inner())?;
        file.rewind()?;
        self.metric = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Cursor;

    use wire::remote_write::{NAME, is_stale};

    use super::*;
    use crate::cells::{KnownSeries, close};

    fn labels(name: &str, pod: &str) -> Labels {
        let pairs = [(NAME.to_owned(), name.to_owned()), ("pod".to_owned(), pod.to_owned())];
        Labels::new(pairs).unwrap()
    }

    fn text(series: &[(Labels, Cells)], until_ms: i64) -> (String, Told) {
        let (mut out, counters) = (Vec::new(), Cursor::new(Vec::new()));
        let mut teller = Teller::new(Grid::default(), until_ms, &mut out, counters);
        for (labels, cells) in series {
            teller.tell(&BySeries(labels.clone()), cells).unwrap();
        }
        let told = teller.finish().unwrap();
        (String::from_utf8(out).unwrap(), told)
    }

    #[test]
    fn a_metric_is_its_deltas_and_then_its_counters() {
        let series = [
            (labels("a", "x"), Cells::from([(0, 5), (15_000, -2)])),
            (labels("a", "x"), Cells::from([(45_000, 1 << 53)])),
            (labels("a", "y"), Cells::from([(30_000, 7)])),
            (labels("b", "x"), Cells::from([(45_000, 1)])),
        ];
        let (text, told) = text(&series, 60_000);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# HELP")).collect();
        let expected = [
            "# TYPE a gauge",
            "a{pod=\"x\"} 5 15",
            "a{pod=\"x\"} -2 30",
            "a{pod=\"x\"} 9007199254740992 60",
            "a{pod=\"y\"} 7 45",
            "# TYPE a_total unknown",
            "a_total{pod=\"x\"} 5 15",
            "a_total{pod=\"x\"} 5 30",
            "a_total{pod=\"x\"} 5 45",
            "a_total{pod=\"x\"} 9007199254740992 60",
            "a_total{pod=\"y\"} 7 45",
            "a_total{pod=\"y\"} 7 60",
            "# TYPE b gauge",
            "b{pod=\"x\"} 1 60",
            "# TYPE b_total unknown",
            "b_total{pod=\"x\"} 1 60",
            "# EOF",
        ];
        assert_eq!(lines, expected);
        assert_eq!(told, Told { series: 3, samples: 12, inexact: 0, left_out: 1 });
    }

    /// What the store would have closed of the same sums, but for stale markers, which a text cannot say.
    #[test]
    fn it_is_what_closing_cells_makes() {
        let mut random = fastrand::Rng::with_seed(7);
        let cell_ms = Grid::default().cell_ms();
        let until_ms = 3 * FORGET_MS;
        let mut series: Vec<(Labels, Cells)> = Vec::new();
        for (name, pod, mean) in [("a", "x", 2), ("a", "y", 12), ("b", "x", 9_000)] {
            let mut cells = Cells::new();
            let mut at = 0;
            while at < until_ms {
                cells.insert(at, i128::from(random.i64(-3..1 << 52)));
                at += cell_ms * random.i64(1..=2 * mean);
            }
            series.push((labels(name, pod), cells));
        }
        let mut known = KnownSeries::new();
        let mut expected: BTreeMap<(String, i64), f64> = BTreeMap::new();
        let mut at = 0;
        while at < until_ms {
            let of_cell =
                |(labels, cells): &(Labels, Cells)| Some((labels.clone(), *cells.get(&at)?));
            let closed = close(series.iter().filter_map(of_cell), &known, at);
            for cell in &closed.cells {
                let value = f64::from_bits(cell.bits);
                if !is_stale(value) {
                    expected.insert((cell.labels.to_string(), (at + cell_ms) / 1_000), value);
                }
            }
            for (labels, state) in closed.changed {
                match state {
                    Some(state) => known.insert(labels, state),
                    None => known.remove(&labels),
                };
            }
            at += cell_ms;
        }
        let (text, told) = text(&series, until_ms);
        let mut found = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap();
            let (series, value, time) = (word(), word(), word());
            let key = (series.to_owned(), time.parse::<i64>().unwrap());
            assert!(found.insert(key, value.parse::<f64>().unwrap()).is_none(), "{line}");
        }
        assert_eq!(told.samples, found.len() as u64);
        let differs = expected.iter().zip(&found).find(|(expected, found)| expected != found);
        assert_eq!((expected.len(), differs), (found.len(), None));
    }
}
