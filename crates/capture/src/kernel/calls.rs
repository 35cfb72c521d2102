//! The table of system calls: what their arguments are.

use std::sync::LazyLock;

/// `name flag argument:kind ...`, one call a line; the file's head explains the kinds.
const TABLE: &str = include_str!("syscalls.table");

/// Numbers from here on are not looked up; the same bound as in `bpf/record.h`.
pub(super) const CALLS: usize = 512;

/// One system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) number: u16,
    /// The kernel's name, without `sys_`.
    pub(super) name: &'static str,
    /// Success gives the descriptor of a file that has a path.
    pub(super) opens: bool,
    /// At most six.
    pub(super) arguments: Vec<Argument>,
}

/// One argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// What an argument holds; see the table's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Signed32,
    Signed64,
    Unsigned16,
    Unsigned32,
    Unsigned64,
    Hex32,
    Pointer,
    /// A path or another text, copied at entry.
    String,
    /// A socket address, read at entry; its length is the next argument.
    SocketAddress,
    /// A socket address, read at exit; the next argument points to its length.
    SocketAddressOut,
    /// Two descriptors, read at exit.
    DescriptorsOut,
}

impl Kind {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "fd" | "i32" => Self::Signed32,
            "i64" => Self::Signed64,
            "mode" => Self::Unsigned16,
            "u32" => Self::Unsigned32,
            "u64" => Self::Unsigned64,
            "hex32" => Self::Hex32,
            "ptr" => Self::Pointer,
            "path" | "text" => Self::String,
            "sockaddr" => Self::SocketAddress,
            "sockaddr_out" => Self::SocketAddressOut,
            "fds_out" => Self::DescriptorsOut,
            _ => return None,
        })
    }
}

impl Call {
    /// The position of the first argument of this kind.
    pub(super) fn position(&self, kind: Kind) -> Option<usize> {
        self.arguments.iter().position(|argument| argument.kind == kind)
    }

    /// The arguments that are strings.
    pub(super) fn strings(&self) -> impl Iterator<Item = (usize, Argument)> {
        self.arguments
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, argument)| argument.kind == Kind::String)
    }
}

/// All known calls, by rising number.
pub(super) static ALL: LazyLock<Vec<Call>> =
    LazyLock::new(|| TABLE.lines().filter_map(parse_line).collect());

/// A comment, an empty line and a line that is wrong give nothing; a test counts that there is no wrong one.
fn parse_line(line: &'static str) -> Option<Call> {
    if line.starts_with('#') {
        return None;
    }
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let number = model::syscall_number(name).filter(|number| usize::from(*number) < CALLS)?;
    let opens = match words.next()? {
        "opens" => true,
        "-" => false,
        _ => return None,
    };
    let arguments: Option<Vec<Argument>> = words
        .map(|word| {
            let (name, kind) = word.split_once(':')?;
            Some(Argument { name, kind: Kind::parse(kind)? })
        })
        .collect();
    Some(Call { number, name, opens, arguments: arguments.filter(|all| all.len() <= 6)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_call() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
        assert_eq!(ALL.len(), lines);
        assert!(ALL.is_sorted_by_key(|call| call.number));
        assert!(ALL.windows(2).all(|pair| pair[0].number < pair[1].number));
    }

    #[test]
    fn a_socket_address_is_followed_by_its_length() {
        for call in ALL.iter() {
            for kind in [Kind::SocketAddress, Kind::SocketAddressOut] {
                if let Some(at) = call.position(kind) {
                    assert!(call.arguments[at + 1].name.ends_with("len"), "{}", call.name);
                }
            }
        }
    }

    #[test]
    fn known_calls_have_their_numbers_and_arguments() {
        let call = |name| ALL.iter().find(|call| call.name == name).unwrap();
        let openat = call("openat");
        assert_eq!((openat.number, openat.opens), (257, true));
        assert_eq!(openat.arguments[1], Argument { name: "filename", kind: Kind::String });
        assert_eq!(call("renameat2").strings().count(), 2);
        assert_eq!(call("newfstat").number, 5);
        assert_eq!(call("pipe2").position(Kind::DescriptorsOut), Some(0));
    }
}
