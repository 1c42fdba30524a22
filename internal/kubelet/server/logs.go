package server

import (
	"errors"
	"net/http"
	"os"
	"path"
	"strings"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// systemLogs is a folder of logs, in which pods with a volume on it may have
// put anything: only regular files and directories are served, and no link
// leads out of it.
type systemLogs string

// Open implements http.FileSystem.
func (root systemLogs) Open(name string) (http.File, error) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		name = "."
	}
	file, err := files.OpenBeneath(string(root), name, files.InnerLinks)
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
	return beneath.OpenFile(name+"/.", os.O_RDONLY, 0) // not what has taken its place meanwhile
}
