//! Selectors: what they mean, and where they are wrong.

use flame::{Fault, MAX_MATCHERS, MAX_SELECTOR_BYTES, Selector};
use proptest::prelude::*;

use super::samples::{CPU, series};

fn matches(text: &str) -> bool {
    let labels = [("service_name", "shop"), ("pod", "canary-1"), ("a.b", "x\"y\n")];
    Selector::parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .matches(&series(&labels))
}

#[test]
fn matchers_are_promqls() {
    for (text, expected) in [
        ("", true),
        ("{}", true),
        (" { } ", true),
        (r#"{service_name="shop"}"#, true),
        (r#"{service_name='shop',}"#, true),
        ("{service_name=`shop`}", true),
        (r#"{service_name="sho"}"#, false),
        (r#"{service_name!="shop"}"#, false),
        (r#"{service_name!="sho"}"#, true),
        // Regular expressions match whole values.
        (r#"{pod=~"canary"}"#, false),
        (r#"{pod=~"canary-.*"}"#, true),
        (r#"{pod=~"x|canary-1"}"#, true),
        (r#"{pod=~"canary-1|x"}"#, true),
        (r#"{pod!~"canary"}"#, true),
        (r#"{pod!~"canary-[0-9]+", service_name="shop"}"#, false),
        (r#"{"a.b"=~"x.y."}"#, true),
        (r#"{a.b="x\"y\n"}"#, true),
        (r#"{a.b="\x78\u0022y\U0000000a"}"#, true),
        // A label that is absent is empty.
        (r#"{nobody=""}"#, true),
        (r#"{nobody!=""}"#, false),
        (r#"{nobody=~".*"}"#, true),
        (r#"{nobody=~".+"}"#, false),
        // The profile's type.
        ("process_cpu", true),
        (r#"process_cpu{pod=~"c.*"}"#, true),
        ("memory{}", false),
        (&format!("{CPU}{{}}"), true),
        (&format!("{{__profile_type__=\"{CPU}\"}}"), true),
        (r#"{__name__="process_cpu", __type__="cpu", __unit__=~"nano.*"}"#, true),
        (r#"{__service_name__="shop"}"#, true),
    ] {
        assert_eq!(matches(text), expected, "{text}");
    }
}

#[test]
fn errors_say_where() {
    for (text, at, what) in [
        ("{", 1, Fault::Missing("a label's name")),
        ("x y", 2, Fault::Missing("an opening brace")),
        ("{a", 2, Fault::Missing("one of =, !=, =~ and !~")),
        ("{a=b}", 3, Fault::Missing("a text in quotes")),
        ("{ a = \"b\" c", 10, Fault::Missing("a comma or the closing brace")),
        ("{a=\"b\"} x", 8, Fault::Trailing),
        ("{1a=\"b\"}", 1, Fault::Missing("a label's name")),
        ("{a=\"b", 3, Fault::OpenText),
        ("{a=\"b\\", 3, Fault::OpenText),
        (r#"{a="b\q"}"#, 5, Fault::Escape),
        (r#"{a="\xff"}"#, 4, Fault::Escape),
        (r#"{a="\ud800"}"#, 4, Fault::Escape),
        (r#"{a="\u12"}"#, 4, Fault::Escape),
    ] {
        let error = Selector::parse(text).unwrap_err();
        assert_eq!((error.at, &error.what), (at, &what), "{text}");
    }
    assert_eq!(
        Selector::parse("{a=b}").unwrap_err().to_string(),
        "a text in quotes is missing at byte 3 of the selector"
    );
}

#[test]
fn regular_expressions_stay_in_their_group_and_their_bounds() {
    for text in
        [r#"{a=~"("}"#, r#"{a=~"x)|(y"}"#, r#"{a=~"(((x{99}){99}){99}){99}"}"#, r#"{a=~"(?=x)"}"#]
    {
        let error = Selector::parse(text).unwrap_err();
        assert!(matches!((error.at, &error.what), (4, Fault::Regex(_))), "{text}: {error}");
    }
    let many = format!("{{{}}}", "a=\"b\",".repeat(MAX_MATCHERS + 1));
    let limit = MAX_MATCHERS;
    assert_eq!(
        Selector::parse(&many).unwrap_err().what,
        Fault::TooMany { what: "matchers", limit }
    );
    let long = format!("{{a=\"{}\"}}", "b".repeat(MAX_SELECTOR_BYTES));
    assert!(matches!(
        Selector::parse(&long).unwrap_err().what,
        Fault::TooMany { what: "bytes", .. }
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_selector_or_an_error_in_it(text in r#"[{}a.:="'`~!,\\xu \n1é]{0,24}"#) {
        match Selector::parse(&text) {
            Ok(selector) => {
                let shown = selector.to_string();
                prop_assert_eq!(Selector::parse(&shown).unwrap().to_string(), shown);
            }
            Err(error) => prop_assert!(error.at <= text.len(), "{}", error),
        }
    }

    #[test]
    fn any_value_can_be_asked_for(value in any::<String>().prop_filter("not empty", |value| !value.is_empty())) {
        let wanted = Selector::default().and("a", &value);
        let read = Selector::parse(&wanted.to_string()).unwrap();
        prop_assert!(read.matches(&series(&[("a", &value)])));
        let longer = value + "x";
        prop_assert!(!read.matches(&series(&[("a", &longer)])));
    }
}
