//! From addresses to names of functions.
//!
//! [`Functions`] is what the symbol tables of an executable file say, [`KernelFunctions`] what the running kernel says of
//! itself. [`Lines`] is what a file's debug information says: source lines, and functions that were inlined; [`DebugLinks`] in which file
//! that is. [`jit`] is what processes say of code that they made while they ran. [`TlsVariable`] is where a
//! file has a variable of each thread. None opens files or asks. [`readable`] turns a linker's
//! name into the one that was written.

mod functions;
pub mod jit;
mod kallsyms;
mod kernel;
mod lines;
mod links;
mod notes;
mod tls;

pub use functions::{Function, Functions, FunctionsError, MAX_FUNCTIONS};
pub use kallsyms::Kallsyms;
pub use kernel::{KernelFunction, KernelFunctions};
pub use lines::{FunctionName, Lines, LinesError, MAX_INFLATED_BYTES, SourceLine, UNITS_ROOM};
pub use links::{DebugLinks, link_checksum};
pub use notes::build_id_of_notes;
pub use tls::TlsVariable;

/// The longest name that is taken apart: compilers write longer ones, which are shown as they are.
const MAX_MANGLED_BYTES: usize = 4096;

/// The name as it was written, of one that a compiler of Rust or C++ has made for the linker; any other as it is.
///
/// Of C++ without the types of parameters and results, as `perf report` and pprof show it: they are longer than the names, and
/// overloads are told apart by their addresses.
#[must_use]
pub fn readable(name: &str) -> String {
    if name.len() > MAX_MANGLED_BYTES {
        return name.to_owned();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash at its end.
        return format!("{rust:#}");
    }
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    let options =
        cpp_demangle::DemangleOptions::new().no_params().no_return_type().recursion_limit(64);
    cpp.and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_compilers_become_those_that_were_written() {
        assert_eq!(
            readable("_ZN4core3fmt5Write9write_str17h0123456789abcdefE"),
            "core::fmt::Write::write_str"
        );
        assert_eq!(readable("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(
            readable("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back"
        );
        assert_eq!(readable("_Z3runIiEvT_PKc"), "run<int>");
        assert_eq!(readable("main"), "main");
        assert_eq!(readable("_Znonsense"), "_Znonsense");
        let long = format!("_ZN{}", "1a".repeat(5000));
        assert_eq!(readable(&long), long);
    }
}
