//! The packets that agents leave.

use std::fs;
use std::path::Path;

use ::profile::request::{Location, ResourceProfiles};
use ::profile::{Limits, Request, keys, ungzip};
use anyhow::Context;

/// Calls `each` with every packet in a folder; how many there are.
pub(super) fn each_packet(
    folder: &Path,
    mut each: impl FnMut(&Request<'_>),
) -> anyhow::Result<usize> {
    let mut count = 0;
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        // Others are being written.
        if path.extension().is_none_or(|it| it != "gz") {
            continue;
        }
        let bytes = ungzip(&fs::read(&path)?, Limits::default())?;
        let request = Request::decode(&bytes, Limits::default());
        each(&request.with_context(|| path.display().to_string())?);
        count += 1;
    }
    Ok(count)
}

/// The program of a process, as it was mapped.
pub(super) fn program<'a>(request: &Request<'a>, resource: &ResourceProfiles<'a>) -> &'a str {
    resource.find_text(&request.dictionary, keys::EXECUTABLE_PATH).unwrap_or_default()
}

/// The file of a frame, and what the linker calls its contents.
pub(super) fn file<'a>(request: &Request<'a>, frame: &Location) -> (&'a str, Option<&'a str>) {
    let d = &request.dictionary;
    let mapping = d.mappings.get(frame.mapping as usize).filter(|_| frame.mapping > 0);
    match mapping {
        Some(it) => (d.string(it.path), d.find_text(&it.attributes, keys::BUILD_ID_GNU)),
        None => (d.find_text(&frame.attributes, keys::MAPPED_PATH).unwrap_or_default(), None),
    }
}

/// The function of a frame: of several that were inlined, the innermost.
pub(super) fn function<'a>(request: &Request<'a>, frame: &Location) -> Option<&'a str> {
    let d = &request.dictionary;
    let function = d.functions.get(frame.lines.first()?.function as usize)?;
    Some(d.string(function.name))
}
