package spec

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// readOnce reads each object once: an environment may refer to each of its keys.
// It belongs to one goroutine.
type readOnce struct {
	objects    Objects
	configMaps map[string]result[*v1.ConfigMap]
	secrets    map[string]result[*v1.Secret]
}

type result[T any] struct {
	object T
	err    error
}

// ConfigMap implements Objects for one namespace.
func (r *readOnce) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	known, ok := r.configMaps[name]
	if !ok {
		known.object, known.err = r.objects.ConfigMap(ctx, namespace, name)
		if r.configMaps == nil {
			r.configMaps = map[string]result[*v1.ConfigMap]{}
		}
		r.configMaps[name] = known
	}
	return known.object, known.err
}

// Secret implements Objects for one namespace.
func (r *readOnce) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	known, ok := r.secrets[name]
	if !ok {
		known.object, known.err = r.objects.Secret(ctx, namespace, name)
		if r.secrets == nil {
			r.secrets = map[string]result[*v1.Secret]{}
		}
		r.secrets[name] = known
	}
	return known.object, known.err
}
