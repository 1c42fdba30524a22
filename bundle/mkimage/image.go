package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageSpec determines the bytes of an image.
type imageSpec struct {
	Name       string
	Arch       string
	Entrypoint []string
	User       string
	Ports      []string
	Entries    []entry
}

// entry is one file (Source set) or one symbolic link (Link set).
type entry struct {
	Target string
	Source string
	Link   string
}

func parseEntry(arg string) (entry, error) {
	if target, link, ok := strings.Cut(arg, "->"); ok && path.IsAbs(target) && link != "" {
		return entry{Target: path.Clean(target), Link: link}, nil
	}
	if target, source, ok := strings.Cut(arg, "="); ok && path.IsAbs(target) && source != "" {
		return entry{Target: path.Clean(target), Source: source}, nil
	}
	return entry{}, fmt.Errorf("%q is neither /TARGET=SOURCE nor /TARGET->DEST", arg)
}

// build creates the image with one layer.
func build(spec imageSpec) (v1.Image, error) {
	content, err := layer(spec.Entries)
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err = mutate.AppendLayers(image, static.NewLayer(content, types.OCIUncompressedLayer))
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", spec.Arch
	file.Config = v1.Config{
		Entrypoint: spec.Entrypoint,
		User:       spec.User,
		WorkingDir: "/",
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	if len(spec.Ports) > 0 {
		file.Config.ExposedPorts = map[string]struct{}{}
		for _, p := range spec.Ports {
			file.Config.ExposedPorts[p] = struct{}{}
		}
	}
	return mutate.ConfigFile(image, file)
}

// layer returns a tar of the entries and their parent directories, and of a
// /tmp that all users can write, as programs expect.
func layer(entries []entry) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range folders(entries) {
		mode := int64(0o755)
		if dir == "/tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: mode}); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		if err := e.write(w); err != nil {
			return nil, fmt.Errorf("adding %s: %w", e.Target, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func (e entry) write(w *tar.Writer) error {
	if e.Link != "" {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: e.Target[1:], Linkname: e.Link, Mode: 0o777})
	}
	f, err := os.Open(e.Source)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.Target[1:], Size: info.Size(), Mode: 0o755}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// folders returns /tmp and all parents of the entries, parents first.
func folders(entries []entry) []string {
	set := map[string]bool{"/tmp": true}
	for _, e := range entries {
		for dir := path.Dir(e.Target); dir != "/"; dir = path.Dir(dir) {
			set[dir] = true
		}
	}
	var dirs []string
	for dir := range set {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}
