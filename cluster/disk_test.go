package cluster

import (
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

func TestImageThresholds(t *testing.T) {
	for _, c := range []struct {
		disk      uint64
		high, low int32
	}{
		{0, 85, 80},
		{8 << 30, 85, 80},
		{40 << 30, 87, 80},
		{100 << 30, 94, 88},
		{1 << 40, 99, 98},
	} {
		if high, low := imageThresholds(c.disk); high != c.high || low != c.low || low >= high {
			t.Errorf("a disk of %d GiB: %d and %d, want %d and %d", c.disk>>30, high, low, c.high, c.low)
		}
	}
}

// A disk reserves no more than upstream's share of it: of 1.2 GiB, a reserve of 1 GiB
// would keep the node under pressure. Some file systems say that they have 0 bytes.
func TestReserveOfADisk(t *testing.T) {
	for disk, want := range map[uint64]string{0: "10%", 1 << 29: "10%", 1 << 30: "10%", 1200 << 20: "10%", 10<<30 - 1: "10%", 10 << 30: "1Gi", 1 << 40: "1Gi"} {
		k := &kubeletconfig.KubeletConfiguration{}
		protectDisk(k, disk)
		if node, images := k.EvictionHard["nodefs.available"], k.EvictionHard["imagefs.available"]; node != want || images != want {
			t.Errorf("a disk of %d bytes: %s and %s, want %s", disk, node, images, want)
		}
	}
}

func TestDiskSizeOfADirectoryToCome(t *testing.T) {
	here := t.TempDir()
	if want, got := diskSize(here), diskSize(here+"/not/yet"); want == 0 || got != want {
		t.Errorf("%d, want that of its parent: %d", got, want)
	}
}
