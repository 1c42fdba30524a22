package kubelet

import (
	"errors"
	"slices"
	"strings"
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

// The root directory is a shared mount afterwards, unless that would cover others.
func TestRootIsShared(t *testing.T) {
	bind, share := "bind /data/kubelet", "shared /data/kubelet"
	for name, test := range map[string]struct {
		before []string // mount points
		shared string   // one of them
		fails  error
		want   []string
		err    string
	}{
		"private machine":        {want: []string{bind, share}},
		"shared machine":         {before: []string{"/"}, shared: "/"},
		"shared before":          {before: []string{"/data/kubelet", "/data/kubelet/pods/a"}, shared: "/data/kubelet"},
		"killed in the middle":   {before: []string{"/data/kubelet"}, want: []string{share}},
		"volumes are mounted":    {before: []string{"/data/kubelet/pods/a"}, err: "1 mounts are below /data/kubelet already"},
		"also a disk is mounted": {before: []string{"/data/kubelet", "/data/kubelet/pods/a"}, err: "2 mounts are below"},
		"not permitted":          {fails: errors.New("operation not permitted"), want: []string{bind, bind}, err: "operation not permitted"},
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
		for range 2 {
			err := ShareRoot("/data/kubelet", disk, mounter)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%s: error %v, want %q", name, err, test.err)
			}
		}
		if !slices.Equal(mounter.calls, test.want) {
			t.Errorf("%s: mounted %q, want %q", name, mounter.calls, test.want)
		}
	}
}

// Drivers and collectors of logs require directories that a kubelet makes before its
// first pod.
func TestDirectoriesAreMade(t *testing.T) {
	disk := &files.Memory{}
	c := &Config{RootDirectory: "/data/kubelet", Files: disk}
	c.Configuration.PodLogsDir = "/data/logs/pods"
	if err := c.makeDirectories(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/data/kubelet/pods", "/data/kubelet/plugins", "/data/logs/pods", "/data/logs/containers"} {
		if mode, err := disk.Stat(dir); err != nil || !mode.IsDir() {
			t.Errorf("%s is %v (%v)", dir, mode, err)
		}
	}
}
