//! Payloads as JSON from the columns of their class, as [`JsonWriter`] writes them from event records.

use ctf::Value;
use ctf::format::Output;
use ctf::format::json::JsonWriter;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use datafusion::arrow::datatypes::{Float64Type, Int64Type, UInt64Type};

use super::registry::Node;

/// Which of a class's columns a payload is made of.
pub(super) fn columns_of(node: &Node, into: &mut Vec<usize>) {
    match node {
        Node::Object(members) => members.iter().for_each(|(_, node)| columns_of(node, into)),
        Node::Value(at) | Node::Json(at) => into.push(*at),
        Node::Named(names, number) => into.extend([*names, *number]),
    }
}

/// The payloads of some rows; `column` gives those of the class by position.
pub(super) fn payloads<'c>(
    node: &Node,
    rows: usize,
    column: &impl Fn(usize) -> Option<&'c ArrayRef>,
) -> ArrayRef {
    let mut texts: StringViewBuilder = crate::build::texts();
    let mut writer = Writer { json: JsonWriter::new(), shown: Output::new(), out: String::new() };
    for row in 0..rows {
        writer.out.clear();
        writer.node(node, row, column);
        texts.append_value(&writer.out);
    }
    std::sync::Arc::new(texts.finish())
}

struct Writer {
    json: JsonWriter,
    shown: Output,
    out: String,
}

impl Writer {
    fn node<'c>(
        &mut self,
        node: &Node,
        row: usize,
        column: &impl Fn(usize) -> Option<&'c ArrayRef>,
    ) {
        match node {
            Node::Object(members) => {
                self.out.push('{');
                for (at, (name, node)) in members.iter().enumerate() {
                    self.out.push_str(if at > 0 { "," } else { "" });
                    self.value(Value::Str(name.as_bytes()));
                    self.out.push(':');
                    self.node(node, row, column);
                }
                self.out.push('}');
            }
            Node::Value(at) => match column(*at) {
                Some(column) => self.cell(column, row),
                None => self.null(),
            },
            Node::Json(at) => {
                let text = column(*at).and_then(|column| column.as_string_view_opt());
                match text.filter(|text| text.is_valid(row)) {
                    Some(text) => self.out.push_str(text.value(row)),
                    None => self.null(),
                }
            }
            Node::Named(names, number) => {
                self.out.push_str("{\"value\":");
                if let Some(column) = column(*number) {
                    self.cell(column, row);
                }
                self.out.push_str(",\"labels\":[");
                let names = column(*names).and_then(|column| column.as_string_view_opt());
                if let Some(names) = names.filter(|names| names.is_valid(row)) {
                    self.labels(names.value(row));
                }
                self.out.push_str("]}");
            }
        }
    }

    /// The names that are joined in a text; a number is none.
    fn labels(&mut self, names: &str) {
        if names.parse::<i128>().is_ok() {
            return;
        }
        for (at, name) in names.split('|').enumerate() {
            self.out.push_str(if at > 0 { "," } else { "" });
            self.value(Value::Str(name.as_bytes()));
        }
    }

    fn value(&mut self, value: Value<'_>) {
        self.shown.clear();
        self.json.write_value(value, &mut self.shown);
        self.out.push_str(&String::from_utf8_lossy(self.shown.as_bytes()));
    }

    fn null(&mut self) {
        self.out.push_str("null");
    }

    fn cell(&mut self, column: &ArrayRef, row: usize) {
        if column.is_null(row) {
            self.null();
        } else if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
            self.value(Value::Signed(numbers.value(row)));
        } else if let Some(numbers) = column.as_primitive_opt::<UInt64Type>() {
            self.value(Value::Unsigned(numbers.value(row)));
        } else if let Some(numbers) = column.as_primitive_opt::<Float64Type>() {
            self.value(Value::Float(numbers.value(row)));
        } else if let Some(truths) = column.as_boolean_opt() {
            self.value(Value::Bool(truths.value(row)));
        } else if let Some(texts) = column.as_string_view_opt() {
            self.value(Value::Str(texts.value(row).as_bytes()));
        } else if let Some(bytes) = column.as_binary_opt::<i32>() {
            self.value(Value::Blob(bytes.value(row)));
        } else if let Some(lists) = column.as_list_opt::<i32>() {
            let list = lists.value(row);
            self.out.push('[');
            for at in 0..list.len() {
                self.out.push_str(if at > 0 { "," } else { "" });
                self.cell(&list, at);
            }
            self.out.push(']');
        } else {
            self.null();
        }
    }
}
