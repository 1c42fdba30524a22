package server

import (
	"errors"
	"net/http"
	"os"
	"path"
	"strings"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// systemLogs is the directory of the system's logs. Pods with a volume on it can
// write to it, so only regular files and directories are served, and no symbolic
// link that leads out of it is followed.
type systemLogs string

// systemLogs returns the handler of /logs/, whose path is relative to that.
func (s *Server) systemLogs() http.Handler {
	root := systemLogs(s.config.SystemLogs)
	directory := http.FileServer(root)
	if on := s.config.Configuration.EnableSystemLogQuery; on == nil || !*on {
		return directory
	}
	return &systemLog{root: root, files: directory, journal: journalctl}
}

// Open implements http.FileSystem.
func (root systemLogs) Open(name string) (http.File, error) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		name = "."
	}
	file, err := files.OpenBeneath(string(root), name)
	if err == nil || !errors.Is(err, files.ErrNotRegular) {
		return file, err
	}
	beneath, rootErr := os.OpenRoot(string(root))
	if rootErr != nil {
		return nil, rootErr
	}
	defer func() { _ = beneath.Close() }()
	if info, statErr := beneath.Stat(name); statErr != nil || !info.IsDir() {
		return nil, err
	}
	return beneath.OpenFile(name+"/.", os.O_RDONLY, 0) // not a file that has replaced the directory since
}
