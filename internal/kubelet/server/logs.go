package server

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// systemLogs is the directory of the system's logs. Pods with a volume on it can
// write to it, so only regular files and directories are served, and no symbolic
// link that leads out of it is followed.
type systemLogs struct {
	dir string
	// elsewhere has the directories of the kubelet that are not in dir, by the names that
	// they usually have there.
	elsewhere map[string]string
}

// systemLogs returns the handler of /logs/, whose path is relative to that.
func (s *Server) systemLogs() http.Handler {
	root := systemLogs{s.config.SystemLogs, s.config.LogDirectories}
	directory := http.FileServer(root)
	if on := s.config.Configuration.EnableSystemLogQuery; on == nil || !*on {
		return directory
	}
	return &systemLog{root: root, files: directory, journal: journalctl}
}

// Open implements http.FileSystem.
func (l systemLogs) Open(name string) (http.File, error) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		file, err := openBeneath(l.dir, ".")
		if err != nil || len(l.elsewhere) == 0 {
			return file, err
		}
		return &logRoot{file, l.elsewhere}, nil
	}
	first, rest, _ := strings.Cut(name, "/")
	dir, moved := l.elsewhere[first]
	switch {
	case !moved:
		return openBeneath(l.dir, name)
	case rest == "":
		return openBeneath(dir, ".")
	}
	file, err := openBeneath(dir, rest)
	if err == nil {
		return file, nil
	}
	if target, ok := l.linked(dir, rest); ok {
		return openBeneath(target.dir, target.name)
	}
	return nil, err
}

// logFile is a file in a directory of the kubelet.
type logFile struct{ dir, name string }

// linked returns the file to which a link that is a file of a directory of the kubelet
// leads in another one of these: the log of a container.
func (l systemLogs) linked(dir, name string) (target logFile, ok bool) {
	if strings.Contains(name, "/") {
		return logFile{}, false
	}
	to, err := os.Readlink(filepath.Join(dir, name))
	if err != nil {
		return logFile{}, false
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(dir, to)
	}
	for _, other := range l.elsewhere {
		if rest, below := files.Beneath(other, to); below {
			return logFile{other, rest}, true
		}
	}
	return logFile{}, false
}

// openBeneath opens a regular file or a directory that is a directory or below it.
func openBeneath(dir, name string) (http.File, error) {
	file, err := files.OpenBeneath(dir, name)
	if err == nil {
		return file, nil
	}
	if !errors.Is(err, files.ErrNotRegular) {
		return nil, err
	}
	beneath, rootErr := os.OpenRoot(dir)
	if rootErr != nil {
		return nil, rootErr
	}
	defer func() { _ = beneath.Close() }()
	if info, statErr := beneath.Stat(name); statErr != nil || !info.IsDir() {
		return nil, err
	}
	return beneath.OpenFile(name+"/.", os.O_RDONLY, 0) // not a file that has replaced the directory since
}

// logRoot is the directory of the system's logs with the directories of the kubelet in
// their usual places. What is in these places on the machine, such as a directory to mount
// them on in containers, is not shown.
type logRoot struct {
	http.File
	elsewhere map[string]string
}

// Readdir implements http.File for all files at once.
func (r *logRoot) Readdir(count int) ([]fs.FileInfo, error) {
	all, err := r.File.Readdir(count)
	all = slices.DeleteFunc(all, func(info fs.FileInfo) bool { _, moved := r.elsewhere[info.Name()]; return moved })
	for name, dir := range r.elsewhere {
		if info, err := os.Stat(dir); err == nil {
			all = append(all, renamed{info, name})
		}
	}
	return all, err
}

// renamed is a file with another name.
type renamed struct {
	fs.FileInfo
	name string
}

// Name implements fs.FileInfo.
func (r renamed) Name() string { return r.name }
