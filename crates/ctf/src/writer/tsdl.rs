//! Classes as TSDL text.

use std::fmt::{self, Write};

use super::{
    Base, ClockClass, EnvValue, EventClass, Field, FieldClass, IntClass, StreamClass, TraceClass,
    UuidBytes,
};

/// The metadata of a trace with this one stream class: plain TSDL text, which begins with `/* CTF 1.8 */`.
#[must_use]
pub fn metadata(trace: &TraceClass, stream: &StreamClass) -> String {
    let mut text = String::from("/* CTF 1.8 */\n\n");
    write_all(&mut text, trace, stream).expect("a String takes all that is written to it");
    text
}

fn write_all(text: &mut String, trace: &TraceClass, stream: &StreamClass) -> fmt::Result {
    write_trace(text, trace)?;
    write_env(text, &trace.env)?;
    write_clock(text, &trace.clock)?;
    write_stream(text, &trace.clock, stream)?;
    (0_u32..).zip(&stream.events).try_for_each(|(id, event)| write_event(text, id, event))
}

fn write_trace(text: &mut String, trace: &TraceClass) -> fmt::Result {
    for (size, name) in [(8, "uint8_t"), (16, "uint16_t"), (32, "uint32_t"), (64, "uint64_t")] {
        writeln!(
            text,
            "typealias integer {{ size = {size}; align = 8; signed = false; }} := {name};"
        )?;
    }
    writeln!(
        text,
        "\ntrace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{}\";\n\tbyte_order = le;\n\
         \tpacket.header := struct {{\n\t\tuint32_t magic;\n\t\tuint8_t uuid[16];\n\t\tuint32_t stream_id;\n\
         \t\tuint64_t stream_instance_id;\n\t}};\n}};\n",
        Uuid(trace.uuid)
    )
}

fn write_env(text: &mut String, env: &[(String, EnvValue)]) -> fmt::Result {
    text.push_str("env {\n");
    for (name, value) in env {
        match value {
            EnvValue::Text(value) => writeln!(text, "\t{name} = {};", Quoted(value))?,
            EnvValue::Int(value) => writeln!(text, "\t{name} = {value};")?,
        }
    }
    text.push_str("};\n\n");
    Ok(())
}

/// The clock counts from the Unix epoch: without `absolute` babeltrace2 merges it only with traces of other tracers than LTTng.
fn write_clock(text: &mut String, clock: &ClockClass) -> fmt::Result {
    writeln!(
        text,
        "clock {{\n\tname = \"{}\";\n\tuuid = \"{}\";\n\tdescription = {};\n\tfreq = {};\n\toffset = {};\n\tabsolute = true;\n}};\n",
        clock.name,
        Uuid(clock.uuid),
        Quoted(&clock.description),
        clock.frequency_hz,
        clock.offset_cycles
    )
}

fn write_stream(text: &mut String, clock: &ClockClass, stream: &StreamClass) -> fmt::Result {
    writeln!(
        text,
        "typealias integer {{ size = 64; align = 8; signed = false; map = clock.{}.value; }} := uint64_clock_t;\n",
        clock.name
    )?;
    text.push_str(
        "stream {\n\tid = 0;\n\tpacket.context := struct {\n\t\tuint64_clock_t timestamp_begin;\n\
         \t\tuint64_clock_t timestamp_end;\n\t\tuint64_t content_size;\n\t\tuint64_t packet_size;\n\
         \t\tuint64_t packet_seq_num;\n\t\tuint64_t events_discarded;\n\t\tuint32_t cpu_id;\n\t};\n\
         \tevent.header := struct {\n\t\tuint16_t id;\n\t\tuint64_clock_t timestamp;\n\t};\n",
    );
    if !stream.context.is_empty() {
        text.push_str("\tevent.context := struct {\n");
        write_fields(text, &stream.context)?;
        text.push_str("\t};\n");
    }
    text.push_str("};\n\n");
    Ok(())
}

fn write_event(text: &mut String, id: u32, event: &EventClass) -> fmt::Result {
    writeln!(text, "event {{\n\tname = {};\n\tid = {id};\n\tstream_id = 0;", Quoted(&event.name))?;
    text.push_str("\tfields := struct {\n");
    write_fields(text, &event.fields)?;
    text.push_str("\t};\n};\n\n");
    Ok(())
}

fn write_fields(text: &mut String, fields: &[Field]) -> fmt::Result {
    for Field { name, class } in fields {
        text.push_str("\t\t");
        match class {
            FieldClass::Int(int) => writeln!(text, "{} _{name};", Int(*int))?,
            FieldClass::Enum(int, labels) => {
                write!(text, "enum : {} {{ ", Int(*int))?;
                for (value, label) in labels {
                    write!(text, "{} = {value}, ", Quoted(label))?;
                }
                writeln!(text, "}} _{name};")?;
            }
            FieldClass::String => writeln!(text, "string _{name};")?,
            FieldClass::Text(len) => writeln!(
                text,
                "integer {{ size = 8; align = 8; signed = false; encoding = UTF8; }} _{name}[{len}];"
            )?,
            FieldClass::Array(int, len) => writeln!(text, "{} _{name}[{len}];", Int(*int))?,
            FieldClass::Sequence(int) => writeln!(
                text,
                "uint32_t __{name}_length;\n\t\t{} _{name}[__{name}_length];",
                Int(*int)
            )?,
        }
    }
    Ok(())
}

struct Int(IntClass);

impl fmt::Display for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = match self.0.base {
            Base::Octal => 8,
            Base::Decimal => 10,
            Base::Hexadecimal => 16,
        };
        write!(
            f,
            "integer {{ size = {}; align = 8; signed = {}; base = {base}; }}",
            self.0.width.bits(),
            self.0.signed
        )
    }
}

struct Uuid(UuidBytes);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// A string literal; what has no plain form is written as an octal escape.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\n' => f.write_str("\\n")?,
                control if u32::from(control) < 0x20 => write!(f, "\\{:03o}", u32::from(control))?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_cannot_end_its_literal_early() {
        assert_eq!(Quoted("a\"b\\c\nd\u{1}e").to_string(), r#""a\"b\\c\nd\001e""#);
    }

    #[test]
    fn a_sequence_declares_its_length_first() {
        let mut text = String::new();
        let field = Field::new("v4addr", FieldClass::Sequence(IntClass::U8));
        write_fields(&mut text, &[field]).unwrap();
        assert_eq!(
            text,
            "\t\tuint32_t __v4addr_length;\n\
             \t\tinteger { size = 8; align = 8; signed = false; base = 10; } _v4addr[__v4addr_length];\n"
        );
    }
}
