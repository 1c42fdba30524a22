package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// The processes that a machine can have are bounded by the kernel, and by the
// control group of the container that the machine is.
func TestProcessIDs(t *testing.T) {
	const pidMax, threadsMax, loads = "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/loadavg"
	for what, tt := range map[string]struct {
		files       map[string]string
		free, total int64
	}{
		"nothing is known": {},
		"a machine":        {map[string]string{pidMax: "32768", threadsMax: "192729", loads: "0.1 0.2 0.3 2/768 4711"}, 32000, 32768},
		"little memory":    {map[string]string{pidMax: "4194304", threadsMax: "7000", loads: "0.1 0.2 0.3 2/1000 4711"}, 6000, 7000},
		"a container": {map[string]string{
			pidMax: "32768", threadsMax: "192729", loads: "0.1 0.2 0.3 2/768 4711", "/sys/fs/cgroup/pids.max": "1000", "/sys/fs/cgroup/pids.current": "300",
		}, 700, 1000},
		"a container of version 1": {map[string]string{
			pidMax: "32768", loads: "0.1 0.2 0.3 2/768 4711", "/sys/fs/cgroup/pids/pids.max": "1000", "/sys/fs/cgroup/pids/pids.current": "990",
		}, 10, 1000},
		"a container without a limit": {map[string]string{
			pidMax: "32768", loads: "0.1 0.2 0.3 2/768 4711", "/sys/fs/cgroup/pids.max": "max", "/sys/fs/cgroup/pids.current": "990",
		}, 32000, 32768},
	} {
		free, total := processIDs(func(path string) string { return tt.files[path] })
		if free != tt.free || total != tt.total {
			t.Errorf("%s: %d of %d are free, want %d of %d", what, free, total, tt.free, tt.total)
		}
	}
}

// Other machines reach a node at its address. Loopback is for machines that are alone.
func TestCheckIP(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "<nil>", "2001:db8::1": "<nil>", "127.0.0.1": "<nil>", "::1": "<nil>",
		"": "not an IP address", "alpha": "not an IP address", "192.0.2.1/24": "not an IP address",
		"0.0.0.0": "nodeIP can't be an all zeros address", "::": "nodeIP can't be an all zeros address",
		"224.0.0.1": "nodeIP can't be a multicast address", "ff02::1": "nodeIP can't be a multicast address",
		"169.254.0.1": "nodeIP can't be a link-local unicast address", "fe80::1": "nodeIP can't be a link-local unicast address",
	} {
		if got := fmt.Sprint(CheckIP(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// A node shows how much swap space its machine has, if it has any.
func TestSwapOfTheMachine(t *testing.T) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Skip("this machine has no /proc:", err)
	}
	var want int64
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "SwapTotal:"); ok {
			if _, err := fmt.Sscan(rest, &want); err != nil {
				t.Fatal(err)
			}
			want *= 1024
		}
	}
	got := (&Local{Disk: "/"}).Info().Swap
	if (got != nil) != (want > 0) || got != nil && (got.Capacity == nil || *got.Capacity != want) {
		t.Errorf("the node shows %+v, want %d bytes", got, want)
	}
}

// Two paths on one file system have the same device, and those on others have not.
func TestDevicesOfFileSystems(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/images", 0o700); err != nil {
		t.Fatal(err)
	}
	machine := &Local{Disk: dir + "/not/yet"}
	free, err := machine.Free()
	if err != nil {
		t.Fatal(err)
	}
	images, err := machine.FileSystem(dir + "/images")
	if err != nil || images.Device != free.DiskDevice || images.Total != free.Disk().Total || images.Total == 0 {
		t.Errorf("the images are on %+v, the disk is %+v, %v", images, free.Disk(), err)
	}
	if other, err := machine.FileSystem("/proc"); err == nil && other.Device == free.DiskDevice {
		t.Errorf("/proc and the disk are both on device %d", other.Device)
	}
	if _, err := machine.FileSystem(dir + "/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing path: %v", err)
	}
}
