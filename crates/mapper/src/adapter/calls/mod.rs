//! The arguments and return values of system calls, by the names that LTTng gives their fields.

mod arguments;
mod effects;

use std::borrow::Cow;
use std::sync::LazyLock;

use ctf::{EventRecord, EventRecordClass, FieldHandle, Value};
use model::Fd;
use stitch::fact::{CallArgs, Effect, Fact, FactKind};

use super::{Context, number, register, text};
use arguments::{Arguments, Role, roles};
use effects::Rule;

/// The event record class of a call's begin or end.
#[derive(Debug)]
pub(super) struct CallClass {
    call: Named<String>,
    /// Where the number is of a call that has no class of its own.
    id: Option<FieldHandle>,
    abi: Abi,
    arguments: Arguments,
    path: Option<FieldHandle>,
    folder_fd: Option<FieldHandle>,
    address: Option<FieldHandle>,
    v4: Option<(FieldHandle, Option<FieldHandle>)>,
    ret: Option<FieldHandle>,
    pair: Option<FieldHandle>,
    opened: Option<FieldHandle>,
}

/// Whose numbers calls have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abi {
    /// Those of x86-64.
    Native,
    /// Those of 32-bit programs.
    Compat,
}

/// A call's name and what follows from it.
#[derive(Debug, Clone, Copy)]
struct Named<S> {
    name: S,
    roles: &'static [Role],
    rule: Rule,
}

impl<S: AsRef<str>> Named<S> {
    fn new(name: S) -> Self {
        let text = name.as_ref();
        Self { roles: roles(text), rule: Rule::of(text), name }
    }

    #[inline]
    fn as_ref(&self) -> Named<&str> {
        Named { name: self.name.as_ref(), roles: self.roles, rule: self.rule }
    }
}

/// Calls by number; the numbers have gaps.
type ByNumber = Vec<Option<Named<&'static str>>>;

static NATIVE: LazyLock<ByNumber> = LazyLock::new(|| by_number(model::syscall_name));
static COMPAT: LazyLock<ByNumber> = LazyLock::new(|| by_number(model::compat_syscall_name));
static UNKNOWN: Named<&str> = Named { name: "unknown", roles: &[], rule: Rule::Nothing };

fn by_number(name: fn(u64) -> Option<&'static str>) -> ByNumber {
    /// More than any kernel has.
    const NUMBERS: u64 = 1_024;
    (0..NUMBERS).map(|number| name(number).map(Named::new)).collect()
}

impl Abi {
    fn call(self, number: i32) -> Named<&'static str> {
        let calls: &ByNumber = match self {
            Self::Native => &NATIVE,
            Self::Compat => &COMPAT,
        };
        let place = usize::try_from(number).ok();
        place.and_then(|place| calls.get(place).copied().flatten()).unwrap_or(UNKNOWN)
    }
}

impl CallClass {
    pub(super) fn new(name: String, abi: Abi, class: &EventRecordClass) -> Self {
        let field = |names: &[&str]| names.iter().find_map(|name| class.field_handle(name));
        Self {
            id: field(&["id"]).filter(|_| name == "unknown"),
            abi,
            arguments: Arguments::of(&name, class),
            path: field(&["filename", "pathname", "oldname", "path"]),
            folder_fd: field(&["dfd"]),
            address: field(&["address"]),
            v4: field(&["v4addr"]).map(|v4| (v4, field(&["dport", "sport"]))),
            ret: field(&["ret"]),
            pair: field(&["fildes", "socket", "usockvec"])
                .filter(|_| matches!(name.as_str(), "pipe" | "pipe2" | "socketpair")),
            opened: field(&["resolved"]),
            call: Named::new(name),
        }
    }

    /// The call, unknown ones by their number; `None` when even that says nothing: x86-64's `rt_sigreturn` returns as a
    /// compat call of number -1.
    #[inline]
    fn call(&self, record: &EventRecord<'_>) -> Option<Named<&str>> {
        match self.id {
            None => Some(self.call.as_ref()),
            Some(id) => number(record, id).filter(|id| *id >= 0).map(|id| self.abi.call(id)),
        }
    }

    pub(super) fn entry(
        &self,
        record: &EventRecord<'_>,
        context: Context,
        give: &mut impl FnMut(&Fact<&str>),
    ) {
        let Some(Named { name, roles, rule }) = self.call(record) else { return };
        let path = self.path.and_then(|handle| text(record, handle));
        let address = self.address(record);
        let call = self.arguments.read(record, roles);
        let effect = rule.effect(&call, address.as_deref());
        let mut fd = call.fd;
        let mut path = path.as_deref();
        // With AT_EMPTY_PATH a call works on the descriptor itself: fstat comes as newfstatat(fd, "").
        if path == Some("") && effect == Effect::Nothing {
            let folder_fd = self.folder_fd.and_then(|handle| number(record, handle));
            if let Some(itself) = folder_fd.filter(|number| *number >= 0) {
                (fd, path) = (Some(Fd::new(itself)), None);
            }
        }
        let args = CallArgs { fd, path, effect };
        give(&context.fact(FactKind::CallEntry { name, args }));
    }

    pub(super) fn exit(
        &self,
        record: &EventRecord<'_>,
        context: Context,
        give: &mut impl FnMut(&Fact<&str>),
    ) {
        let Some(Named { name, .. }) = self.call(record) else { return };
        let ret = self.ret.and_then(|handle| register(record, handle)).unwrap_or(0);
        let opened = self.opened.and_then(|handle| text(record, handle));
        let address = self.address(record);
        give(&context.fact(FactKind::CallExit {
            name,
            ret,
            pair: self.pair(record),
            address: address.as_deref(),
            opened: opened.as_deref(),
        }));
    }

    /// The address as our own capture writes it, or from LTTng's IPv4 fields.
    fn address<'r>(&self, record: &EventRecord<'r>) -> Option<Cow<'r, str>> {
        let written = self.address.and_then(|handle| text(record, handle));
        if written.as_ref().is_some_and(|address| !address.is_empty()) {
            return written;
        }
        let (v4, port) = self.v4?;
        let Value::Compound(octets) = record.get(v4)? else { return None };
        let octets: Vec<String> = octets.integers()?.map(|octet| octet.to_string()).collect();
        let port = port.and_then(|handle| number(record, handle)).unwrap_or(0);
        (octets.len() == 4).then(|| format!("{}:{port}", octets.join(".")).into())
    }

    fn pair(&self, record: &EventRecord<'_>) -> Option<(Fd, Fd)> {
        let Value::Compound(pair) = record.get(self.pair?)? else { return None };
        let mut numbers = pair.integers()?.map(|fd| i32::try_from(fd).ok().map(Fd::new));
        Some((numbers.next()??, numbers.next()??))
    }
}
