package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// A local volume is given to the pod's group, unless only its root counts and
// the root belongs to the group already.
func TestFSGroupChangePolicy(t *testing.T) {
	always, mismatch := v1.FSGroupChangeAlways, v1.FSGroupChangeOnRootMismatch
	for name, test := range map[string]struct {
		policy *v1.PodFSGroupChangePolicy
		root   os.FileMode
		want   os.FileMode // of a file in the volume
	}{
		"no policy":              {nil, os.ModeSetgid | 0o770, 0o660},
		"always":                 {&always, os.ModeSetgid | 0o770, 0o660},
		"root matches":           {&mismatch, os.ModeSetgid | 0o770, 0o600},
		"root allows more":       {&mismatch, os.ModeSetgid | 0o777, 0o600},
		"root is not for groups": {&mismatch, 0o700, 0o660},
		"root lacks setgid":      {&mismatch, 0o770, 0o660},
	} {
		dir, group := t.TempDir(), int64(os.Getgid())
		file := filepath.Join(dir, "file")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chown(dir, -1, int(group)), os.Chmod(dir, test.root)); err != nil {
			t.Fatal(err)
		}
		v := &Manager{Root: t.TempDir(), FS: files.OS{}, Mounter: files.OS{}, Claims: &api{path: dir}}
		pod := podWith(nil, v1.Volume{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
		pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: test.policy}
		if _, _, err := v.SetUp(t.Context(), pod, Facts{}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode() != test.want {
			t.Errorf("%s: the file has mode %v (%v), want %v", name, info.Mode(), err, test.want)
		}
	}
}
