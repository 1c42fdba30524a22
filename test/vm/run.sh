#!/usr/bin/env bash
# Runs a cluster on a machine with only version 2 of control groups, and the
# packets of the proxy mode ipvs: a virtual machine with Debian's kernel, emulated
# in software.
#
#   kernel: Debian's cloud image package, unpacked but not installed
#   disk:   none; an initramfs with coracle, its bundle, busybox and the tests of
#           internal/proxy/ipvs
#   result: lines on the serial console, ok or FAILED for each check of guest.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
work=${VM_DIR:-$root/bin/vm}
binary=${CORACLE_BINARY:-$root/bin/coracle}
bundle=${BUNDLE_DIR:-$root/bin/bundle}
timeout=${VM_TIMEOUT:-2400}

say() { echo "vm: $*" >&2; }

command -v go >/dev/null || {
	say "needs go, for the tests of internal/proxy/ipvs"
	exit 1
}
for need in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static dpkg-deb:dpkg; do
	command -v "${need%%:*}" >/dev/null || {
		say "needs ${need%%:*}: sudo apt-get install --no-install-recommends ${need##*:}"
		exit 1
	}
done
for file in "$binary" "$bundle/bin/containerd"; do
	[ -e "$file" ] || {
		say "$file is missing: run make build bundle"
		exit 1
	}
done

# The kernel and its modules, from the package that Debian's cloud kernel
# currently depends on.
mkdir -p "$work"
if ! ls "$work"/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
	package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -1)
	[ -n "$package" ] || {
		say "apt knows no linux-image-cloud-amd64: run apt-get update"
		exit 1
	}
	say "fetching $package"
	(cd "$work" && apt-get download "$package" 2>/dev/null)
	rm -rf "$work/kernel.part"
	dpkg-deb -x "$work/$package"_*.deb "$work/kernel.part"
	mv "$work/kernel.part" "$work/kernel"
fi
kernel=$(ls "$work"/kernel/boot/vmlinuz-*)
release=${kernel##*/vmlinuz-}

say "packing the initramfs"
tree=$work/tree
rm -rf "$tree"
mkdir -p "$tree"/{bin,sbin,etc,proc,sys,dev,run,tmp,root,new,opt/bundle,lib/modules/"$release"/kernel}
cp "$(command -v busybox)" "$tree/bin/busybox"
for applet in $("$tree/bin/busybox" --list); do
	[ "$applet" = busybox ] || ln -s busybox "$tree/bin/$applet"
done
ln -s ../bin/busybox "$tree/sbin/modprobe" # the path that the kernel uses
for part in net drivers/net fs/overlayfs lib crypto arch; do
	mkdir -p "$tree/lib/modules/$release/kernel/$(dirname $part)"
	cp -r "$work/kernel/lib/modules/$release/kernel/$part" "$tree/lib/modules/$release/kernel/$part"
done
rm -rf "$tree/lib/modules/$release"/kernel/drivers/net/{ethernet,wireless}
cp "$work/kernel/lib/modules/$release"/modules.{order,builtin*} "$tree/lib/modules/$release/"
(cd "$tree" && busybox depmod -b "$tree" "$release")
cp "$binary" "$tree/bin/coracle"
cp -r "$bundle"/{bin,cni,images} "$tree/opt/bundle/"
rm -f "$tree/opt/bundle/bin/etcdctl"
(cd "$root" && CGO_ENABLED=0 go test -c -o "$tree/root/ipvs.test" ./internal/proxy/ipvs)
cp "$here/init.sh" "$tree/init"
cp "$here/guest.sh" "$here/pods.yaml" "$tree/root/"
chmod +x "$tree/init" "$tree/root/guest.sh"
(cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd.gz"
rm -rf "$tree"

say "booting $release; the console goes to $work/console.log"
timeout "$timeout" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m "${VM_MEMORY:-3072}" \
	-kernel "$kernel" -initrd "$work/initrd.gz" -append "console=ttyS0 quiet panic=-1" \
	-nographic -no-reboot -nic none </dev/null >"$work/console.log" 2>&1 || say "the machine ended with code $?"
grep -aE '^(ok|FAILED) ' "$work/console.log" || true
grep -aq '^ok everything' "$work/console.log" || {
	say "failed; the end of the console:"
	tail -60 "$work/console.log" >&2
	exit 1
}
