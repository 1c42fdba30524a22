package disruption

import (
	"context"
	"fmt"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/kinds"
)

// scale returns the sum of the replicas of the controllers of some pods, and the number of
// pods without a controller. It asks for each controller once.
func (c *budgets) scale(ctx context.Context, matching []*v1.Pod) (total, unmanaged int, err error) {
	asked, counted := map[types.UID]bool{}, map[types.UID]bool{}
	for _, p := range matching {
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil {
			unmanaged++
			continue
		}
		if asked[ref.UID] {
			continue
		}
		asked[ref.UID] = true
		uid, n, err := c.scaleOf(ctx, p.Namespace, *ref)
		if err == nil && uid == "" {
			err = fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		if err != nil {
			return 0, unmanaged, err
		}
		if !counted[uid] {
			counted[uid] = true
			total += n
		}
	}
	return total, unmanaged, nil
}

// scaleOf returns the UID and the replicas of a controller. For a ReplicaSet of a
// Deployment, it returns the UID and the replicas of the Deployment. The UID is empty if
// the controller does not exist, or is another object with the same name.
func (c *budgets) scaleOf(ctx context.Context, namespace string, ref metav1.OwnerReference) (types.UID, int, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return "", 0, err
	}
	kind := gv.WithKind(ref.Kind).GroupKind()
	if kind == (schema.GroupKind{Group: apps.GroupName, Kind: "ReplicaSet"}) {
		rs, err := c.shared.Apps().V1().ReplicaSets().Lister().ReplicaSets(namespace).Get(ref.Name)
		if err == nil && rs.UID == ref.UID {
			if up := metav1.GetControllerOfNoCopy(rs); up != nil && up.Kind == "Deployment" {
				ref, kind = *up, schema.GroupKind{Group: apps.GroupName, Kind: "Deployment"}
			}
		}
	}
	owner, replicas, err := c.builtIn(namespace, kind, ref.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && owner != nil && owner.GetUID() != ref.UID:
		return "", 0, nil
	case err != nil:
		return "", 0, err
	case owner == nil:
		return c.scaleOfCustom(ctx, namespace, kind, ref)
	case replicas == nil:
		return ref.UID, 1, nil
	}
	return ref.UID, int(*replicas), nil
}

// builtIn returns a controller of a built-in kind and its replicas, or nil if the kind is
// another one.
func (c *budgets) builtIn(namespace string, kind schema.GroupKind, name string) (owner metav1.Object, replicas *int32, err error) {
	switch kind {
	case schema.GroupKind{Group: apps.GroupName, Kind: "ReplicaSet"}:
		rs, err := c.shared.Apps().V1().ReplicaSets().Lister().ReplicaSets(namespace).Get(name)
		if err != nil {
			return nil, nil, err
		}
		return rs, rs.Spec.Replicas, nil
	case schema.GroupKind{Group: apps.GroupName, Kind: "Deployment"}:
		d, err := c.shared.Apps().V1().Deployments().Lister().Deployments(namespace).Get(name)
		if err != nil {
			return nil, nil, err
		}
		return d, d.Spec.Replicas, nil
	case schema.GroupKind{Group: apps.GroupName, Kind: "StatefulSet"}:
		set, err := c.shared.Apps().V1().StatefulSets().Lister().StatefulSets(namespace).Get(name)
		if err != nil {
			return nil, nil, err
		}
		return set, set.Spec.Replicas, nil
	case schema.GroupKind{Kind: "ReplicationController"}:
		rc, err := c.shared.Core().V1().ReplicationControllers().Lister().ReplicationControllers(namespace).Get(name)
		if err != nil {
			return nil, nil, err
		}
		return rc, rc.Spec.Replicas, nil
	}
	return nil, nil, nil
}

// scaleOfCustom reads the scale subresource of a custom controller.
func (c *budgets) scaleOfCustom(ctx context.Context, namespace string, kind schema.GroupKind, ref metav1.OwnerReference) (types.UID, int, error) {
	resource, served, err := c.resources.find(kind, time.Now(), func() ([]kinds.Kind, error) { return kinds.Served(c.kube.Discovery()) })
	if err != nil || !served {
		return "", 0, err
	}
	scale, err := c.env.Client.Dynamic.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{}, "scale")
	if apierrors.IsNotFound(err) {
		// Either the object or its subresource does not exist.
		c.resources.forget(kind)
		return "", 0, fmt.Errorf("%s %s does not implement the scale subresource: %w", ref.Kind, ref.Name, err)
	}
	if err != nil {
		return "", 0, err
	}
	if scale.GetUID() != ref.UID {
		return "", 0, nil
	}
	n, _, err := unstructured.NestedInt64(scale.Object, "spec", "replicas")
	return ref.UID, int(n), err
}

// rediscovery is the minimum time between two discoveries of served resources.
const rediscovery = 10 * time.Second

// resources remembers the resources of kinds of custom controllers. The zero value is ready
// for use.
type resources struct {
	mu         sync.Mutex // guards the following
	byKind     map[schema.GroupKind]schema.GroupVersionResource
	discovered time.Time
}

// find returns the resource of a kind. served is false if there is none. It calls discover
// if the kind is unknown, and not again within the time rediscovery.
func (r *resources) find(kind schema.GroupKind, now time.Time, discover func() ([]kinds.Kind, error)) (resource schema.GroupVersionResource, served bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if resource, served = r.byKind[kind]; served || now.Sub(r.discovered) < rediscovery {
		return resource, served, nil
	}
	all, err := discover()
	if err != nil && len(all) == 0 {
		return resource, false, err
	}
	r.byKind, r.discovered = map[schema.GroupKind]schema.GroupVersionResource{}, now
	for _, k := range all {
		r.byKind[k.GroupKind()] = k.Resource
	}
	resource, served = r.byKind[kind]
	return resource, served, nil
}

// forget drops the cached discovery of a kind, so that the next call of find may
// discover it again.
func (r *resources) forget(kind schema.GroupKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKind, kind)
}
