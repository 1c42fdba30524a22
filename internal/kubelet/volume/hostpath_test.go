package volume

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// A path of another type than required is told of with the type that it has.
func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	v := &Manager{FS: files.OS{}}
	for _, test := range []struct {
		path     string
		required v1.HostPathType
		want     string
	}{
		{dir, v1.HostPathDirectory, ""},
		{at("file"), v1.HostPathFile, ""},
		{at("socket"), v1.HostPathSocket, ""},
		{"/dev/null", v1.HostPathCharDev, ""},
		{at("new"), v1.HostPathDirectoryOrCreate, ""},
		{at("new"), v1.HostPathDirectory, ""},
		{at("made"), v1.HostPathFileOrCreate, ""},
		{at("made"), v1.HostPathFile, ""},
		{at("none"), v1.HostPathDirectory, "hostPath " + at("none") + " doesn't exist"},
		{at("file"), v1.HostPathDirectoryOrCreate, "hostPath type check failed: " + at("file") + " is not a directory, it's a File"},
		{dir, v1.HostPathFileOrCreate, "hostPath type check failed: " + dir + " is not a file, it's a Directory"},
		{dir, v1.HostPathSocket, "hostPath type check failed: " + dir + " is not a socket file, it's a Directory"},
		{at("socket"), v1.HostPathBlockDev, "hostPath type check failed: " + at("socket") + " is not a block device, it's a Socket"},
		{"/dev/null", v1.HostPathFile, "hostPath type check failed: /dev/null is not a file, it's a CharDevice"},
		{at("pipe"), v1.HostPathFile, "hostPath type check failed, " + at("pipe") + " is not a file, unable to determine its type: only recognise file, directory, socket, block device and character device"},
		{dir, "Door", "Door is an invalid volume type"},
	} {
		got := ""
		if path, err := v.hostPath(&v1.HostPathVolumeSource{Path: test.path, Type: &test.required}); err != nil {
			got = err.Error()
		} else if path != test.path {
			t.Errorf("%s: the path is %s", test.path, path)
		}
		if got != test.want {
			t.Errorf("%s as %s: %q, want %q", test.path, test.required, got, test.want)
		}
	}
}
