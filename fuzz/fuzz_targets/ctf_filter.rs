#![no_main]

use std::sync::LazyLock;

use ctf::TraceClass;
use ctf::filter::Filter;
use libfuzzer_sys::fuzz_target;

static TRACE: LazyLock<TraceClass> = LazyLock::new(|| {
    let metadata = r#"/* CTF 1.8 */
        typealias integer { size = 8; } := u8;
        trace { major = 1; minor = 8; byte_order = le; };
        env { hostname = "vm"; };
        stream { event.context := struct { string procname; }; };
        event { name = "e"; fields := struct { u8 a; struct { u8 b; } s; string t; enum : u8 { x } l; }; };"#;
    TraceClass::parse(metadata.as_bytes()).expect("the fixed metadata is right")
});

// A filter either is refused at a column of its text, or compiles for any trace.
fuzz_target!(|text: &str| {
    match Filter::parse(text) {
        Ok(filter) => {
            drop(filter.check([&*TRACE]));
            drop(filter.compile(&TRACE));
        }
        Err(error) => assert!((1..=text.chars().count() + 1).contains(&error.column)),
    }
});
