package csi

import (
	"io/fs"
	"reflect"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
)

const elsewhere = "/data/kubelet"

// mountedAt is what a driver in a pod sees of the kubelet's directories, which it has
// mounted at the usual paths.
type mountedAt struct {
	*files.Memory
	paths hostpath.Directories
}

func (m mountedAt) MkdirAll(path string, perm fs.FileMode) error {
	return m.Memory.MkdirAll(m.paths.Real(path), perm)
}
func (m mountedAt) Remove(path string) error { return m.Memory.Remove(m.paths.Real(path)) }
func (m mountedAt) Mount(source, target, fstype string, options []string) error {
	return m.Memory.Mount(m.paths.Real(source), m.paths.Real(target), fstype, options)
}
func (m mountedAt) Unmount(target string) error { return m.Memory.Unmount(m.paths.Real(target)) }
func (m mountedAt) Below(path string) ([]string, error) {
	points, err := m.Memory.Below(m.paths.Real(path))
	for i := range points {
		points[i] = m.paths.Usual(points[i])
	}
	return points, err
}

// A driver that has named its socket by a usual path gets usual paths, also from the next
// kubelet. Another one gets real paths. The kubelet itself uses real paths.
func TestPathsThatDriversKnow(t *testing.T) {
	for name, usual := range map[string]bool{root: true, elsewhere: false} {
		b := newBench(t, csiDriver(), persistent().Claim)
		paths := hostpath.New(elsewhere, hostpath.PodLogs, hostpath.LogLinks)
		if usual {
			seen := mountedAt{b.files, paths}
			b.driver.FS, b.driver.Mounter = seen, seen
		}
		b.driver.Capabilities = append(b.driver.Capabilities, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS,
			csipb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
		start := func() *Volumes {
			v := b.volumes(b.files)
			v.Root, v.Paths, v.Health = elsewhere, paths, true
			plugin := b.plugin()
			plugin.Usual = usual
			if err := v.Drivers().Register(t.Context(), plugin); err != nil {
				t.Fatal(err)
			}
			return v
		}
		v := start()
		larger := persistent(func(pv *v1.PersistentVolume) {
			pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
		})
		path, err := v.SetUp(t.Context(), pod(podUID), larger)
		if err != nil {
			t.Fatal(err)
		}
		volume := "/pods/" + string(podUID) + "/volumes/kubernetes.io~csi/pv1/mount"
		staging := "/plugins/kubernetes.io/csi/" + driverName + "/" + sum("vol-1") + "/globalmount"
		if path != elsewhere+volume {
			t.Errorf("%s: the pod gets %s", name, path)
		}
		if mounted, err := b.files.Below(elsewhere); err != nil || len(mounted) != 2 {
			t.Errorf("%s: mounted are %q (%v)", name, mounted, err)
		}
		if _, err := v.Usage(t.Context(), podUID, "pv1"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		v = start() // a kubelet that was killed
		if err := v.TearDown(t.Context(), podUID); err != nil {
			t.Fatal(err)
		}
		if err := unstage(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		for method, want := range map[string][2]string{ // the volume's path, and the staging path
			"NodeStageVolume": {"", staging}, "NodePublishVolume": {volume, staging}, "NodeExpandVolume": {staging, staging},
			"NodeGetVolumeStats": {volume, staging}, "NodeGetVolumeHealth": {volume, staging}, "NodeUnpublishVolume": {volume, ""}, "NodeUnstageVolume": {"", staging},
		} {
			if got := pathsIn(b.driver.Request(method)); got != [2]string{in(name, want[0]), in(name, want[1])} {
				t.Errorf("%s: %s got the paths %q", name, method, got)
			}
		}
		if mounted, err := b.files.Below("/"); err != nil || len(mounted) > 0 {
			t.Errorf("%s: still mounted are %q (%v)", name, mounted, err)
		}
		for _, dir := range []string{root, elsewhere + "/pods/" + string(podUID) + "/volumes/kubernetes.io~csi", elsewhere + "/plugins/kubernetes.io/csi/" + driverName} {
			if names, _ := b.files.ReadDir(dir); len(names) > 0 {
				t.Errorf("%s: left in %s are %q", name, dir, names)
			}
		}
	}
}

func in(dir, path string) string {
	if path == "" {
		return ""
	}
	return dir + path
}

// pathsIn returns the path of the volume and the staging path in a request.
func pathsIn(request any) (out [2]string) {
	value := reflect.ValueOf(request)
	if !value.IsValid() {
		return out
	}
	value = value.Elem()
	for i := range value.NumField() {
		switch field := value.Type().Field(i).Name; {
		case field == "StagingTargetPath":
			out[1] = value.Field(i).String()
		case strings.HasSuffix(field, "Path"):
			out[0] = value.Field(i).String()
		}
	}
	return out
}
