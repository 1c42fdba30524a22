package volume

import (
	"io/fs"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// The mode of an emptyDir's source is that of its directory, in every medium, if the
// gate is on. A restart of the pod's containers leaves what they changed since.
func TestModesOfEmptyDirs(t *testing.T) {
	mode := func(m int32) *int32 { return &m }
	for name, test := range map[string]struct {
		source v1.EmptyDirVolumeSource
		off    bool
		want   fs.FileMode
	}{
		"none":           {v1.EmptyDirVolumeSource{}, false, 0o777},
		"of the owner":   {v1.EmptyDirVolumeSource{Mode: mode(0o700)}, false, 0o700},
		"nobody":         {v1.EmptyDirVolumeSource{Mode: mode(0)}, false, 0},
		"sticky":         {v1.EmptyDirVolumeSource{Mode: mode(0o1777)}, false, 0o777 | fs.ModeSticky},
		"in memory":      {v1.EmptyDirVolumeSource{Mode: mode(0o1750), Medium: v1.StorageMediumMemory}, false, 0o750 | fs.ModeSticky},
		"bits of set-id": {v1.EmptyDirVolumeSource{Mode: mode(0o6755)}, false, 0o755},
		"gate off":       {v1.EmptyDirVolumeSource{Mode: mode(0o700)}, true, 0o777},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &files.Memory{}
			v := &Manager{Root: "/k", FS: disk, Mounter: disk, EmptyDirModes: !test.off}
			pod := podWith(nil, v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &test.source}})
			check := func(want fs.FileMode) string {
				paths, _, err := v.SetUp(t.Context(), pod, Facts{})
				if err != nil {
					t.Fatal(err)
				}
				got, err := disk.Stat(paths["work"])
				if err != nil || got&^fs.ModeDir != want {
					t.Errorf("the mode is %v (%v), want %v", got, err, want)
				}
				return paths["work"]
			}
			dir := check(test.want)
			if err := disk.Chmod(dir, 0o711); err != nil {
				t.Fatal(err)
			}
			check(0o711)
		})
	}
}
