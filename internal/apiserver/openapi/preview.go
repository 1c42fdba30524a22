package openapi

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TurnOn adds the documents of group versions that are not served by default.
// It also adds the documents of their groups that have no other version.
// Documents are decompressed by the first request.
func (h *Handler) TurnOn(versions []schema.GroupVersion) error {
	for _, gv := range versions {
		path := Path(gv)
		for _, p := range []string{path, parent(path)} {
			if err := h.turnOn(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *Handler) turnOn(path string) error {
	name := strings.ReplaceAll(path, "/", "_") + ".json.gz"
	v3, err := documents.ReadFile("documents/preview/v3/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	d := newDocument(v3)
	h.mu.Lock()
	h.v3[path] = entry{hash: d.hash, made: ready(d)}
	h.mu.Unlock()
	h.SetV2("preview "+path, func() (*spec.Swagger, error) {
		v2, err := documents.ReadFile("documents/preview/v2/" + name)
		if err != nil {
			return nil, err
		}
		raw, err := decompress(v2)
		if err != nil {
			return nil, err
		}
		h.mu.RLock()
		off := h.off
		h.mu.RUnlock()
		if raw, err = off.from(raw, "definitions"); err != nil {
			return nil, err
		}
		swagger := &spec.Swagger{}
		return swagger, json.Unmarshal(raw, swagger)
	})
	return nil
}
