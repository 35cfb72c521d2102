//! The thumbnail server under LTTng: built once, traced into a relay.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use testkit::lttng::SessionDaemon;

use crate::process::Running;

/// The folder with the built `thumbnailer` and `loader`, or why there is none.
pub(crate) fn programs() -> Result<&'static Path, &'static str> {
    static BUILT: OnceLock<Result<PathBuf, &'static str>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let libraries = ["libavformat", "libavcodec", "libavutil", "libswscale", "lttng-ust"];
            let found = Command::new("pkg-config").arg("--exists").args(libraries).status();
            if !found.is_ok_and(|status| status.success()) {
                return Err("the development files of libav and LTTng-UST are not installed");
            }
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("thumbnailer");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/thumbnailer");
            let made = Command::new("make")
                .arg("--silent")
                .arg("-C")
                .arg(source)
                .arg(format!("BUILD={}", folder.display()))
                .status();
            assert!(made.unwrap().success(), "the example does not build");
            Ok(folder)
        })
        .as_deref()
        .map_err(|reason| *reason)
}

/// A short video with one key frame, so that every thumbnail costs some decoding.
pub(crate) fn make_video(path: &Path) {
    let status = Command::new("ffmpeg")
        .args([
            "-nostdin",
            "-v",
            "error",
            "-f",
            "lavfi",
            "-i",
            "testsrc2=size=320x180:rate=25:duration=8",
        ])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "250", "-pix_fmt", "yuv420p"])
        .arg(path)
        .status();
    assert!(status.unwrap().success(), "ffmpeg cannot make a video");
}

/// A user-space recording session that rotates every second.
pub(crate) fn start_recording(daemon: &SessionDaemon, name: &str, url: &str) {
    let steps: [&[&str]; 7] = [
        &["create", name, "--set-url", url],
        &["enable-channel", "-u", "-s", name, "--switch-timer=500000", "metadata"],
        &[
            "enable-channel",
            "-u",
            "-s",
            name,
            "--subbuf-size=64K",
            "--num-subbuf=16",
            "--switch-timer=500000",
            "c",
        ],
        &["add-context", "-u", "-s", name, "-c", "c", "-t", "vpid", "-t", "vtid", "-t", "procname"],
        &["enable-event", "-u", "-s", name, "-c", "c", "thumbnailer:*"],
        &["enable-rotation", "-s", name, "--timer=1s"],
        &["start", name],
    ];
    for step in steps {
        daemon.lttng(step).unwrap();
    }
}

/// The running server and its port.
pub(crate) fn start_server(
    daemon: &SessionDaemon,
    programs: &Path,
    video: &Path,
    log: &Path,
) -> (Running, String) {
    let mut command = daemon.command(programs.join("thumbnailer"));
    command.args(["--listen", "127.0.0.1:0"]).arg(video);
    command.env("LTTNG_UST_REGISTER_TIMEOUT", "20000").stdout(Stdio::piped());
    let mut server = Running::start(&mut command, "thumbnailer", log);
    let address = server.line_after("listening on ");
    let port = address.rsplit(':').next().unwrap().to_owned();
    (server, port)
}

/// Sends requests and waits for all answers, which must be pictures.
pub(crate) fn load(programs: &Path, port: &str, requests: u32) {
    let output = Command::new(programs.join("loader"))
        .args([
            "--port",
            port,
            "--requests",
            &requests.to_string(),
            "--concurrency",
            "6",
            "--duration",
            "8",
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
