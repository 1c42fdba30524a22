package volume

import (
	"context"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/costtest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// keyed has one config map and one secret for every name, with a large and a
// small key.
type keyed struct {
	large int
}

func (k keyed) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{"large": strings.Repeat("x", k.large), "small": "s"}}, nil
}

func (k keyed) Secret(context.Context, string, string) (*v1.Secret, error) {
	return &v1.Secret{Data: map[string][]byte{"large": make([]byte, k.large), "small": []byte("s")}}, nil
}

// weighed counts what is written, without keeping it.
type weighed struct {
	files.Memory
	bytes, files, directories int64
}

func (w *weighed) WriteFile(path string, data []byte, perm fs.FileMode) error {
	w.bytes += blocks(len(data))
	w.files++
	return w.Memory.WriteFile(path, nil, perm)
}

func (w *weighed) MkdirAll(path string, perm fs.FileMode) error {
	w.directories++
	return w.Memory.MkdirAll(path, perm)
}

func items(n int, key string, path func(i int) string) (list []v1.KeyToPath) {
	for i := range n {
		list = append(list, v1.KeyToPath{Key: key, Path: path(i)})
	}
	return list
}

func secretVolume(name, secret string, list ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: secret, Items: list}}}
}

func configVolume(name, configMap string, list ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: configMap}, Items: list}}}
}

func projectedVolume(n int, source func(i int) v1.VolumeProjection) v1.Volume {
	vol := v1.Volume{Name: "all", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}}
	for i := range n {
		vol.Projected.Sources = append(vol.Projected.Sources, source(i))
	}
	return vol
}

func numbered(i int) string { return fmt.Sprint("f", i) }

// A pod's volumes write no more than their sources hold and a bit for what they
// show more than once, and nothing of a volume that exceeds that.
func TestContentsAreBounded(t *testing.T) {
	const large = 900 << 10
	many := func(n int, vol func(i int) v1.Volume) (list []v1.Volume) {
		for i := range n {
			list = append(list, vol(i))
		}
		return list
	}
	annotated := &v1.DownwardAPIProjection{}
	for i := range 2000 {
		annotated.Items = append(annotated.Items, v1.DownwardAPIVolumeFile{Path: numbered(i), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
	}
	for name, test := range map[string]struct {
		volumes []v1.Volume
		refused string // in the error
		written int64  // at most, bytes
	}{
		"many items of a secret":     {[]v1.Volume{secretVolume("s", "s", items(3000, "large", numbered)...)}, "too much", 0},
		"many items of a config map": {[]v1.Volume{configVolume("c", "c", items(3000, "large", numbered)...)}, "too much", 0},
		"many small items":           {[]v1.Volume{secretVolume("s", "s", items(3000, "small", numbered)...)}, "too much", 0},
		"many directories":           {[]v1.Volume{secretVolume("s", "s", items(10, "small", func(i int) string { return strings.Repeat(fmt.Sprint(i, "/"), 2000) + "f" })...)}, "too much", 0},
		"many sources": {[]v1.Volume{projectedVolume(3000, func(i int) v1.VolumeProjection {
			return v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Items: items(1, "large", func(int) string { return numbered(i) })}}
		})}, "too much", 0},
		"many fields":  {[]v1.Volume{projectedVolume(1, func(int) v1.VolumeProjection { return v1.VolumeProjection{DownwardAPI: annotated} })}, "too much", 0},
		"many volumes": {many(100, func(i int) v1.Volume { return secretVolume(numbered(i), "s") }), "too much", large + 2*blockSize + maxRepeated},
		"many objects": {many(100, func(i int) v1.Volume { return secretVolume(numbered(i), numbered(i)) }), "too much", maxContents},
		"many tokens": {[]v1.Volume{projectedVolume(1000, func(i int) v1.VolumeProjection {
			return v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: numbered(i), Path: numbered(i)}}
		})}, "tokens", 0},
		"a key twice":    {[]v1.Volume{configVolume("c", "c", items(2, "large", numbered)...), secretVolume("s", "s", items(2, "large", numbered)...)}, "", 4 * (large + blockSize)},
		"some objects":   {many(20, func(i int) v1.Volume { return secretVolume(numbered(i), numbered(i)) }), "", 20 * (large + 2*blockSize)},
		"one path often": {[]v1.Volume{secretVolume("s", "s", items(30_000, "large", func(int) string { return "f" })...), configVolume("c", "c", items(30_000, "large", func(int) string { return "f" })...)}, "", 2 * (large + blockSize)},
		"one source often": {[]v1.Volume{projectedVolume(1000, func(int) v1.VolumeProjection {
			return v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c"}}}
		})}, "", large + 2*blockSize},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &weighed{}
			v := &Manager{Root: "/k", FS: disk, Mounter: disk, Objects: keyed{large}, Tokens: tokens{}}
			pod := podWith(nil, test.volumes...)
			pod.Annotations = map[string]string{"a": strings.Repeat("\x00", 200<<10)}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := v.SetUp(t.Context(), pod, Facts{})
			runtime.ReadMemStats(&after)
			if test.refused == "" && err != nil || test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)) {
				t.Errorf("the error is %v, want one about %q", err, test.refused)
			}
			if disk.bytes > test.written {
				t.Errorf("%d bytes are written, want at most %d", disk.bytes, test.written)
			}
			if n := disk.directories; n > 10_000 {
				t.Errorf("%d directories are made", n)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 8*maxContents {
				t.Errorf("%d bytes are allocated", n)
			}
		})
	}
}

// The places for mounts in a volume count, too, and finding them takes no longer
// for each further mount.
func TestNestedMountPointsAreBounded(t *testing.T) {
	disk := &weighed{}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk, Objects: keyed{1}}
	pod := podWith(nil, configVolume("c", "c"))
	c := &pod.Spec.Containers[0]
	const many = 19_000
	for i := range many {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "c", MountPath: fmt.Sprint("/c/", i)})
	}
	var err error
	allocations := testing.AllocsPerRun(1, func() { _, _, err = v.SetUp(t.Context(), pod, Facts{}) })
	if err == nil || !strings.Contains(err.Error(), "too much") || disk.directories > 0 {
		t.Errorf("%v, %d directories", err, disk.directories)
	}
	if allocations > 20*many {
		t.Errorf("%.0f allocations for %d mounts", allocations, many)
	}
}

// The mounts of a pod take no long time to compare, however deep their paths are. A pod is
// compared with each sync.
func TestDeepMountPoints(t *testing.T) {
	pod := podWith(nil, configVolume("c", "c"))
	c := &pod.Spec.Containers[0]
	const largest = 3 << 20 // bytes of a pod
	c.VolumeMounts = []v1.VolumeMount{{Name: "c", MountPath: "/0/a"}}
	for i := range largest / maxPath {
		path := fmt.Sprint("/", i)
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "c", MountPath: path + strings.Repeat("/a", (maxPath-len(path))/2)})
	}
	var nested map[string][]string
	cost := costtest.Of(t, func() { nested = nestedMountPoints(pod) })
	if len(nested["c"]) != 1 || !strings.HasPrefix(nested["c"][0], "a/a/") {
		t.Errorf("%d mounts are in others, want 1", len(nested["c"]))
	}
	if cost.Processor > time.Second {
		t.Errorf("they take %v of processor time", cost.Processor)
	}
}

// A pod has as many volumes and subPaths as the kernel has mounts for.
func TestManyMounts(t *testing.T) {
	for name, test := range map[string]struct {
		secrets, plain, subPaths, mounts int
		fine                             bool
	}{
		"few":                     {10, 10, 10, 10, true},
		"many secrets":            {maxMounts + 1, 0, 0, 0, false},
		"many subPaths":           {10, 1, maxMounts, 0, false},
		"many without own mounts": {0, maxVolumes, 0, 0, true},
		"too many of these":       {0, maxVolumes + 1, 0, 0, false},
		"many in a container":     {0, 1, 0, maxVolumeMounts, true},
		"too many in it":          {0, 1, 1, maxVolumeMounts, false},
	} {
		disk := &weighed{}
		v := &Manager{Root: "/k", FS: disk, Mounter: disk, Objects: keyed{1}}
		pod := podWith(nil)
		for i := range test.secrets {
			pod.Spec.Volumes = append(pod.Spec.Volumes, secretVolume(fmt.Sprint("s", i), "s", items(1, "small", numbered)...))
		}
		for i := range test.plain {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: fmt.Sprint("e", i), VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		}
		for i := range test.subPaths {
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "e0", MountPath: fmt.Sprint("/", i), SubPath: "x"})
		}
		for i := range test.mounts {
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "e0", MountPath: fmt.Sprint("/mounts/", i)})
		}
		if _, _, err := v.SetUp(t.Context(), pod, Facts{}); (err == nil) != test.fine || err != nil && !strings.Contains(err.Error(), "at most") {
			t.Errorf("%s: %v", name, err)
		}
		if !test.fine && disk.directories > 0 {
			t.Errorf("%s: %d directories are made", name, disk.directories)
		}
	}
}

// counting counts the objects that are read.
type counting struct {
	keyed
	read int
}

func (c *counting) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	c.read++
	return c.keyed.Secret(ctx, namespace, name)
}

// A pod that refers to very many objects waits, and none of them is read. The same
// object counts once.
func TestManyReferences(t *testing.T) {
	const many = 2000
	for name, test := range map[string]struct {
		object func(i int) string
		fine   bool
	}{
		"one secret": {func(int) string { return "s" }, true}, "many secrets": {numbered, false},
	} {
		disk, objects := &weighed{}, &counting{}
		v := &Manager{Root: "/k", FS: disk, Mounter: disk, Objects: objects}
		pod := podWith(nil, secretVolume("s", "s"))
		for i := range many {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: test.object(i)})
		}
		if _, _, err := v.SetUp(t.Context(), pod, Facts{}); (err == nil) != test.fine || err != nil && !strings.Contains(err.Error(), fmt.Sprint("refers to ", many+1)) {
			t.Errorf("%s: %v", name, err)
		}
		if !test.fine && objects.read > 0 {
			t.Errorf("%s: %d secrets are read", name, objects.read)
		}
	}
}
