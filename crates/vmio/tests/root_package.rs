//! The Debian package, as a user meets it: installed in a copy of this host's root (an overlay in mount and network
//! namespaces of its own), its daemon started as the unit starts it, asked, ended, and removed. The binary is the one of
//! these tests; `make deb` packs the release build by the same script.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

/// In the copy: from the package alone.
const INSIDE: &str = r#"
unset VMIO_STATE
dpkg -i /tmp/vmio.deb
getent group vmio
vmio --version
dpkg -L vmio | grep man1/vmio-guard-run
wrong=$(systemd-analyze verify /lib/systemd/system/vmio-guard.service 2>&1)
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }
systemd-analyze security --offline=true --threshold=50 vmio-guard.service | tail -1
cat > /etc/vmio/guard.d/test.toml <<'POLICY'
[uplink.u0]
capacity = "100Mbit"
[class.gold]
min = "40Mbit"
[[interface]]
match = { name = "tap0" }
class = "gold"
POLICY
before=$(tc qdisc)
started() { for i in $(seq 200); do vmio guard status >/dev/null 2>&1 && return; sleep 0.1; done; echo "no answer"; exit 1; }
vmio guard run & daemon=$!
started
vmio guard status | grep '^tap0 *gold'
[ "$(stat -c '%A %U %G' /run/vmio/guard.sock)" = 'srw-rw---- root vmio' ]
sed -i 's/40Mbit/30Mbit/' /etc/vmio/guard.d/test.toml
# What the unit has for a reload.
$(sed -n 's/^ExecReload=//p' /lib/systemd/system/vmio-guard.service)
vmio guard status | grep '^tap0 *gold .* 30 '
kill $daemon
wait $daemon
tc qdisc | grep 'htb 7a00:'
dpkg -r vmio
[ "$(tc qdisc)" = "$before" ]
[ ! -e /usr/bin/vmio ]
dpkg -P vmio
[ ! -e /var/lib/vmio/guard ]
! getent group vmio
echo all of it
"#;

/// Makes the copy; what it mounts and links goes with the namespaces.
const AROUND: &str = r#"
bed=$1/bed
mkdir "$bed"
mount -t tmpfs -o mode=755 none "$bed"
mkdir "$bed/upper" "$bed/work" "$bed/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$bed/upper,workdir=$bed/work" "$bed/root"
mount -t proc proc "$bed/root/proc"
mount -t sysfs sys "$bed/root/sys"
mount --bind /dev "$bed/root/dev"
mount -t tmpfs none "$bed/root/run"
mount -t tmpfs none "$bed/root/tmp"
cp "$1"/vmio_*.deb "$bed/root/tmp/vmio.deb"
for link in u0 tap0; do
  ip link add $link type veth peer name $link-peer
  ip link set $link up
done
chroot "$bed/root" /bin/bash -eu -c "$2"
"#;

#[test]
#[ignore = "root: needs dpkg-deb, overlayfs"]
fn the_package_is_installed_started_used_and_removed() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let vmio = Path::new(env!("CARGO_BIN_EXE_vmio"));
    let agent = vmio_rig::ours::AGENT.find(&vmio_node::Local::new()).expect("make agent");
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{:?}: {said}", output.status);
        said
    };
    // Quickly: nobody downloads it.
    let mut build = Command::new(sources.join("scripts/deb"));
    build.arg(vmio).arg(agent.parent().unwrap()).arg(dir.path()).env("DEB_OPTIONS", "-Zgzip -z1");
    run(&mut build);
    let mut around = Command::new("unshare");
    around.args(["--mount", "--net", "--pid", "--fork", "bash", "-eu", "-c", AROUND, "bash"]);
    let said = run(around.arg(dir.path()).arg(INSIDE));
    assert!(said.contains("\nall of it\n"), "{said}");
}
