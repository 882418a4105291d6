//! What a container sees, and what it may do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kubelet::runtime::{Error, Mount, Propagation, Security};

use crate::fixture::{isolated, processes, run, script};

fn mount(source: &Path, destination: &str) -> Mount {
    Mount {
        source: source.to_owned(),
        destination: PathBuf::from(destination),
        read_only: false,
        propagation: Propagation::Private,
    }
}

#[test]
fn environment_directory_and_name() {
    isolated("isolation::environment_directory_and_name", async |node| {
        let mut container = script("a", "echo $GREETING; pwd; hostname; echo $HOSTNAME; echo $PATH");
        container.environment = vec![("GREETING".into(), "good day".into())];
        container.working_directory = Some("/usr".into());
        let (_, written) = run(&node.open(), &container).await;
        let search = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        assert_eq!(written, format!("good day\n/usr\npod-name\npod-name\n{search}\n"));
    });
}

#[test]
fn mounts_are_seen_and_may_be_read_only() {
    isolated("isolation::mounts_are_seen_and_may_be_read_only", async |node| {
        let directory = node.state.join("volume");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("file"), "content").unwrap();
        let mut container = script(
            "a",
            "cat /rw/file; cat /one; echo new > /rw/new; echo no > /ro/no || echo refused; test -e /etc/inner/file && echo deep",
        );
        container.mounts = vec![
            mount(&directory, "/rw"),
            Mount { read_only: true, ..mount(&directory, "/ro") },
            mount(&directory.join("file"), "/one"),
            mount(&directory, "/etc/inner"),
        ];
        let (_, written) = run(&node.open(), &container).await;
        assert!(written.contains("contentcontent"), "{written}");
        assert!(written.contains("refused\n") && written.contains("deep\n"), "{written}");
        assert_eq!(fs::read_to_string(directory.join("new")).unwrap(), "new\n");
        assert!(!directory.join("no").exists());
        assert!(
            directory.join("file").exists(),
            "removing a container does not remove what was mounted in it"
        );
    });
}

#[test]
fn the_root_may_be_read_only() {
    isolated("isolation::the_root_may_be_read_only", async |node| {
        let mut container = script("a", "touch /etc/x && exit 1; touch /dev/shm/x");
        container.security.read_only_root = true;
        assert_eq!(run(&node.open(), &container).await.0.code, 0);
    });
}

#[test]
fn users_and_capabilities() {
    isolated("isolation::users_and_capabilities", async |node| {
        let runtime = node.open();
        let probe = "id -u; id -g; id -G; grep -E 'CapEff|NoNewPrivs' /proc/self/status";
        let mut container = script("a", probe);
        let (_, written) = run(&runtime, &container).await;
        assert_eq!(written, "0\n0\n0\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t0\n");

        container.security = Security {
            user: Some(107),
            group: Some(108),
            supplemental_groups: vec![36],
            no_new_privileges: true,
            ..Security::default()
        };
        let (_, written) = run(&runtime, &container).await;
        assert_eq!(written, "107\n108\n108 36\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n");

        container.security = Security {
            add_capabilities: vec!["NET_ADMIN".into()],
            drop_capabilities: vec!["ALL".into()],
            ..Security::default()
        };
        let (_, written) = run(&runtime, &container).await;
        assert!(written.contains("CapEff:\t0000000000001000"), "{written}");
    });
}

#[test]
fn a_privileged_container_may_do_what_the_node_may() {
    isolated("isolation::a_privileged_container_may_do_what_the_node_may", async |node| {
        let mut container = script(
            "a",
            "mount -t tmpfs none /mnt && echo mounted; test -w /dev/kvm && echo devices; : < /dev/kvm && echo allowed; grep CapEff /proc/self/status; : > /proc/sys/net/ipv4/ip_forward && echo settings; grep -c '/sys .*ro[, ]' /proc/self/mounts",
        );
        container.security.privileged = true;
        let (_, written) = run(&node.open(), &container).await;
        let own = fs::read_to_string("/proc/self/status").unwrap();
        let own = own.lines().find(|line| line.starts_with("CapEff")).unwrap();
        assert_eq!(written, format!("mounted\ndevices\nallowed\n{own}\nsettings\n0\n"));
        let plain = script("a", "mount -t tmpfs none /mnt || echo refused; ls /dev/kvm || echo none");
        let (_, written) = run(&node.open(), &plain).await;
        assert!(written.contains("refused") && written.contains("none"), "{written}");
    });
}

#[test]
fn processes_of_the_node() {
    isolated("isolation::processes_of_the_node", async |node| {
        let runtime = node.open();
        let (_, own) = run(&runtime, &script("a", "echo $$")).await;
        assert_eq!(own, "1\n");
        // What it starts in the background loses its parent, and ends with it all the same.
        let mut container =
            script("a", "tr '\\0' ' ' < /proc/1/cmdline; echo; (sleep 1000 &); (setsid sleep 1000 &)");
        container.host_pid = true;
        let (_, written) = run(&runtime, &container).await;
        assert!(written.starts_with("sh -c"), "{written}");
        assert_eq!(processes(), Vec::<String>::new());
    });
}

#[test]
fn the_network_is_the_one_that_is_given() {
    isolated("isolation::the_network_is_the_one_that_is_given", async |node| {
        let runtime = node.open();
        let namespaces = net::Namespaces::at(node.state.join("netns"));
        let namespace = namespaces.create("pod").unwrap();
        let inode = |path: &str| fs::read_link(path).unwrap().display().to_string();
        let mut container = script("a", "readlink /proc/self/ns/net; cat /sys/class/net/lo/operstate");
        let (_, written) = run(&runtime, &container).await;
        assert!(written.starts_with(&inode("/proc/self/ns/net")), "{written}");
        container.network = Some(namespace.path().to_owned());
        let (_, written) = run(&runtime, &container).await;
        let pod = namespace.run(|| inode("/proc/thread-self/ns/net")).unwrap();
        assert!(written.starts_with(&pod), "{written}");
        drop(namespace);
        namespaces.delete("pod").unwrap();
    });
}

#[test]
fn mounts_pass_both_ways_where_the_node_lets_them() {
    isolated("isolation::mounts_pass_both_ways_where_the_node_lets_them", async |node| {
        let runtime = node.open();
        let directory = node.state.join("shared");
        fs::create_dir(&directory).unwrap();
        let mut container = script(
            "a",
            "mkdir -p /shared/inner && mount -t tmpfs none /shared/inner && echo x > /shared/inner/x",
        );
        container.security.privileged = true;
        container.mounts =
            vec![Mount { propagation: Propagation::Bidirectional, ..mount(&directory, "/shared") }];
        let error = runtime.start(&container).await.unwrap_err();
        assert!(matches!(&error, Error::Create { text, .. } if text.contains("shared mount")), "{error}");

        let shell = |text: &str| {
            let done = Command::new("sh").args(["-ec", text]).current_dir(&node.state).status().unwrap();
            assert!(done.success(), "{text}");
        };
        shell("mount --bind shared shared; mount --make-rshared shared");
        let (exit, written) = run(&runtime, &container).await;
        assert_eq!(exit.code, 0, "{written}");
        assert_eq!(fs::read_to_string(directory.join("inner/x")).unwrap(), "x\n");
        let roots = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!roots.contains("rootfs"), "the container's own mounts stay in it: {roots}");
        shell("umount shared/inner; umount shared");
    });
}
