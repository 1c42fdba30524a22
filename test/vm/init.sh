#!/bin/sh
# The first process of the virtual machine. runc changes the root of containers
# by pivot_root, which the kernel does not allow on an initramfs. So the files
# are first moved to another file system in memory.
if [ ! -e /moved ]; then
	mount -t tmpfs -o size=85% tmpfs /new
	for part in bin sbin etc lib root opt init; do
		cp -a /$part /new/
	done
	mkdir -p /new/proc /new/sys /new/dev /new/run /new/tmp /new/var/lib /new/var/log
	touch /new/moved
	exec switch_root /new /init
fi

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --make-rshared /
for module in overlay bridge veth br_netfilter dummy nf_tables nft_chain_nat nft_ct nft_masq nft_nat nft_numgen nft_hash nft_reject_inet nft_fib_inet nft_redir ip_vs ip_vs_rr; do
	modprobe $module || echo "module $module: not loaded"
done
hostname vm
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
printf 'root:x:0:0:root:/root:/bin/sh\n' >/etc/passwd
printf '127.0.0.1 localhost\n10.0.2.15 vm\n' >/etc/hosts
ip link set lo up
ip link add eth0 type dummy
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2 dev eth0
echo 1 >/proc/sys/net/ipv4/ip_forward

export HOME=/root PATH=/bin:/sbin
/root/guest.sh
sync
poweroff -f
