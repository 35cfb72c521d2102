//! Headers that OSProfiler 4.4.0 wrote.

use osprofiler::{HeaderError, Keys, TraceInfo};

const INFO: &str = "eyJiYXNlX2lkIjogImJkYjljMWYwLTAwMDAtNDAwMC04MDAwLTAxMjM0NTY3ODlhYiIsICJwYXJlbnRfaWQiOiAiYmRiOWMxZjAtMDAwMC00MDAwLTgwMDAtMDEyMzQ1Njc4OWFiIn0=";
const HMAC: &str = "d56d51719bfe72f2f31d31a418dbfd25f208caeb";
const ID: u128 = 0xbdb9_c1f0_0000_4000_8000_0123_4567_89ab;

/// Signed by `other`.
const WITHOUT_PARENT: [&str; 2] = [
    "eyJiYXNlX2lkIjogImJkYjljMWYwLTAwMDAtNDAwMC04MDAwLTAxMjM0NTY3ODlhYiJ9",
    "2c3ddae2bd81e6585470761c2272c9f16d83a913",
];
const WITH_ANOTHER: [&str; 2] = [
    "eyJiYXNlX2lkIjogImJkYjljMWYwLTAwMDAtNDAwMC04MDAwLTAxMjM0NTY3ODlhYiIsICJzYW1wbGVkIjogIjEifQ==",
    "a1cc7b9cb5cdfd4d8b343420911b2fb13435ad02",
];
const WITHOUT_BASE: [&str; 2] = [
    "eyJwYXJlbnRfaWQiOiAiYmRiOWMxZjAtMDAwMC00MDAwLTgwMDAtMDEyMzQ1Njc4OWFiIn0=",
    "cbc66b797d3a81cf06ef363e9a72e0a3760edbeb",
];
const NO_UUID: [&str; 2] = ["eyJiYXNlX2lkIjogIngifQ==", "dc2b3648aad1a162237f20636ed12b520e3b59f6"];

#[test]
fn what_a_key_has_signed_is_read() {
    let keys = Keys::parse(" other ,, SECRET_KEY,third");
    let expected = TraceInfo { base_id: ID, parent_id: ID, key: 1 };
    assert_eq!(keys.check(INFO, HMAC), Ok(expected));
    assert_eq!(keys.check(INFO, &format!(" {HMAC}\t")), Ok(expected));
    let [info, hmac] = WITHOUT_PARENT;
    assert_eq!(keys.check(info, hmac), Ok(TraceInfo { key: 0, ..expected }));
    assert_eq!(format!("{keys:?}"), "3 keys");
}

#[test]
fn what_no_key_has_signed_is_refused() {
    let keys = Keys::parse("SECRET_KEY");
    let refused = Err(HeaderError::NotSigned);
    for hmac in ["", "d5", &HMAC[..39], &HMAC.to_uppercase(), &HMAC.replace('d', "e"), "ä"] {
        assert_eq!(keys.check(INFO, hmac), refused, "{hmac}");
    }
    assert_eq!(keys.check(&INFO.replace("fQ==", "fR=="), &HMAC.replace('5', "6")), refused);
    assert_eq!(keys.check("", HMAC), refused);
    assert_eq!(Keys::parse("other").check(INFO, HMAC), refused);
    assert_eq!(Keys::parse(", ").check(INFO, HMAC), refused);
    let error = keys.check(&"a".repeat(5000), HMAC);
    assert_eq!(error, Err(HeaderError::TooLong { len: 5000, limit: 4096 }));
}

#[test]
fn what_is_signed_and_says_something_else_is_refused() {
    let keys = Keys::parse("other");
    let check = |[info, hmac]: [&str; 2]| keys.check(info, hmac).unwrap_err();
    assert_eq!(check(WITH_ANOTHER), HeaderError::Unexpected { name: "sampled".to_owned() });
    assert_eq!(check(WITHOUT_BASE), HeaderError::NoUuid { name: "base_id" });
    assert_eq!(check(NO_UUID), HeaderError::NoUuid { name: "base_id" });
}
