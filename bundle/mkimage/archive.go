package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// writeArchive writes the OCI image layout of a named image
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md) to
// path, in one step.
func writeArchive(path, name string, image v1.Image) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	index, err := indexOf(name, image)
	if err != nil {
		return err
	}
	if err := add(w, "index.json", index); err != nil {
		return err
	}
	if err := add(w, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	for _, blob := range [][]byte{manifest, config} {
		digest, _, err := v1.SHA256(bytes.NewReader(blob))
		if err != nil {
			return err
		}
		if err := add(w, "blobs/sha256/"+digest.Hex, blob); err != nil {
			return err
		}
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		if err := addLayer(w, l); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", buf.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// indexOf returns the layout's index.json. containerd takes the image's name
// from the first annotation, other tools take the tag from the second.
func indexOf(name string, image v1.Image) ([]byte, error) {
	descriptor, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	descriptor.Annotations = map[string]string{
		"io.containerd.image.name":          name,
		"org.opencontainers.image.ref.name": name,
	}
	return json.Marshal(v1.IndexManifest{
		SchemaVersion: 2,
		MediaType:     types.OCIImageIndex,
		Manifests:     []v1.Descriptor{*descriptor},
	})
}

func addLayer(w *tar.Writer, l v1.Layer) error {
	digest, err := l.Digest()
	if err != nil {
		return err
	}
	r, err := l.Compressed()
	if err != nil {
		return err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return add(w, "blobs/sha256/"+digest.Hex, content)
}

func add(w *tar.Writer, name string, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
