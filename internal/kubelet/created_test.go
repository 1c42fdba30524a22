package kubelet

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
)

// restartedRuntime is a runtime that is restarted before it starts the first
// container, which therefore stays created.
type restartedRuntime struct {
	*inmemorytest.Runtime
	restarted atomic.Bool
}

func (r *restartedRuntime) StartContainer(ctx context.Context, id string) error {
	if !r.restarted.Swap(true) {
		return errors.New("rpc error: code = Unavailable desc = error reading from server: EOF")
	}
	return r.Runtime.StartContainer(ctx, id)
}

// A container that was created and never started does not keep its name from
// the container that takes its place.
func TestContainerThatWasNeverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.configure = func(c *Config) { c.Runtime = &restartedRuntime{Runtime: b.runtime} }
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web"))
		b.after(time.Minute)
		if st := b.get("web").Status.ContainerStatuses[0]; b.live("main") == "" || st.RestartCount != 0 {
			t.Errorf("after a minute: %+v", st)
		}
		if n := len(b.containers()); n != 1 {
			t.Errorf("%d containers are left, want 1", n)
		}
	})
}
