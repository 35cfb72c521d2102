//! What the path of a control group says: the container, the pod and the unit that its processes are of.
//!
//! Runtimes put each container into a group of its own and give it the container's id, in ways that differ by runtime and by who
//! makes the groups, systemd or the runtime. What is not in a path: names of pods and their namespaces, names and images of
//! containers. They are known to Kubernetes and to the runtimes alone.

/// What a path says. Of groups inside each other the innermost counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Belonging<'a> {
    /// Id of the container: 64 hexadecimal digits as a rule, a name for LXC.
    pub(super) container: Option<&'a str>,
    /// Uid of the pod of Kubernetes, with hyphens where it has them.
    pub(super) pod_uid: Option<String>,
    /// Unit of systemd, if the process is not in a container, or the one that runs inside of it.
    pub(super) unit: Option<&'a str>,
}

impl<'a> Belonging<'a> {
    /// Reads a path from the root of the hierarchy on.
    pub(super) fn of(path: &'a str) -> Self {
        let mut found = Self::default();
        let mut parent = "";
        for group in path.split('/').filter(|group| !group.is_empty()) {
            // containerd may be told to join what elsewhere are two groups: `slice:cri-containerd:id`.
            let mut names = group.split(':');
            let (first, last) = (names.next().unwrap_or_default(), names.next_back());
            found.pod_uid = pod_uid(first).or(found.pod_uid);
            let container = container(parent, last.unwrap_or(first));
            if container.is_some() {
                // The unit that is around it is the runtime's.
                (found.container, found.unit) = (container, None);
            } else if is_unit(group) {
                // What would be taken for something else begins with an underscore: `cg_escape` of systemd.
                found.unit = Some(group.strip_prefix('_').unwrap_or(group));
            }
            parent = group;
        }
        found
    }
}

/// The id of the container whose group this is.
fn container<'a>(parent: &str, group: &'a str) -> Option<&'a str> {
    if parent == "lxc" {
        return Some(group);
    }
    if let Some(name) = group.strip_prefix("lxc.payload.") {
        return Some(name).filter(|name| !name.is_empty());
    }
    let name = group.strip_suffix(".scope").unwrap_or(group);
    if is_task_of_fargate(name) {
        return Some(name);
    }
    let (runtime, id) = name.rsplit_once('-').unwrap_or(("", name));
    // Beside a container there is the group of whom looks after it: `libpod-conmon-id`, `crio-conmon-id`.
    let is_its_own = !runtime.ends_with("conmon");
    (is_its_own && is_hex(id, 64)).then_some(id)
}

/// `32 hexadecimal digits-decimal number`: what Amazon's Fargate names containers.
fn is_task_of_fargate(name: &str) -> bool {
    name.split_once('-').is_some_and(|(task, number)| {
        let is_number = |byte: u8| byte.is_ascii_digit();
        is_hex(task, 32) && number.len() >= 6 && number.bytes().all(is_number)
    })
}

/// `pod` and the uid, also behind what the slices around it are called: `kubepods-burstable-poduid.slice`. systemd takes hyphens of names
/// for slices inside each other, so that there they are underscores.
fn pod_uid(group: &str) -> Option<String> {
    let name = group.strip_suffix(".slice").unwrap_or(group);
    let name = name.rsplit_once("-pod").map_or(name, |(_, uid)| uid);
    let uid = name.strip_prefix("pod").unwrap_or(name);
    let is_told = name != uid || group.contains("-pod");
    (is_told && is_uid(uid)).then(|| uid.replace('_', "-"))
}

/// Of 8, 4, 4, 4 and 12 hexadecimal digits, or, of pods that the node made from a file, of 32.
fn is_uid(uid: &str) -> bool {
    const PARTS: [usize; 5] = [8, 4, 4, 4, 12];
    let mut parts = uid.split(['-', '_']);
    is_hex(uid, 32)
        || PARTS.iter().all(|len| parts.next().is_some_and(|part| is_hex(part, *len)))
            && parts.next().is_none()
}

fn is_hex(text: &str, len: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == len && text.bytes().all(is_digit)
}

/// The kinds of units that have processes of their own.
fn is_unit(group: &str) -> bool {
    let kind = group.rsplit_once('.').filter(|(name, _)| !name.is_empty()).map(|(_, kind)| kind);
    matches!(kind, Some("service" | "scope" | "mount" | "socket" | "swap"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f3c8f5a0d9be7d2a1c6e8b35f7094d1c2e3a4b5968778695a4b3c2d1e0f9a8b";
    const OTHER_ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const UID: &str = "8c64bb0e-5d1b-4cdf-9b6a-1f3a2c7d9e01";

    /// In paths `ID`, `OTHER`, `UID` and `U_I_D` stand for those above.
    fn check(path: &str, container: Option<&str>, pod_uid: Option<&str>, unit: Option<&str>) {
        let filled = |text: &str| {
            let text = text.replace("OTHER", OTHER_ID).replace("U_I_D", &UID.replace('-', "_"));
            text.replace("UID", UID).replace("ID", ID)
        };
        let path = filled(path);
        let container = container.map(filled);
        let expected =
            Belonging { container: container.as_deref(), pod_uid: pod_uid.map(filled), unit };
        assert_eq!(Belonging::of(&path), expected, "{path}");
    }

    #[test]
    fn groups_of_docker() {
        check("/system.slice/docker-ID.scope", Some("ID"), None, None);
        check("/docker/ID", Some("ID"), None, None);
        check("/docker/ID/docker/OTHER", Some("OTHER"), None, None);
        check("/docker/ID/system.slice/nginx.service", Some("ID"), None, Some("nginx.service"));
        let rootless = "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope";
        check(rootless, Some("ID"), None, None);
        check("/docker/buildkit/zq3o8pn4", None, None, None);
        check("/actions_job/ID", Some("ID"), None, None);
    }

    #[test]
    fn groups_of_kubernetes() {
        let in_slices = |pod: &str, container: &str| {
            format!("/kubepods.slice/kubepods-burstable.slice/{pod}/{container}")
        };
        let pod = "kubepods-burstable-podU_I_D.slice";
        for runtime in ["cri-containerd", "crio", "docker"] {
            let path = in_slices(pod, &format!("{runtime}-ID.scope"));
            check(&path, Some("ID"), Some("UID"), None);
        }
        check(
            &in_slices(pod, "crio-conmon-ID.scope"),
            None,
            Some("UID"),
            Some(&format!("crio-conmon-{ID}.scope")),
        );
        check(
            "/kubepods.slice/kubepods-podU_I_D.slice/cri-containerd-ID.scope",
            Some("ID"),
            Some("UID"),
            None,
        );
        check("/kubepods/besteffort/podUID/ID", Some("ID"), Some("UID"), None);
        check("/kubepods/podUID/crio-ID", Some("ID"), Some("UID"), None);
        check("/kubepods/burstable/podUID", None, Some("UID"), None);
        let of_file = "/kubepods/burstable/pod1a2b3c4d5e6f708192a3b4c5d6e7f809/ID";
        check(of_file, Some("ID"), Some("1a2b3c4d5e6f708192a3b4c5d6e7f809"), None);
        let of_file = "/kubepods.slice/kubepods-pod1a2b3c4d5e6f708192a3b4c5d6e7f809.slice";
        check(of_file, None, Some("1a2b3c4d5e6f708192a3b4c5d6e7f809"), None);
        let joined =
            "/system.slice/containerd.service/kubepods-burstable-podU_I_D.slice:cri-containerd:ID";
        check(joined, Some("ID"), Some("UID"), None);
        // A cluster in a container: the inner container and the inner pod.
        let nested = "/docker/OTHER/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podU_I_D.slice/cri-containerd-ID.scope";
        check(nested, Some("ID"), Some("UID"), None);
        check("/system.slice/kubelet.service", None, None, Some("kubelet.service"));
    }

    #[test]
    fn groups_of_other_runtimes() {
        check("/machine.slice/libpod-ID.scope", Some("ID"), None, None);
        check("/machine.slice/libpod-ID.scope/container", Some("ID"), None, None);
        check(
            "/machine.slice/libpod-ID.scope/container/init.scope",
            Some("ID"),
            None,
            Some("init.scope"),
        );
        let conmon = format!("libpod-conmon-{ID}.scope");
        check(&format!("/machine.slice/{conmon}"), None, None, Some(&conmon));
        check("/system.slice/web.service/libpod-payload-ID", Some("ID"), None, None);
        check("/libpod_parent/libpod-ID", Some("ID"), None, None);
        check("/system.slice/nerdctl-ID.scope", Some("ID"), None, None);
        check("/default/ID", Some("ID"), None, None);
        check("/lxc/web", Some("web"), None, None);
        check(
            "/lxc.payload.web/system.slice/cron.service",
            Some("web"),
            None,
            Some("cron.service"),
        );
        check("/lxc.monitor.web", None, None, None);
        check("/ecs/prod/9781c248-0edd-4cdb-9a93-f63cb662a5d3/ID", Some("ID"), None, None);
        let task = "9781c2480edd4cdb9a93f63cb662a5d3-2531612879";
        check(&format!("/ecs/9781c2480edd4cdb9a93f63cb662a5d3/{task}"), Some(task), None, None);
    }

    #[test]
    fn groups_of_systemd() {
        check("/system.slice/ssh.service", None, None, Some("ssh.service"));
        check(
            "/system.slice/system-getty.slice/getty@tty1.service",
            None,
            None,
            Some("getty@tty1.service"),
        );
        check("/user.slice/user-1000.slice/session-3.scope", None, None, Some("session-3.scope"));
        let of_user = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox.scope";
        check(of_user, None, None, Some("app-firefox.scope"));
        check(
            "/system.slice/postgresql@15-main.service/workers",
            None,
            None,
            Some("postgresql@15-main.service"),
        );
        check("/system.slice/dev-hugepages.mount", None, None, Some("dev-hugepages.mount"));
        check("/system.slice/_cpu.service", None, None, Some("cpu.service"));
        check(
            r"/machine.slice/machine-qemu\x2d1\x2dvm.scope",
            None,
            None,
            Some(r"machine-qemu\x2d1\x2dvm.scope"),
        );
        check("/init.scope", None, None, Some("init.scope"));
    }

    #[test]
    fn groups_that_say_nothing() {
        let shorter = &format!("/docker/{}", &ID[1..]);
        let longer = &format!("/docker/{ID}0");
        let capital = &format!("/docker/{}", ID.to_uppercase());
        let too_long = &format!("/kubepods/pod{UID}-0");
        let says_nothing = [
            "/",
            "",
            "/user.slice",
            "/a/b/.service",
            "/podium",
            "/tripod-7",
            "/pod",
            "//:::/",
            shorter,
            longer,
            capital,
            too_long,
        ];
        for path in says_nothing {
            assert_eq!(Belonging::of(path), Belonging::default(), "{path}");
        }
    }
}
