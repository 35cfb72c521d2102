//! What processes publish of themselves for others: OpenTelemetry's process context.

use std::time::Duration;

use ::profile::{Limits, Request};
use capture::profile::{Packer, Sample};

use crate::profile::{Running, Sampling, compiled, config};
use crate::support::{are_installed, can_sample, wait_for};

/// Publishes `service.name` as it is told to: in a memory file, or in memory with a name. It says another one from a second signal on.
const PUBLISHER: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
struct header { char signature[8]; uint32_t version, payload_bytes; volatile uint64_t published_at; char *payload; };
static volatile sig_atomic_t signals;
static volatile unsigned sink;
static void on_signal(int number) { signals++; }
static char *payload(const char *name, uint32_t *bytes)
{
	unsigned n = strlen(name);
	char *p = malloc(64), *at = p;
	*at++ = 0x0a; *at++ = n + 20;              /* resource */
	*at++ = 0x0a; *at++ = n + 18;              /* attribute */
	*at++ = 0x0a; *at++ = 12; memcpy(at, "service.name", 12); at += 12;
	*at++ = 0x12; *at++ = n + 2;               /* value */
	*at++ = 0x0a; *at++ = n; memcpy(at, name, n); at += n;
	*bytes = at - p;
	return p;
}
int main(int c, char **v)
{
	struct header *h;
	signal(SIGUSR1, on_signal);
	if (v[1][0] == 'f') {
		int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, 4096)) return 1;
		h = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	} else {
		h = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (prctl(0x53564d41, 0, h, 4096, "OTEL_CTX")) return 2;
	}
	h->version = 2;
	h->payload = payload("shop", &h->payload_bytes);
	h->published_at = 1000;
	__sync_synchronize();
	memcpy(h->signature, "OTEL_CTX", 8);
	for (;;) {
		for (int i = 0; i < 100000; i++) sink += i;
		if (signals == 1) {
			signals = 2;
			h->published_at = 0;
			__sync_synchronize();
			h->payload = payload("shop, moved", &h->payload_bytes);
			__sync_synchronize();
			h->published_at = 2000;
		}
	}
}
"#;

/// The names that packets tell, each packet as short as can be. The last sample's packet comes with the next sample.
fn told(packer: &mut Packer, samples: &[Sample]) -> Vec<String> {
    let packets = samples.iter().filter_map(|sample| packer.add(sample));
    let mut names = Vec::new();
    for packet in packets {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        assert_eq!(request.check(), []);
        for resource in &request.resources {
            let name = resource.find_text(&request.dictionary, "service.name");
            names.push(name.unwrap_or("none").to_owned());
        }
    }
    names
}

/// As it is when a packet gets its first sample of the process; of one that is gone, as it was last.
#[test]
fn a_process_s_own_resource_is_in_its_packets() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "publisher", PUBLISHER);
    for way in ["file", "name"] {
        let mut running = Running::start(&program, &[way]);
        let sampling = Sampling::start(config(Some(vec![running.pid()])));
        wait_for("samples", || sampling.taken() >= 90 || running.has_ended());
        let (_, samples) = sampling.finish();
        if running.has_ended() {
            testkit::skip("memory cannot be given a name here: CONFIG_ANON_VMA_NAME");
            continue;
        }
        let new_packer = || Packer::new(Duration::from_nanos(1), 397);
        let mut packer = new_packer();
        assert_eq!(told(&mut packer, &samples[..30]), ["shop"; 29], "{way}");
        let pid = rustix::process::Pid::from_raw(running.pid().get()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
        let moved = "shop, moved";
        wait_for("another name", || told(&mut new_packer(), &samples[..2]) == [moved]);
        let of_running = told(&mut packer, &samples[30..60]);
        assert_eq!(
            (&*of_running[0], &of_running[1..]),
            ("shop", &[moved; 29].map(String::from)[..])
        );
        drop(running);
        let of_gone = told(&mut packer, &samples[60..]);
        assert!(of_gone.iter().all(|name| name == moved), "{way}: {of_gone:?}");
    }
}
