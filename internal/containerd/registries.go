package containerd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// registryDir returns the directory in which containerd looks for the hosts.toml
// files of registries at each pull. It takes one directory only.
func (r *Runtime) registryDir() string {
	if r.config.Registries == nil {
		return r.config.RegistryDir
	}
	return r.ownRegistryDir()
}

func (r *Runtime) ownRegistryDir() string { return filepath.Join(r.config.DataDir, "hosts") }

// writeRegistries writes the hosts.toml files of Registries, with links to those
// in RegistryDir, which take precedence. They can have logins, so that only their
// owner can read them.
func (r *Runtime) writeRegistries() error {
	dir := r.ownRegistryDir()
	if r.config.Registries == nil {
		return os.RemoveAll(dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	wanted := map[string]bool{}
	given, err := os.ReadDir(r.config.RegistryDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range given {
		wanted[e.Name()] = true
		if err := link(filepath.Join(r.config.RegistryDir, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	for _, h := range r.config.Registries.Hosts() {
		if wanted[h.Directory] {
			continue
		}
		wanted[h.Directory] = true
		if err := writeHosts(filepath.Join(dir, h.Directory), h.Content); err != nil {
			return err
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range there {
		if !wanted[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// link makes a symbolic link, in place of whatever is there.
func link(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

// writeHosts writes the file hosts.toml of a directory, which it makes.
func writeHosts(dir, content string) error {
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() { // a link
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return sharedfile.Replace(filepath.Join(dir, "hosts.toml"), sharedfile.Content{Data: []byte(content), Mode: 0o600})
}
