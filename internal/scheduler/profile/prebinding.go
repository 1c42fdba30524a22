package profile

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// sharedPreBinding is the key of preBinding among what profiles share.
const sharedPreBinding = "PreBinding"

// preBinding are the pods of all profiles whose PreBind plugins run. A preemption
// ends that, in place of deleting the pod.
type preBinding struct {
	mu   sync.Mutex // guards pods and what they hold
	pods map[types.UID]*preparation
}

// preparation is one run of the PreBind plugins.
type preparation struct {
	cancel   context.CancelFunc
	canceled *framework.Status // why; nil: it goes on
}

func newPreBinding() *preBinding { return &preBinding{pods: map[types.UID]*preparation{}} }

// run calls prepare, whose context cancel ends. It returns the status of prepare, or
// the one that cancel made.
func (b *preBinding) run(ctx context.Context, pod types.UID, prepare func(context.Context) *framework.Status) (status *framework.Status) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &preparation{cancel: cancel}
	b.mu.Lock()
	b.pods[pod] = p
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.pods, pod)
		if p.canceled != nil {
			status = p.canceled
		}
	}()
	return prepare(ctx)
}

// cancel is framework.Handle.CancelPreBind.
func (b *preBinding) cancel(pod types.UID, plugin, message string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.pods[pod]
	if !ok {
		return false
	}
	if p.canceled == nil {
		p.canceled = framework.NewStatus(framework.Error, plugin, message)
		p.cancel()
	}
	return true
}
