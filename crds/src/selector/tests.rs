use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn normal(text: &str) -> String {
    Selector::parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .to_string()
}

#[test]
fn normal_form_and_uid_are_those_of_existing_clusters() {
    let cases = [
        ("", "all()", "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"),
        (
            "a == 'b'",
            r#"a == "b""#,
            "s:flMh0m0X_BowkAK_W3j3MgH8oQOsj3WxGDoXCQ",
        ),
        (
            r#"a=="b"&&c in{"z","y","z",}"#,
            r#"(a == "b" && c in {"y", "z"})"#,
            "s:zY-_HqP8CbLmyu9gDq3wkdoC0AWop_QLZlP2ow",
        ),
        (
            "a == 'b' || c == 'd' && e == 'f'",
            r#"(a == "b" || (c == "d" && e == "f"))"#,
            "s:S-qCSUXi1P0ft42eE8dHG6vx6ub86WkArSBbTw",
        ),
        (
            "!(has(b) || !has(a))",
            "!(has(b) || !has(a))",
            "s:Iss0uCleLYv1GSv_pNm7hAO58kE9jAx1NKyG3Q",
        ),
        (
            "!!has(a)",
            "has(a)",
            "s:JpRGrxZ4kdS6g7WoF-uG_g7qlh2ipw2zGYBMpQ",
        ),
        (
            r#"a == 'x"y'"#,
            r#"a == 'x"y'"#,
            "s:NfCtOX0ojA7Qdn2AfSUT3Ikt9BFElWOt7d_z0Q",
        ),
    ];
    for (text, form, uid) in cases {
        let selector = Selector::parse(text).expect(text);
        assert_eq!(selector.to_string(), form, "{text}");
        assert_eq!(selector.uid(), uid, "{text}");
    }
}

#[test]
fn operators_may_be_written_with_any_inner_space() {
    for text in [
        "a startswith 'q'",
        "a starts  with 'q'",
        "a starts\twith'q'",
    ] {
        assert_eq!(normal(text), r#"a starts with "q""#);
    }
    assert_eq!(normal("a notin {'x'}"), r#"a not in {"x"}"#);
    assert_eq!(normal("a endswith \"\""), r#"a ends with """#);
}

#[test]
fn words_are_labels_wherever_no_operator_or_function_can_stand() {
    let cases = [
        ("in in {'a'}", r#"in in {"a"}"#),
        ("all == 'b'", r#"all == "b""#),
        ("has == 'y'", r#"has == "y""#),
        ("contains contains 'x'", r#"contains contains "x""#),
        ("not in {'x'}", r#"not in {"x"}"#),
        ("has( a )", "has(a)"),
        ("all( )", "all()"),
        ("-a- == 'b'", r#"-a- == "b""#),
        ("a in {}", "a in {}"),
        ("a in{'x'}", r#"a in {"x"}"#),
        ("  \u{a0}has(a)\n", "has(a)"),
    ];
    for (text, form) in cases {
        assert_eq!(normal(text), form, "{text}");
    }
    // The single label is `not`, not the operator.
    assert!(
        Selector::parse("not in {'x'}")
            .expect("parses")
            .matches(&labels(&[("not", "x")]))
    );
}

#[test]
fn malformed_texts_are_refused() {
    let cases = [
        "has (a)",
        "a = 'b'",
        "a == b",
        "a == 'b' c",
        "a in {'x',,'y'}",
        "a in {,'x'}",
        "a in ('x')",
        "()",
        "a == 'b' &&",
        "has(a) has(b)",
        "a STARTS WITH 'b'",
        "a == 'b",
        "a == 'b' &&\nhas(c)",
        "a inx {'b'}",
        "a && b",
        "a == 'b' | c == 'd'",
        "all(x)",
        "has()",
        "é == 'x'",
        "has(a)\u{a0}&& has(b)",
    ];
    for text in cases {
        assert!(Selector::parse(text).is_err(), "{text:?} was accepted");
    }
    assert!(Selector::parse(&format!("has({})", "a".repeat(513))).is_err());
    assert!(Selector::parse(&format!("has({})", "a".repeat(512))).is_ok());
}

#[test]
fn an_error_names_the_position_and_what_was_expected() {
    let error = Selector::parse("zone = 'b'").expect_err("single =");
    assert_eq!(error.position, 6);
    assert_eq!(
        error.to_string(),
        "position 6: expected ==, !=, in, not in, contains, starts with or ends with, found \"= 'b'\""
    );
    assert_eq!(
        Selector::parse("  ü == 'x'")
            .expect_err("not a label")
            .position,
        3
    );
    assert!(
        Selector::parse("a == 'b' &&")
            .expect_err("incomplete")
            .message
            .ends_with("found the end")
    );
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{}has(a){}", "(".repeat(depth), ")".repeat(depth));
    assert!(Selector::parse(&nested(64)).is_ok());
    assert!(Selector::parse(&nested(65)).is_err());
    assert!(Selector::parse(&nested(100_000)).is_err());
}

#[test]
fn negated_operators_hold_for_missing_labels() {
    let none = labels(&[]);
    let x = labels(&[("a", "x")]);
    let cases = [
        (r#"a != "x""#, true, false),
        (r#"a not in {"x"}"#, true, false),
        (r#"a == """#, false, false),
        (r#"a contains """#, false, true),
        (r#"a starts with """#, false, true),
        ("a in {}", false, false),
        ("a not in {}", true, true),
        ("has(a)", false, true),
        ("!has(a)", true, false),
        (r#"!a == "b""#, true, true),
        ("global()", true, true),
    ];
    for (text, when_missing, when_x) in cases {
        let selector = Selector::parse(text).expect(text);
        assert_eq!(
            selector.matches(&none),
            when_missing,
            "{text} without the label"
        );
        assert_eq!(selector.matches(&x), when_x, "{text} with a=x");
    }
}

#[test]
fn negation_covers_the_whole_comparison() {
    assert_eq!(normal("!a == \"b\""), r#"!a == "b""#);
    let selector = Selector::parse("!a == \"b\" && has(c)").expect("parses");
    assert!(selector.matches(&labels(&[("c", "1")])));
    assert!(!selector.matches(&labels(&[("a", "b"), ("c", "1")])));
}

#[test]
fn a_label_prefix_reaches_every_label() {
    let selector = Selector::parse("has(a) && !(b in {'x'} || c != 'y')").expect("parses");
    assert_eq!(
        selector.with_label_prefix("pcns.").to_string(),
        r#"(has(pcns.a) && !(pcns.b in {"x"} || pcns.c != "y"))"#
    );
}

fn expression() -> impl Strategy<Value = Expression> {
    let label = "[A-Za-z0-9_./-]{1,8}";
    let value = r#"[a-z "\{\},|&!()]{0,6}"#;
    let values = prop::collection::btree_set(value, 0..4);
    let operator = prop_oneof![
        Just(Comparison::Equal),
        Just(Comparison::NotEqual),
        Just(Comparison::Contains),
        Just(Comparison::StartsWith),
        Just(Comparison::EndsWith)
    ];
    let leaf = prop_oneof![
        Just(Expression::All),
        Just(Expression::Global),
        label.prop_map(Expression::Has),
        (label, operator, value).prop_map(|(label, operator, value)| Expression::Compare {
            label,
            operator,
            value
        }),
        (label, values.clone()).prop_map(|(label, values)| Expression::In { label, values }),
        (label, values).prop_map(|(label, values)| Expression::NotIn { label, values }),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(Expression::negated),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expression::And),
            prop::collection::vec(inner, 2..4).prop_map(Expression::Or),
        ]
    })
}

proptest! {
    #[test]
    fn the_normal_form_parses_to_the_same_tree(tree in expression()) {
        let selector = Selector::from(tree);
        prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn any_text_either_parses_or_is_refused_without_panic(text in ".{0,60}") {
        if let Ok(selector) = Selector::parse(&text) {
            prop_assert_eq!(normal(&selector.to_string()), selector.to_string());
        }
    }

    #[test]
    fn texts_made_of_tokens_never_panic(tokens in prop::collection::vec(
        prop::sample::select(vec!["a", "==", "'x'", "in", "not", "{", "}", ",", "(", ")", "!", "&&", "||", "has(", "all()", " ", "\"", "starts", "with"]), 0..24)) {
        let text = tokens.concat();
        if let Ok(selector) = Selector::parse(&text) {
            prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn negation_inverts_every_verdict(tree in expression(), key in "[a-z]", value in "[a-z]{0,2}") {
        let selector = Selector::from(tree);
        let set = BTreeMap::from([(key, value)]);
        prop_assert_eq!(selector.clone().negated().matches(&set), !selector.matches(&set));
    }
}
