//! Series with their cells in files: a run is sorted by series, and runs are in the order of time.
//!
//! A line is JSON: labels, and the sum of each cell by its begin, sums as texts.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use wire::remote_write::Labels;

use super::window::Cells;

/// Runs that are open at a time; of more, the first ones become one.
const MAX_RUNS: usize = 64;

/// A series in the order of the text: by metric, then by all labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BySeries(pub(super) Labels);

impl Ord for BySeries {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_metric = self.0.metric().cmp(other.0.metric());
        by_metric.then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for BySeries {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Runs in a folder; their files are gone when this is.
#[derive(Debug)]
pub(super) struct Runs<'f> {
    folder: &'f Path,
    runs: Vec<PathBuf>,
    made: usize,
}

impl<'f> Runs<'f> {
    pub(super) const fn new(folder: &'f Path) -> Self {
        Self { folder, runs: Vec::new(), made: 0 }
    }

    /// Adds a run, of cells behind those of all others.
    pub(super) fn add(&mut self, series: BTreeMap<BySeries, Cells>) -> io::Result<()> {
        if series.is_empty() {
            return Ok(());
        }
        if self.runs.len() >= MAX_RUNS {
            self.join()?;
        }
        let (path, mut run) = self.next()?;
        for (series, cells) in series {
            write_line(&mut run, &series, &cells)?;
        }
        run.flush()?;
        self.runs.push(path);
        Ok(())
    }

    /// Makes one run of all.
    fn join(&mut self) -> io::Result<()> {
        let (path, mut run) = self.next()?;
        self.read(|series, cells| write_line(&mut run, &series, &cells))?;
        run.flush()?;
        for old in std::mem::replace(&mut self.runs, vec![path]) {
            fs::remove_file(old)?;
        }
        Ok(())
    }

    fn next(&mut self) -> io::Result<(PathBuf, BufWriter<File>)> {
        self.made += 1;
        let path = self.folder.join(format!("run-{}", self.made));
        let run = BufWriter::new(file(&path)?);
        Ok((path, run))
    }

    /// Reads all of them by series, and each series by time, in one or several pieces.
    pub(super) fn read(
        &mut self,
        mut see: impl FnMut(BySeries, Cells) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut runs: Vec<Run> = Vec::new();
        for path in &self.runs {
            let mut file = File::open(path)?;
            file.rewind()?;
            runs.extend(Run::begin(BufReader::new(file))?);
        }
        // Of equal series the first run's comes first.
        while let Some((at, _)) = runs.iter().enumerate().min_by_key(|(_, run)| &run.series) {
            let mut run = runs.remove(at);
            let (series, cells) = (run.series.clone(), std::mem::take(&mut run.cells));
            if run.advance()? {
                runs.insert(at, run);
            }
            see(series, cells)?;
        }
        Ok(())
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        // Whoever made the folder removes it, with what could not be removed here.
        self.runs.iter().for_each(|run| drop(fs::remove_file(run)));
    }
}

/// A run that is read, with what comes next of it.
struct Run {
    file: BufReader<File>,
    series: BySeries,
    cells: Cells,
}

impl Run {
    fn begin(mut file: BufReader<File>) -> io::Result<Option<Self>> {
        let line = read_line(&mut file)?;
        Ok(line.map(|(series, cells)| Self { file, series, cells }))
    }

    /// Says whether there is more.
    fn advance(&mut self) -> io::Result<bool> {
        let Some((series, cells)) = read_line(&mut self.file)? else { return Ok(false) };
        (self.series, self.cells) = (series, cells);
        Ok(true)
    }
}

fn write_line(run: &mut impl Write, series: &BySeries, cells: &Cells) -> io::Result<()> {
    let cells: Vec<(i64, String)> = cells.iter().map(|(at, sum)| (*at, sum.to_string())).collect();
    serde_json::to_writer(&mut *run, &(&series.0, cells))?;
    run.write_all(b"\n")
}

/// A line, which has the cells of one window at most.
fn read_line(run: &mut impl BufRead) -> io::Result<Option<(BySeries, Cells)>> {
    let mut line = String::new();
    if run.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let (labels, cells): (Labels, Vec<(i64, String)>) = serde_json::from_str(&line)?;
    let sum = |(at, sum): (i64, String)| Ok((at, sum.parse().map_err(io::Error::other)?));
    Ok(Some((BySeries(labels), cells.into_iter().map(sum).collect::<io::Result<_>>()?)))
}

/// A new file that is written and read.
pub(super) fn file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::remote_write::NAME;

    #[test]
    fn many_runs_are_read_by_metric_then_labels_then_time() {
        let folder = tempfile::tempdir().unwrap();
        let labels = |name: &str, upper: &str| {
            let all = [(NAME.to_owned(), name.to_owned()), ("A".to_owned(), upper.to_owned())];
            BySeries(Labels::new(all).unwrap())
        };
        let mut runs = Runs::new(folder.path());
        let count = i64::try_from(MAX_RUNS * 3 + 5).unwrap();
        for number in 0..count {
            let mut run = BTreeMap::new();
            // A label of capitals stands before the name; the metric comes first all the same.
            run.insert(labels("a", "2"), Cells::from([(number, i128::from(number) << 70)]));
            run.insert(labels("b", "1"), Cells::from([(number, -1)]));
            runs.add(run).unwrap();
        }
        runs.add(BTreeMap::new()).unwrap();
        assert!(fs::read_dir(folder.path()).unwrap().count() <= MAX_RUNS);
        let mut seen: Vec<(BySeries, i64, i128)> = Vec::new();
        let see = |series: BySeries, cells: Cells| {
            seen.extend(cells.into_iter().map(|(at, sum)| (series.clone(), at, sum)));
            Ok(())
        };
        runs.read(see).unwrap();
        let of = |series: &BySeries, sum: fn(i64) -> i128| {
            (0..count).map(|at| (series.clone(), at, sum(at))).collect::<Vec<_>>()
        };
        let mut expected = of(&labels("a", "2"), |at| i128::from(at) << 70);
        expected.extend(of(&labels("b", "1"), |_| -1));
        assert_eq!(seen, expected);
        drop(runs);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
