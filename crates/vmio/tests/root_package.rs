//! The Debian package, as a user meets it: installed in a copy of this host's root (an overlay in mount and network
//! namespaces of its own), its daemon started as the unit starts it, asked, ended, and removed. The binary is the one of
//! these tests; `make deb` packs the release build by the same script.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

/// In the copy: from the package alone.
const INSIDE: &str = r#"
unset VMIO_STATE
for tool in $TOOLS; do
  ! command -v "$tool" || { echo "$tool is still there"; exit 1; }
done
for headers in stdio.h libelf.h zlib.h linux/bpf.h bpf/libbpf.h; do
  [ ! -e "/usr/include/$headers" ]
done
[ ! -e "$SOURCES/Cargo.toml" ]
dpkg -i /tmp/vmio.deb
getent group vmio
vmio --version
# What is to be in it, and what is in it, are the same; of each verb there is a manual page, as the program itself writes them.
vmio man /tmp/man > /tmp/man.said
{
  printf '%s\n' /usr/bin/vmio /lib/systemd/system/vmio-guard.service
  printf '/usr/lib/vmio/%s\n' vmio-agent vmio-cpu vmio-udp
  printf '/usr/share/doc/vmio/%s\n' README.md changelog.gz copyright examples/guard.toml \
    monitoring/{README.md,prometheus.yml,vmio-guard.grafana.json,vmio-guard.rules.yml}
  printf '/usr/share/%s\n' bash-completion/completions/vmio zsh/vendor-completions/_vmio fish/vendor_completions.d/vmio.fish
  for page in /tmp/man/*.1; do echo "/usr/share/man/man1/${page##*/}.gz"; done
} | sort > /tmp/wanted
dpkg -L vmio | while read -r path; do [ -d "$path" ] || echo "$path"; done | sort > /tmp/there
diff /tmp/wanted /tmp/there
for page in vmio vmio-guard-{run,status,apply,set,confirm,undo,check,plan,simulate} vmio-{tax,scan,top,doctor}; do
  zcat "/usr/share/man/man1/$page.1.gz" | diff - "/tmp/man/$page.1"
done
[ -d /etc/vmio/guard.d ]
diff <(zcat /usr/share/doc/vmio/changelog.gz | head -1) <(echo '# Changelog')
bash -n /usr/share/bash-completion/completions/vmio
# The libraries that the program is linked with are those of the packages that it depends on.
dpkg-query -W -f '${Depends}' vmio | sed 's/ ([^)]*)//g; s/, */\n/g' | sort > /tmp/depends
ldd /usr/bin/vmio | sed -n 's/^\t\([^ ]*\.so[^ ]*\) => .*/\1/p' > /tmp/libraries
grep -q '^libc\.so' /tmp/libraries
while read -r library; do
  dpkg -S "*/$library" | sed -n 's/^\([^:, ]*\).*/\1/p' | sort -u | comm -12 - /tmp/depends | grep -q . ||
    { echo "$library is of no package of: $(tr '\n' ' ' < /tmp/depends)"; exit 1; }
done < /tmp/libraries
# What is sent into guests and containers needs no library at all, and is found where the package has it.
for helper in agent cpu udp; do
  ! ldd "/usr/lib/vmio/vmio-$helper" 2>&1 | grep ' => ' || { echo "vmio-$helper needs libraries"; exit 1; }
done
vmio guard check --config /usr/share/doc/vmio/examples/guard.toml
# It measures: the agent runs in a container of its own.
vmio tax --quick --guests container --only cpu --yes --no-gentle --minutes 0.3 --json > /tmp/tax.json 2> /tmp/tax.said ||
  { cat /tmp/tax.said; exit 1; }
grep -q '"headline"' /tmp/tax.json
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
# Groups that a container is held by.
mount --rbind /sys/fs/cgroup "$bed/root/sys/fs/cgroup"
# Neither compilers nor headers, nor these sources and what was built of them.
export TOOLS="cargo rustc clang cc c++ cpp gcc g++ ld as make pkg-config bpftool llc strip"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root SOURCES=$3
unset CARGO CARGO_HOME CARGO_MANIFEST_DIR CARGO_TARGET_DIR RUSTUP_HOME RUSTC TMPDIR
for tool in $TOOLS; do
  while found=$(chroot "$bed/root" /bin/bash -c 'command -v "$0"' "$tool"); do rm "$bed/root$found"; done
done
for hidden in /usr/include /usr/local/include /usr/lib/gcc /usr/lib/rustlib /usr/local/cargo /usr/local/rustup /root/.cargo \
  "$SOURCES"; do
  [ ! -d "$bed/root$hidden" ] || mount -t tmpfs none "$bed/root$hidden"
done
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
    // Fast compression: nobody downloads it. No symbols, as in a release.
    let stripped = dir.path().join("vmio");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(vmio));
    let mut build = Command::new(sources.join("scripts/deb"));
    build.arg(&stripped).arg(agent.parent().unwrap()).arg(dir.path()).env("DEB_OPTIONS", "-Zgzip -z1");
    run(&mut build);
    let mut around = Command::new("unshare");
    around.args(["--mount", "--net", "--pid", "--fork", "bash", "-eu", "-c", AROUND, "bash"]);
    let said = run(around.arg(dir.path()).arg(INSIDE).arg(sources));
    assert!(said.contains("\nall of it\n"), "{said}");
}
