#!/usr/bin/env bash
# Builds what a node needs beside the coracle binary, from pinned Go modules
# and without any registry, into bin/bundle (or $BUNDLE_DIR):
#
#   bin/       containerd, its runc shim, ctr, runc, etcdctl
#   cni/       bridge, host-local, loopback
#   images/    pause.tar, frontend.tar (OCI image layouts); every cluster has them
#   examples/  extender.tar, to be imported by hand
#
# Does nothing when the inputs have not changed since the last build.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
out=${BUNDLE_DIR:-$root/bin/bundle}
packages=(gcc libc6-dev pkg-config libseccomp-dev busybox-static mksh)

say() { echo "bundle: $*" >&2; }

# shell is the static one of the package mksh. BusyBox's own shell prefers its
# built-in commands to those of the image, and its wget, linked statically to
# glibc, crashes when it looks up a name.
shell() { dpkg -L mksh | grep -- '-linux-musl/bin/mksh$'; }

inputs() {
	{
		go version
		go env GOARCH
		(cd "$root" && find bundle examples/*/*.go -type f | LC_ALL=C sort | xargs sha256sum)
		sha256sum /bin/busybox "$(shell)"
	} | sha256sum | cut -d' ' -f1
}

# build OUTPUT PACKAGE [FLAG...]: a static program without symbol tables.
build() {
	local output=$1 package=$2
	shift 2
	say "building $(basename "$output")"
	(cd "$here" && CGO_ENABLED=${CGO_ENABLED:-0} go build -trimpath -buildvcs=false -o "$output" "$@" "$package")
}

version() { (cd "$here" && go list -m -f '{{.Version}}' "$1"); }

"$root/tools/packages.sh" "${packages[@]}"
want=$(inputs)
if [ "$(cat "$out/.inputs" 2>/dev/null)" = "$want" ]; then
	say "up to date in $out"
	exit 0
fi
mkdir -p "$out"/{bin,cni,images,examples,.work}
rm -f "$out/.inputs"

containerd=github.com/containerd/containerd/v2
containerd_flags=(
	-tags "no_btrfs no_devmapper no_zfs no_tracing"
	-ldflags "-s -w -X $containerd/version.Version=$(version $containerd) -X $containerd/version.Revision="
)
build "$out/bin/containerd" $containerd/cmd/containerd "${containerd_flags[@]}"
build "$out/bin/ctr" $containerd/cmd/ctr "${containerd_flags[@]}"
containerd_flags[1]+=" no_grpc"
build "$out/bin/containerd-shim-runc-v2" $containerd/cmd/containerd-shim-runc-v2 "${containerd_flags[@]}"
# runc enters namespaces in C before Go starts, and filters with libseccomp.
CGO_ENABLED=1 build "$out/bin/runc" github.com/opencontainers/runc \
	-tags "seccomp netgo osusergo urfave_cli_no_docs runc_nocriu" -buildmode=pie \
	-ldflags "-s -w -linkmode external -extldflags -static-pie -X main.version=$(version github.com/opencontainers/runc | tr -d v)"
build "$out/bin/etcdctl" go.etcd.io/etcd/etcdctl/v3 -ldflags "-s -w"
for plugin in main/bridge main/loopback ipam/host-local; do
	build "$out/cni/$(basename $plugin)" github.com/containernetworking/plugins/plugins/$plugin \
		-ldflags "-s -w -X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=$(version github.com/containernetworking/plugins)"
done

build "$out/.work/mkimage" ./mkimage
build "$out/.work/pause" ./pause -ldflags "-s -w"
for example in frontend extender; do
	(cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$out/.work/$example" ./examples/$example)
done
arch=$(go env GOARCH)
say "packing images"
"$out/.work/mkimage" -o "$out/images/pause.tar" -name coracle.internal/pause:1.0 -arch "$arch" \
	-user 65535:65535 -entrypoint /pause "/pause=$out/.work/pause"
links=()
for applet in $(/bin/busybox --list); do
	case $applet in busybox | wget | sh) ;; *) links+=("/bin/$applet->busybox") ;; esac
done
links+=("/bin/wget->/frontend" "/bin/sh->mksh")
"$out/.work/mkimage" -o "$out/images/frontend.tar" -name coracle.internal/frontend:1.0 -arch "$arch" \
	-ports 80/tcp -entrypoint /frontend "/frontend=$out/.work/frontend" "/bin/busybox=/bin/busybox" "/bin/mksh=$(shell)" "${links[@]}"
"$out/.work/mkimage" -o "$out/examples/extender.tar" -name coracle.internal/extender:1.0 -arch "$arch" \
	-entrypoint /extender "/extender=$out/.work/extender"

rm -rf "$out/.work"
echo "$want" >"$out/.inputs"
say "done in $out"
