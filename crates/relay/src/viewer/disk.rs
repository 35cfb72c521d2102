//! Reads that may have to wait for the disk, away from the thread that serves other viewers.

use std::io;

use tokio::sync::Semaphore;

use crate::feed::TraceFile;

/// Reads that wait at a time, those of all relays of the process together: more would only wait longer for the disk.
static WAITING: Semaphore = Semaphore::const_new(16);

/// Looks at what was recorded before, at a time: each may read some files of each of a session's chunks.
static LOOKING: Semaphore = Semaphore::const_new(2);

/// Does something that waits for the disk. Nobody but the caller waits for it.
pub(super) async fn wait<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    within(&WAITING, work).await
}

/// Looks at what viewers of a session wait for before they begin; nobody else waits, however long it takes.
pub(super) async fn look<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    within(&LOOKING, work).await
}

async fn within<T: Send + 'static>(
    room: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let permit = room.acquire().await.map_err(io::Error::other)?;
    let work = move || {
        let done = work();
        // Not before, even if nobody waits for it any more.
        drop(permit);
        done
    };
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

/// Appends `len` bytes of a file to `out`. What the system has at hand is taken at once. After an error `out` may have lost
/// what was in it.
pub(super) async fn append(
    file: &TraceFile,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let filled = out.len();
    out.resize(filled + len, 0);
    let have = file.read_at_hand(out.get_mut(filled..).unwrap_or_default(), offset)?;
    if have == len {
        return Ok(());
    }
    let (file, mut bytes) = (file.clone(), std::mem::take(out));
    let (read, bytes) = wait(move || {
        let room = bytes.get_mut(filled + have..).unwrap_or_default();
        (file.read_exact_at(room, offset.saturating_add(have as u64)), bytes)
    })
    .await?;
    *out = bytes;
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;
    use wire::live::RelativePath;

    #[tokio::test]
    async fn what_has_to_be_waited_for_is_appended_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let path = folder.path().join("f");
        std::fs::write(&path, &bytes).unwrap();
        let file = TraceFile::open(&root, &[RelativePath::new("f").unwrap()]).unwrap();
        // Out of the system's memory, where the file system lets go of it.
        let std_file = std::fs::File::open(&path).unwrap();
        std_file.sync_all().unwrap();
        rustix::fs::fadvise(&std_file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut out = b"head".to_vec();
        append(&file, 10, 999_000, &mut out).await.unwrap();
        assert_eq!(out[..4], *b"head");
        assert_eq!(out[4..], bytes[10..999_010]);
        let end = append(&file, 999_990, 11, &mut out).await.unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }
}
