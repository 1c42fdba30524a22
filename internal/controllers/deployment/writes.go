package deployment

import (
	"context"
	"slices"
	"sync"

	apps "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
)

// writes remembers the last generation of each ReplicaSet that this controller has written, until
// the cache shows it. A step depends on the sizes of all ReplicaSets, but its update conflicts
// only if the cache is stale about the one that it changes.
type writes struct {
	// mu guards replicas. Only the sync of a Deployment uses the map of its ReplicaSets.
	mu       sync.Mutex
	replicas map[controller.Key]map[types.UID]written
}

// written is a version of a ReplicaSet.
type written struct {
	name       string
	generation int64
}

// wrote records a created or updated ReplicaSet of a Deployment.
func (w *writes) wrote(d controller.Key, rs *apps.ReplicaSet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replicas[d] == nil {
		w.replicas[d] = map[types.UID]written{}
	}
	w.replicas[d][rs.UID] = written{rs.Name, rs.Generation}
}

// seen reports whether the cached ReplicaSets of a Deployment are at least as new as those that
// were written. It calls get for ReplicaSets that the cache lacks, because they may have been
// deleted or released by their owner.
func (w *writes) seen(ctx context.Context, d controller.Key, owner types.UID, cached []*apps.ReplicaSet, get func(ctx context.Context, name string, o metav1.GetOptions) (*apps.ReplicaSet, error)) (bool, error) {
	for uid, have := range w.of(d) {
		if at := slices.IndexFunc(cached, func(rs *apps.ReplicaSet) bool { return rs.UID == uid }); at >= 0 {
			if cached[at].Generation < have.generation {
				return false, nil
			}
			continue
		}
		rs, err := get(ctx, have.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if ref := metav1.GetControllerOfNoCopy(rs); rs.UID == uid && ref != nil && ref.UID == owner {
			return false, nil
		}
	}
	w.forget(d)
	return true, nil
}

func (w *writes) of(d controller.Key) map[types.UID]written {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replicas[d]
}

// forget drops what was recorded for a Deployment.
func (w *writes) forget(d controller.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.replicas, d)
}
