package kubelet

import (
	"errors"
	"slices"
	"testing"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// mountCalls is a file system in memory that notes what is mounted, and how.
type mountCalls struct {
	*files.Memory
	calls []string
	fails error // of mounting on a place of its own
}

func (m *mountCalls) Mount(source, target, fstype string, options []string) error {
	m.calls = append(m.calls, options[0]+" "+target)
	if m.fails != nil {
		return m.fails
	}
	return m.Memory.Mount(source, target, fstype, options)
}

// The root directory is a shared mount after the start of a kubelet that is to share it.
func TestRootIsShared(t *testing.T) {
	bind, share := "bind /data/kubelet", "shared /data/kubelet"
	for name, test := range map[string]struct {
		before []string // mount points
		shared string   // one of them
		alone  bool     // ShareRoot is not set
		fails  error
		want   []string
	}{
		"private machine":        {want: []string{bind, share}},
		"shared machine":         {before: []string{"/"}, shared: "/"},
		"shared before":          {before: []string{"/data/kubelet", "/data/kubelet/pods/a"}, shared: "/data/kubelet"},
		"killed in the middle":   {before: []string{"/data/kubelet"}, want: []string{share}},
		"volumes are mounted":    {before: []string{"/data/kubelet/pods/a"}},
		"also a disk is mounted": {before: []string{"/data/kubelet", "/data/kubelet/pods/a"}},
		"not to be shared":       {alone: true},
		"not permitted":          {fails: errors.New("operation not permitted"), want: []string{bind}},
	} {
		disk := &files.Memory{}
		for _, point := range test.before {
			if err := disk.Mount("none", point, "", nil); err != nil {
				t.Fatal(err)
			}
		}
		if test.shared != "" {
			if err := disk.Mount("none", test.shared, "", []string{"shared"}); err != nil {
				t.Fatal(err)
			}
		}
		mounter := &mountCalls{Memory: disk, fails: test.fails}
		c := &Config{RootDirectory: "/data/kubelet", ShareRoot: !test.alone, Files: disk, Mounter: mounter}
		c.Configuration.PodLogsDir = "/data/logs/pods"
		for range 2 {
			if err := c.makeDirectories(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if test.fails != nil {
				break
			}
		}
		if !slices.Equal(mounter.calls, test.want) {
			t.Errorf("%s: mounted %q, want %q", name, mounter.calls, test.want)
		}
		for _, dir := range []string{"/data/kubelet/pods", "/data/kubelet/plugins", "/data/logs/pods", "/data/logs/containers"} {
			if mode, err := disk.Stat(dir); err != nil || !mode.IsDir() {
				t.Errorf("%s: %s is %v (%v)", name, dir, mode, err)
			}
		}
	}
}
