package pod

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// features returns what a handler of the runtime can do: nothing, if the runtime does
// not tell.
func (k *kuberuntime) features(ctx context.Context, handler string) (*runtimeapi.RuntimeHandlerFeatures, error) {
	status, err := k.config.Runtime.Status(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, h := range status.GetRuntimeHandlers() {
		if h.GetName() == handler && h.GetFeatures() != nil {
			return h.GetFeatures(), nil
		}
	}
	return &runtimeapi.RuntimeHandlerFeatures{}, nil
}

// checkUserNamespace fails for a pod with a user namespace of its own, if the handler
// would run it in that of the host.
func (k *kuberuntime) checkUserNamespace(ctx context.Context, pod *v1.Pod, handler string) error {
	if !podquery.HasUserNamespace(&pod.Spec) {
		return nil
	}
	features, err := k.features(ctx, handler)
	switch {
	case err != nil:
		return err
	case features.GetUserNamespaces():
		return nil
	case handler == "":
		return errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
}

// recursive makes what is mounted below the volumes of a container read-only, too, where
// it asks for that (KEP-3857). mounts are those of its volumeMounts, in their order.
func (r *running) recursive(ctx context.Context, c *v1.Container, mounts []*runtimeapi.Mount) error {
	var features *runtimeapi.RuntimeHandlerFeatures // read once it is needed
	for i, m := range c.VolumeMounts {
		if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
			continue
		}
		if features == nil {
			handler, err := r.runtime.runtimeHandler(ctx, r.pod, r.observed)
			if err != nil {
				return err
			}
			if features, err = r.runtime.features(ctx, handler); err != nil {
				return err
			}
		}
		if *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled && !features.GetRecursiveReadOnlyMounts() {
			return fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", m.Name)
		}
		mounts[i].RecursiveReadOnly = features.GetRecursiveReadOnlyMounts()
	}
	return nil
}
