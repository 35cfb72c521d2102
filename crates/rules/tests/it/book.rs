//! Rules over time.

use rules::{Book, BookLimits, Draft, Error, Fault, Functions, Rule};

use crate::samples::{ALLOC, by, of, rules};

const LIMITS: BookLimits = BookLimits { rules: 2, versions: 5 };

fn named(id: &str) -> Draft {
    Draft { id: id.to_owned(), metric: Some("profiles_recorded_x".to_owned()), ..by(&[]) }
}

fn ids(book: &Book, cell_ms: i64) -> Vec<&str> {
    book.at(cell_ms).iter().map(|rule| rule.id()).collect()
}

#[test]
fn a_cell_has_the_versions_of_its_time() {
    let mut book = Book::default();
    let first = book.upsert(named("a"), None, 100, &LIMITS).unwrap();
    assert_eq!((first.generation, first.from_ms, first.until_ms), (1, 100, None));
    let second = book.upsert(Draft { group_by: None, ..named("a") }, Some(1), 200, &LIMITS);
    assert_eq!(second.unwrap().generation, 2);
    book.upsert(named("b"), Some(0), 150, &LIMITS).unwrap();
    book.delete("a", Some(2), 300).unwrap();
    assert_eq!(book.generation(), 4);
    let groups = |cell_ms| -> Vec<bool> {
        book.at(cell_ms).iter().map(|rule| rule.draft().group_by.is_some()).collect()
    };
    for (cell_ms, expected) in
        [(99, &[][..]), (100, &["a"]), (150, &["a", "b"]), (299, &["a", "b"]), (300, &["b"])]
    {
        assert_eq!(ids(&book, cell_ms), expected, "{cell_ms}");
    }
    assert_eq!((groups(199), groups(200)), (vec![true, true], vec![false, true]));
    let json = serde_json::to_string(&book).unwrap();
    assert_eq!(serde_json::from_str::<Book>(&json).unwrap(), book);
    assert!(!book.forget(199));
    assert!(book.forget(200));
    assert_eq!((ids(&book, 100), ids(&book, 200)), (vec![], vec!["a", "b"]));
}

#[test]
fn changes_of_another_generation_are_refused_and_change_nothing() {
    let mut book = Book::default();
    book.upsert(named("a"), None, 100, &LIMITS).unwrap();
    let before = book.clone();
    let conflict =
        |id: &str, expected, found| Error::Conflict { id: id.to_owned(), expected, found };
    assert_eq!(book.upsert(named("a"), Some(2), 200, &LIMITS), Err(conflict("a", 2, 1)));
    assert_eq!(book.upsert(named("b"), Some(1), 200, &LIMITS), Err(conflict("b", 1, 0)));
    assert_eq!(book.delete("a", Some(0), 200), Err(conflict("a", 0, 1)));
    assert_eq!(book.delete("b", None, 200), Err(Error::Missing { id: "b".to_owned() }));
    let wrong = Draft { id: "a1".to_owned(), ..named("") };
    let fault = Fault::Letters { text: "a1".to_owned() };
    let error = Error::Field { field: "id", what: fault };
    assert_eq!(book.upsert(wrong, None, 200, &LIMITS), Err(error));
    assert_eq!(book, before);
}

#[test]
fn rules_and_versions_have_a_bound() {
    let mut book = Book::default();
    book.upsert(named("a"), None, 0, &LIMITS).unwrap();
    book.upsert(named("b"), None, 0, &LIMITS).unwrap();
    assert_eq!(book.upsert(named("c"), None, 0, &LIMITS), Err(Error::TooMany { limit: 2 }));
    for time_ms in 1..4 {
        book.upsert(named("a"), None, time_ms, &LIMITS).unwrap();
    }
    assert_eq!(book.upsert(named("a"), None, 9, &LIMITS), Err(Error::TooOften { limit: 5 }));
    assert!(book.forget(2));
    book.upsert(named("a"), None, 9, &LIMITS).unwrap();
}

#[test]
fn a_version_that_no_cell_had_is_not_kept_and_clocks_may_go_back() {
    let mut book = Book::default();
    for _ in 0..20 {
        book.upsert(named("a"), None, 100, &LIMITS).unwrap();
    }
    book.upsert(Draft { group_by: None, ..named("a") }, None, 200, &LIMITS).unwrap();
    book.upsert(named("a"), None, 50, &LIMITS).unwrap();
    for cell_ms in [99, 100, 199, 200, 300] {
        let expected: &[&str] = if cell_ms < 100 { &[] } else { &["a"] };
        assert_eq!(ids(&book, cell_ms), expected, "{cell_ms}");
    }
    assert_eq!(book.get("a").unwrap().generation, 22);
}

#[test]
fn ids_that_are_made_are_ten_letters_and_different() {
    let mut book = Book::default();
    let mut made = |draft: Draft| {
        let limits = BookLimits::default();
        book.upsert(draft, None, 0, &limits).unwrap().rule.id().to_owned()
    };
    let (one, two) = (made(named("")), made(named("")));
    assert_ne!(one, two);
    for id in [one, two] {
        assert!(id.len() == 10 && id.bytes().all(|byte| byte.is_ascii_alphabetic()), "{id}");
    }
}

#[test]
fn metrics_of_the_default_form_mean_one_thing() {
    let mut book = Book::default();
    let typed = |id: &str, kind: &str| Draft {
        id: id.to_owned(),
        profile_type: kind.to_owned(),
        ..by(&[])
    };
    book.upsert(typed("a", "a_b:c:d::"), None, 0, &LIMITS).unwrap();
    let clash = |metric: &str| {
        let metric = format!("pyroscope_exported_metrics_{metric}");
        Err(Error::Clash { metric, other: "a".to_owned() })
    };
    assert_eq!(book.upsert(typed("b", "a:b_c:d::"), None, 0, &LIMITS), clash("a_b_c_d___total"));
    // The same type may have several rules, and the rule itself may become one of another type.
    book.upsert(typed("b", "a_b:c:d::"), None, 0, &LIMITS).unwrap();
    book.delete("b", None, 0).unwrap();
    book.upsert(typed("a", "functions_x:c:d::"), None, 0, &LIMITS).unwrap();
    let function = of(Functions::Exact("f".to_owned()), typed("b", "x:c:d::"));
    assert_eq!(book.upsert(function, None, 0, &LIMITS), clash("functions_x_c_d___total"));
    book.upsert(typed("a", "x:c:d::"), None, 0, &LIMITS).unwrap();
    assert_eq!(book.upsert(typed("b", "x:c:d:_:total"), None, 0, &LIMITS), clash("x_c_d___total"));
    assert!(book.upsert(typed("b", ALLOC), None, 0, &LIMITS).is_ok());
}

#[test]
fn rules_of_the_configuration_come_change_and_go_with_it() {
    let mut book = Book::default();
    let set = |book: &mut Book, rules: &[Rule], from_ms| book.provision(rules, from_ms, &LIMITS);
    book.upsert(named("a"), None, 0, &LIMITS).unwrap();
    let both = rules([named("a"), named("b")]);
    assert_eq!(set(&mut book, &both, 100), Ok(true));
    assert_eq!(set(&mut book, &both, 200), Ok(false));
    let a = book.get("a").unwrap();
    assert_eq!((a.generation, a.is_provisioned, a.from_ms), (2, true, 100));
    let provisioned = || Err(Error::Provisioned { id: "a".to_owned() });
    assert_eq!(book.upsert(named("a"), None, 300, &LIMITS).map(drop), provisioned());
    assert_eq!(book.delete("a", None, 300), provisioned());
    let other = rules([Draft { group_by: None, ..named("b") }]);
    assert_eq!(set(&mut book, &other, 300), Ok(true));
    assert_eq!((ids(&book, 299), ids(&book, 300)), (vec!["a", "b"], vec!["b"]));
    assert_eq!(book.get("b").unwrap().generation, 2);
    book.upsert(named("c"), None, 300, &LIMITS).unwrap();
    let before = book.clone();
    assert_eq!(set(&mut book, &both, 400), Err(Error::TooMany { limit: 2 }));
    let twice = rules([named("b"), named("b")]);
    assert_eq!(set(&mut book, &twice, 400), Err(Error::Twice { id: "b".to_owned() }));
    assert_eq!(book, before);
}

#[test]
fn the_earliest_version_of_a_rule_says_whether_others_were_before_it() {
    let (mut book, limits) = (Book::default(), BookLimits::default());
    for (id, from_ms) in [("a", 0), ("b", 15), ("a", 30)] {
        book.upsert(named(id), None, from_ms, &limits).unwrap();
    }
    let earliest = |book: &Book, id| book.earliest(id).map(|it| (it.generation, it.from_ms));
    assert_eq!(earliest(&book, "a"), Some((1, 0)));
    assert_eq!(book.versions().len(), 3);
    book.forget(30);
    assert_eq!((earliest(&book, "a"), earliest(&book, "b")), (Some((2, 30)), Some((1, 15))));
    book.delete("b", None, 45).unwrap();
    assert_eq!((earliest(&book, "b"), earliest(&book, "c")), (Some((1, 15)), None));
}
