//! Rules as text.

use rules::{Config, Error, Fault, Functions, MAX_MATCHERS, Rule, Value};

use crate::samples::{CPU, by, rules};

#[test]
fn rules_are_for_all_tenants_or_for_one() {
    let config: Config = r#"
        [[rule]]
        id = "total"
        profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

        [[tenant.acme.rule]]
        id = "checkout"
        metric = "profiles_recorded_checkout_cpu"
        profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
        matchers = ['{service_name="shop"}', 'pod!~"canary-.*"']
        group_by = ["service_name"]
        external_labels = { team = "payments" }
        functions = { package = "shop/checkout" }
        value = "self"
    "#
    .parse()
    .unwrap();
    let ids = |tenant| config.of(tenant).map(Rule::id).collect::<Vec<_>>();
    assert_eq!((ids("acme"), ids("other")), (vec!["total", "checkout"], vec!["total"]));
    assert_eq!(config.tenants().collect::<Vec<_>>(), ["acme"]);
    let draft = config.of("acme").last().unwrap().draft();
    assert_eq!(draft.metric.as_deref(), Some("profiles_recorded_checkout_cpu"));
    assert_eq!((draft.matchers.len(), draft.value), (2, Value::Own));
    assert_eq!(draft.functions, Some(Functions::Package("shop/checkout".to_owned())));
    assert_eq!(draft.external_labels["team"], "payments");
    assert_eq!(draft.group_by.as_deref(), Some(&["service_name".to_owned()][..]));
    assert_eq!("".parse(), Ok(Config::default()));
}

#[test]
fn errors_say_the_line_the_rule_and_the_field() {
    let kind = format!("profile_type = \"{CPU}\"");
    for (text, expected) in [
        ("[[rule]]\nid = 5\n".to_owned(), "line 2: invalid type: integer"),
        (format!("[[rule]]\n{kind}\ngroupby = []\n"), "line 3: unknown field `groupby`"),
        ("a = 1\n".to_owned(), "line 1: unknown field `a`"),
        ("[[rule]\n".to_owned(), "line 1: "),
        (
            format!("[[rule]]\n{kind}\n\n[[rule]]\nid = \"x\"\n"),
            "line 4: rule x: profile_type: it is missing",
        ),
        (
            format!("[[rule]]\n{kind}\nid = \"a\"\n[[tenant.t.rule]]\n{kind}\nid = \"a\"\n"),
            "line 4: rule a: rule a is there twice",
        ),
        (
            format!("[[rule]]\n{kind}\nmatchers = ['a=']\n"),
            "line 1: rule 1: matchers: a text in quotes is missing at byte 3",
        ),
        (
            format!("[[rule]]\n{kind}\nfunctions = {{ regex = '(' }}\n"),
            "line 1: rule 1: functions: a regular expression",
        ),
        (
            format!("[[rule]]\n{kind}\nfunctions = {{ name = '(' }}\n"),
            "line 3: unknown variant `name`",
        ),
        (
            format!("[[rule]]\n{kind}\nmetric = 'cpu'\n"),
            "line 1: rule 1: metric: \"cpu\" is no name",
        ),
    ] {
        let error = text.parse::<Config>().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[test]
fn fields_are_checked() {
    let check = |change: &dyn Fn(&mut rules::Draft), field: &'static str, what: Fault| {
        let mut draft = by(&[]);
        change(&mut draft);
        assert_eq!(Rule::try_from(draft), Err(Error::Field { field, what }));
    };
    let text = str::to_owned;
    let reserved = |name: &str| Fault::Reserved { text: text(name) };
    check(&|it| it.id = "x".repeat(65), "id", Fault::TooLong { len: 65, limit: 64 });
    let prefix = "profiles_recorded_";
    for name in ["", prefix, "profiles_recorded_a b"] {
        check(
            &|it| it.metric = Some(text(name)),
            "metric",
            Fault::Metric { text: text(name), prefix },
        );
    }
    for kind in ["cpu", "a:b:c:d:e:delta"] {
        let wrong = Fault::ProfileType { text: text(kind) };
        check(&|it| it.profile_type = text(kind), "profile_type", wrong);
    }
    for matcher in [r#"__profile_type__="a:b:c:d:e""#, r#"__profile_type__=~".*""#] {
        check(&|it| it.matchers = vec![text(matcher)], "matchers", Fault::TypeMatcher);
    }
    let many = MAX_MATCHERS + 1;
    let too_many = Fault::TooMany { count: many, limit: MAX_MATCHERS };
    check(&|it| it.matchers = vec![text(r#"a="b""#); many], "matchers", too_many);
    check(
        &|it| it.group_by = Some(vec![text("a.b")]),
        "group_by",
        Fault::LabelName { text: text("a.b") },
    );
    check(
        &|it| it.group_by = Some(vec![text("a"), text("a")]),
        "group_by",
        Fault::Twice { text: text("a") },
    );
    for name in ["__name__", "profiles_rule_id"] {
        check(&|it| it.group_by = Some(vec![text(name)]), "group_by", reserved(name));
        check(
            &|it| drop(it.external_labels.insert(text(name), text("x"))),
            "external_labels",
            reserved(name),
        );
    }
    let function = |it: &mut rules::Draft| {
        it.functions = Some(Functions::Prefix(text("x")));
        it.external_labels.insert(text("function"), text("x"));
    };
    check(&function, "external_labels", reserved("function"));
    let long = Fault::TooLong { len: 2049, limit: 2048 };
    check(
        &|it| drop(it.external_labels.insert(text("a"), "x".repeat(2049))),
        "external_labels",
        long,
    );
}

#[test]
fn an_id_that_is_made_is_the_same_for_the_same_rule() {
    let [one, same, other] =
        [by(&["a"]), by(&["a"]), by(&["b"])].map(|draft| rules([draft]).remove(0));
    assert_eq!(one.id(), same.id());
    assert_ne!(one.id(), other.id());
    assert_eq!(one.id().len(), 10);
}
