//! Which conditions a scan answers itself, so that what they leave out is not read or not decoded.
//!
//! - Comparisons of `ts` with a constant: a range of time, for which the packet index tells what to pass over. Every event
//!   record that is read is still judged by its own time.
//! - Conditions about nothing but `host`, `session`, `domain`, `stream` and `class` that are made of comparisons, `IN`,
//!   `LIKE`, `IS NULL`, `AND`, `OR`, `NOT`: these are the same for all event records of one class of one stream, so each is
//!   evaluated once for each class. Streams of which no class remains are not opened.
//!
//! All others are left to the engine. A condition that is answered here is answered exactly.

use std::ops::RangeInclusive;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Like, Operator};
use model::{TimeRange, Timestamp};

use crate::columns::Common;

/// What the conditions of a query leave of time; both ends included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Times {
    range: RangeInclusive<i64>,
    /// Whether anything was asked of the time: then what has none is left out.
    asked: bool,
}

impl Default for Times {
    fn default() -> Self {
        Self { range: i64::MIN..=i64::MAX, asked: false }
    }
}

impl Times {
    /// Whether an event record of this time remains.
    #[inline]
    pub(crate) fn take(&self, at: Option<i64>) -> bool {
        !self.asked || at.is_some_and(|at| self.range.contains(&at))
    }

    pub(crate) const fn is_asked(&self) -> bool {
        self.asked
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Whether an event record of a time between these, and of these, may remain.
    pub(crate) fn overlaps(&self, least: i64, greatest: i64) -> bool {
        let (begin, end) = (*self.range.start(), *self.range.end());
        begin <= end && least <= end && begin <= greatest
    }

    /// The range that must be read.
    pub(crate) const fn range(&self) -> TimeRange {
        TimeRange {
            begin: Timestamp::from_nanos(*self.range.start()),
            end: Timestamp::from_nanos(self.range.end().saturating_add(1)),
        }
    }

    /// The first and the last time that remain, both included.
    pub(crate) const fn bounds(&self) -> (Timestamp, Timestamp) {
        (Timestamp::from_nanos(*self.range.start()), Timestamp::from_nanos(*self.range.end()))
    }

    fn narrow(&mut self, range: &RangeInclusive<i64>) {
        let begin = *self.range.start().max(range.start());
        let end = *self.range.end().min(range.end());
        *self = Self { range: begin..=end, asked: true };
    }
}

/// Conditions, apart by who answers them.
#[derive(Debug, Default)]
pub(crate) struct Split {
    pub(crate) times: Times,
    /// Each is about what all event records of a class of a stream have in common.
    pub(crate) of_class: Vec<Expr>,
}

/// Who answers a condition.
#[derive(Debug, PartialEq)]
enum Answered {
    ByTime(RangeInclusive<i64>),
    ByClass,
    Elsewhere,
}

/// The names under which a table has the columns that conditions may be about.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) ts: String,
    /// `host`, `session`, `domain`, `stream` and, in `events`, `class`.
    pub(crate) of_class: Vec<(String, Common)>,
}

impl Names {
    /// Whether the scan answers a condition, exactly.
    pub(crate) fn answers(&self, condition: &Expr) -> bool {
        self.answered(condition) != Answered::Elsewhere
    }

    /// Sorts conditions that all hold.
    pub(crate) fn split(&self, conditions: &[Expr]) -> Split {
        let mut split = Split::default();
        for condition in conditions {
            match self.answered(condition) {
                Answered::ByTime(range) => split.times.narrow(&range),
                Answered::ByClass => split.of_class.push(condition.clone()),
                Answered::Elsewhere => {}
            }
        }
        split
    }

    fn answered(&self, condition: &Expr) -> Answered {
        if let Some(range) = range(condition, &self.ts, nanos) {
            return Answered::ByTime(range);
        }
        if self.is_of_class(condition) { Answered::ByClass } else { Answered::Elsewhere }
    }

    /// Whether a condition is about nothing but what a class of a stream decides, and cannot fail.
    pub(crate) fn is_of_class(&self, expr: &Expr) -> bool {
        use Operator as O;
        let all = |parts: &[&Expr]| parts.iter().all(|part| self.is_of_class(part));
        match expr {
            Expr::Column(column) => self.of_class.iter().any(|(name, _)| *name == column.name),
            Expr::Literal(..) => true,
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let cannot_fail = matches!(
                    op,
                    O::Eq
                        | O::NotEq
                        | O::Lt
                        | O::LtEq
                        | O::Gt
                        | O::GtEq
                        | O::And
                        | O::Or
                        | O::IsDistinctFrom
                        | O::IsNotDistinctFrom
                        | O::RegexMatch
                        | O::RegexIMatch
                        | O::RegexNotMatch
                        | O::RegexNotIMatch
                        | O::LikeMatch
                        | O::ILikeMatch
                        | O::NotLikeMatch
                        | O::NotILikeMatch
                );
                cannot_fail && all(&[left, right])
            }
            Expr::Like(Like { expr, pattern, .. })
            | Expr::SimilarTo(Like { expr, pattern, .. }) => all(&[expr, pattern]),
            Expr::InList(list) => all(&[&list.expr]) && all(&list.list.iter().collect::<Vec<_>>()),
            Expr::Between(Between { expr, low, high, .. }) => all(&[expr, low, high]),
            Expr::Not(expr)
            | Expr::IsNull(expr)
            | Expr::IsNotNull(expr)
            | Expr::IsTrue(expr)
            | Expr::IsFalse(expr)
            | Expr::IsNotTrue(expr)
            | Expr::IsNotFalse(expr) => all(&[expr]),
            _ => false,
        }
    }
}

/// The values of a column for which a condition about it alone holds.
pub(crate) fn range(
    condition: &Expr,
    column: &str,
    constant: impl Fn(&Expr) -> Option<i64>,
) -> Option<RangeInclusive<i64>> {
    const NONE: RangeInclusive<i64> = RangeInclusive::new(1, 0);
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(found) if found.name == column);
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (value, op) = if is_column(left) {
                (right, *op)
            } else if is_column(right) {
                (left, op.swap()?)
            } else {
                return None;
            };
            let at = constant(value)?;
            Some(match op {
                Operator::Eq => at..=at,
                Operator::Lt => at.checked_sub(1).map_or(NONE, |last| i64::MIN..=last),
                Operator::LtEq => i64::MIN..=at,
                Operator::Gt => at.checked_add(1).map_or(NONE, |first| first..=i64::MAX),
                Operator::GtEq => at..=i64::MAX,
                _ => return None,
            })
        }
        Expr::Between(Between { expr, negated: false, low, high }) if is_column(expr) => {
            Some(constant(low)?..=constant(high)?)
        }
        _ => None,
    }
}

/// A constant point in time.
pub(crate) fn nanos(constant: &Expr) -> Option<i64> {
    match constant {
        Expr::Literal(ScalarValue::TimestampNanosecond(Some(at), None), _) => Some(*at),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn names() -> Names {
        Names {
            ts: "ts".to_owned(),
            of_class: vec![("class".to_owned(), Common::Class), ("host".to_owned(), Common::Host)],
        }
    }

    fn at(nanos: i64) -> Expr {
        lit(ScalarValue::TimestampNanosecond(Some(nanos), None))
    }

    #[test]
    fn comparisons_of_the_time_become_one_range() {
        let check = |conditions: &[Expr], expected: RangeInclusive<i64>| {
            let split = names().split(conditions);
            assert!(conditions.iter().all(|condition| names().answers(condition)));
            assert_eq!(split.times, Times { range: expected, asked: true }, "{conditions:?}");
        };
        check(&[col("ts").gt_eq(at(5))], 5..=i64::MAX);
        check(&[col("ts").gt(at(5)), col("ts").lt(at(9))], 6..=8);
        check(&[at(5).lt(col("ts")), at(9).gt_eq(col("ts"))], 6..=9);
        check(&[col("ts").eq(at(7))], 7..=7);
        check(&[col("ts").between(at(3), at(4))], 3..=4);
        for nothing in [
            vec![col("ts").lt(at(i64::MIN))],
            vec![col("ts").gt(at(i64::MAX))],
            vec![col("ts").lt(at(5)), col("ts").gt(at(5))],
        ] {
            assert!(names().split(&nothing).times.is_empty(), "{nothing:?}");
        }
        assert!(!names().split(&[]).times.is_asked());
    }

    #[test]
    fn only_what_a_class_decides_is_answered_by_class() {
        let answered = |condition: Expr| names().answered(&condition);
        assert_eq!(answered(col("class").like(lit("sched%"))), Answered::ByClass);
        let either = col("class").eq(lit("a")).or(col("host").is_null());
        assert_eq!(answered(either), Answered::ByClass);
        assert_eq!(answered(col("class").in_list(vec![lit("a")], true)), Answered::ByClass);
        let mixed = col("class").eq(lit("a")).or(col("tid").eq(lit(1)));
        assert_eq!(answered(mixed), Answered::Elsewhere);
        assert_eq!(answered(col("ts").not_eq(at(5))), Answered::Elsewhere);
        let may_fail = (lit(1) / col("host")).eq(lit(1));
        assert_eq!(answered(may_fail), Answered::Elsewhere, "it could fail where nothing is read");
    }
}
