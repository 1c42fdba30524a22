package cluster

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

const (
	// diskReserve is the free space, in bytes, below which pods are evicted. A disk of
	// which upstream's share is less, or of unknown size, reserves that share: a small
	// disk would never have so much free space, and the kubelet refuses more than there
	// is.
	diskReserve, smallDiskReserve = "1Gi", "10%"
	smallDisk                     = 10 << 30
	// imageReserve is the free space, in bytes, below which unused images are removed.
	imageReserve = 5 << 30
)

// protectDisk sets the kubelet's eviction and image thresholds by free bytes.
// Upstream's shares of the whole disk suit dedicated machines: 10 % of a
// developer's disk is tens of gigabytes, and a machine with less free space is
// healthy.
func protectDisk(k *kubeletconfig.KubeletConfiguration, diskBytes uint64) {
	reserve := diskReserve
	if diskBytes < smallDisk {
		reserve = smallDiskReserve
	}
	k.EvictionHard = map[string]string{
		"memory.available": "100Mi",
		"nodefs.available": reserve, "nodefs.inodesFree": "5%",
		"imagefs.available": reserve, "imagefs.inodesFree": "5%",
	}
	high, low := imageThresholds(diskBytes)
	k.ImageGCHighThresholdPercent, k.ImageGCLowThresholdPercent = &high, &low
}

// imageThresholds returns the use of a disk, in percent, above which unused
// images are removed, and down to which. They are at least upstream's 85 and
// 80.
func imageThresholds(diskBytes uint64) (high, low int32) {
	const upstreamHigh, upstreamLow = 85, 80
	if diskBytes == 0 {
		return upstreamHigh, upstreamLow
	}
	kept := min(int32(imageReserve*100/diskBytes)+1, 100)
	return max(100-kept, upstreamHigh), max(100-2*kept, upstreamLow)
}

// diskSize returns the size in bytes of the disk of a directory, which need not
// exist yet, or 0 if it is unknown.
func diskSize(dir string) uint64 {
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		if err == nil {
			return fs.Blocks * uint64(fs.Bsize)
		}
		if parent := filepath.Dir(dir); os.IsNotExist(err) && parent != dir {
			dir = parent
			continue
		}
		return 0
	}
}
