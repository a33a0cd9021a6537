#!/bin/bash
# Makes a host of a freshly booted lab guest: what the init system, udev and an administrator have
# done on a real one. Use: setup DISK-FOR-LVM DISK-FOR-FILES
set -euo pipefail
lvm=$1 files=$2
skeleton=/usr/share/vmio-lab/etc
step() { now=$*; }
trap 'echo "cannot $now" >&2' ERR

step lay out the root
cp -r "$skeleton"/. /etc/
mkdir -p /root /srv /mnt/nfs /var/tmp /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs /run/lock /run/lvm /dev/pts /dev/shm
ln -sfn /run /var/run
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/mounts /etc/mtab
printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n' > /etc/passwd
printf 'root:x:0:\ndisk:x:6:\nnogroup:x:65534:\n' > /etc/group
printf '127.0.0.1 localhost lab\n' > /etc/hosts
echo lab > /proc/sys/kernel/hostname

step mount the kernel\'s file systems
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
# The agent has mounted it where the kernel has its directory.
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf -o mode=700 bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# By its module, where the kernel has one: the NVMe target is set up in it.
[ ! -d /sys/kernel/config ] || mount -t configfs configfs /sys/kernel/config
echo +cpu +cpuset +io +memory +pids > /sys/fs/cgroup/cgroup.subtree_control

# There is no udev: LVM makes its device nodes itself and waits for nobody. A pool that is full
# refuses writes at once, so that what happens then is seen within a test's time.
step set up LVM
cat > /etc/lvm/lvm.conf <<'END'
devices { obtain_device_list_from_udev = 0  external_device_info_source = "none" }
activation { udev_sync = 0  udev_rules = 0  verify_udev_operations = 0  monitoring = 0 }
global { event_activation = 0  use_lvmpolld = 0 }
END
lvm vgcreate -qq -y lab "$lvm" > /dev/null
lvm lvcreate -qq -y --type thin-pool -L 1536m -n pool lab > /dev/null
lvm lvchange -qq -y --errorwhenfull y lab/pool > /dev/null

# The inode tables are left alone: the kernel would write them while something is measured.
step make a file system
mkfs.ext4 -q -F -m 0 -E lazy_itable_init=1,lazy_journal_init=1 "$files"
mount -o noatime,noinit_itable "$files" /srv

# NFS version 4 alone: it needs neither rpcbind nor statd. Nobody has a lock to reclaim, so the
# server's grace period (90 s without new opens) is ended at once.
step start the NFS server
mkdir -p /srv/nfs
echo '/srv/nfs 127.0.0.1(rw,sync,fsid=0,no_root_squash,no_subtree_check,insecure)' > /etc/exports
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
exportfs -r
rpc.mountd --no-udp --no-nfs-version 3
rpc.nfsd --no-udp --no-nfs-version 3 4
echo Y > /proc/fs/nfsd/v4_end_grace
step mount from the NFS server
mount -t nfs4 -o vers=4.2,proto=tcp 127.0.0.1:/ /mnt/nfs
