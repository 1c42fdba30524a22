package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put writes a file below a folder.
func put(t *testing.T, root, path, content string) {
	t.Helper()
	file := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// blocks is a folder that names the device 8:0 only.
func blocks(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink("../../devices/pci/block/sda", filepath.Join(dir, "8:0")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDisksOfVersion2(t *testing.T) {
	k := &Kernel{root: t.TempDir(), unified: true, blocks: blocks(t)}
	put(t, k.root, "kubepods/io.stat", "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=5 dios=6\n254:1 rbytes=1 wbytes=0 rios=1 wios=0\n")
	want := []Disk{
		{Device: "254:1", ReadBytes: 1, Reads: 1},
		{Device: "/dev/sda", ReadBytes: 4096, WrittenBytes: 8192, Reads: 1, Writes: 2},
	}
	if diff := cmp.Diff(want, k.Disks("/kubepods")); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
	if got := k.Disks("/missing"); got != nil {
		t.Errorf("a missing group has %+v", got)
	}
}

func TestDisksOfVersion1(t *testing.T) {
	k := &Kernel{root: t.TempDir(), blocks: blocks(t)}
	put(t, k.root, "blkio/kubepods/blkio.throttle.io_service_bytes_recursive", "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 1\n8:0 Total 12288\nTotal 12288\n")
	put(t, k.root, "blkio/kubepods/blkio.throttle.io_serviced_recursive", "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n")
	want := []Disk{{Device: "/dev/sda", ReadBytes: 4096, WrittenBytes: 8192, Reads: 1, Writes: 2}}
	if diff := cmp.Diff(want, k.Disks("/kubepods")); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
}

// The packets of a group are those of the network of a process in the group itself.
func TestPackets(t *testing.T) {
	k := &Kernel{root: t.TempDir(), proc: t.TempDir()}
	put(t, k.root, "cpu/pod/cgroup.procs", "")
	put(t, k.root, "memory/pod/cgroup.procs", "0\n12\n13\n")
	put(t, k.root, "memory/pod/container/cgroup.procs", "14\n")
	put(t, k.proc, "12/net/dev", `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 0 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0
  eth0:1234 5 0 6 0 0 0 0 2345 7 0 8 0 0 0 0
`)
	want := map[string]Packets{"lo": {Received: 1, Sent: 1}, "eth0": {Received: 5, ReceivedDropped: 6, Sent: 7, SentDropped: 8}}
	if diff := cmp.Diff(want, k.Packets("/pod")); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	if got := k.Packets("/missing"); got != nil {
		t.Errorf("a missing group has %+v", got)
	}
}

// A container that makes very many interfaces does not fill the kubelet's memory. Those
// that are read are read whole.
func TestPacketsOfManyInterfaces(t *testing.T) {
	k := &Kernel{root: t.TempDir(), unified: true, proc: t.TempDir()}
	put(t, k.root, "pod/cgroup.procs", "12\n")
	var text strings.Builder
	const interfaces = 50_000
	for i := range interfaces {
		fmt.Fprintf(&text, "dummy%d: 1 2 3 4 5 6 7 8 9 10 11 1234567890 13 14 15 16\n", i)
	}
	put(t, k.proc, "12/net/dev", text.String())
	all := k.Packets("/pod")
	if len(all) == 0 || len(all) > interfaces/2 {
		t.Errorf("the packets of %d interfaces of %d are kept", len(all), interfaces)
	}
	for name, p := range all {
		if p != (Packets{Received: 2, ReceivedDropped: 4, Sent: 10, SentDropped: 1234567890}) {
			t.Fatalf("%s: %+v", name, p)
		}
	}
}
