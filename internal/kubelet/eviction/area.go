package eviction

import (
	"slices"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// area says what is on a file system that is short, and so what frees it: the pods'
// use of it, ended containers, and unused images. Each signal has the file system of
// what it is named for:
//
//	                           nodefs         imagefs          containerfs
//	one file system            all            all              as nodefs
//	images and layers apart    node           layers, images   as imagefs
//	images apart (KEP-4191)    node, layers   images           as nodefs
//	layers apart               node, images   as nodefs        layers
//	each apart                 node           images           layers
type area struct {
	node   bool // what the kubelet keeps of pods: logs, volumes, termination messages
	layers bool // the writable layers of containers
	images bool
}

// everywhere is all that a node has.
func everywhere() area { return area{node: true, layers: true, images: true} }

// devices returns the file systems of what the kubelet keeps, of images and of the
// writable layers, which are with the images unless the runtime says more.
func devices(f *node.Free) (kept, images, layers uint64) {
	kept, images = f.DiskDevice, f.DiskDevice
	if f.Images.Total > 0 {
		images = f.Images.Device
	}
	layers = images
	if f.Containers.Total > 0 {
		layers = f.Containers.Device
	}
	return kept, images, layers
}

// areaOf returns what is on the file system of a signal.
func areaOf(signal string, f *node.Free) area {
	kept, images, layers := devices(f)
	short := kept
	switch signal {
	case imageFsAvailable, imageFsInodesFree:
		short = images
	case containerFsAvailable, containerFsInodesFree:
		short = layers
	}
	return area{node: kept == short, layers: layers == short, images: images == short}
}

// withContainerFs adds thresholds of the file system of the writable layers: those of
// nodefs. It is called if that file system is another than nodefs and imagefs, whose own
// thresholds hold for it otherwise.
func withContainerFs(thresholds []Threshold) (out []Threshold) {
	for _, t := range thresholds {
		out = append(out, t)
		switch t.Signal {
		case nodeFsAvailable:
			t.Signal = containerFsAvailable
		case nodeFsInodesFree:
			t.Signal = containerFsInodesFree
		default:
			continue
		}
		out = append(out, t)
	}
	return out
}

// thresholdsFor returns the thresholds that hold on a machine.
func (m *Manager) thresholdsFor(f *node.Free) []Threshold {
	if kept, images, layers := devices(f); layers != kept && layers != images {
		return m.separate
	}
	return m.thresholds
}

// isContainerFs reports whether a signal is of the file system of the writable layers. As
// in upstream, no configuration sets its thresholds.
func isContainerFs(signal string) bool {
	return signal == containerFsAvailable || signal == containerFsInodesFree
}

// ignored returns the settings of a configuration that have no effect, in order.
func ignored(c *kubeletconfig.KubeletConfiguration) (out []string) {
	for _, of := range []struct {
		field  string
		values map[string]string
	}{
		{"evictionHard", c.EvictionHard}, {"evictionSoft", c.EvictionSoft}, {"evictionMinimumReclaim", c.EvictionMinimumReclaim},
	} {
		for signal := range of.values {
			if isContainerFs(signal) {
				out = append(out, of.field+" "+signal)
			}
		}
	}
	slices.Sort(out)
	return out
}
