package probe

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/gates"
)

const (
	// maxCommands is how many commands of a pod's probes run at a time.
	maxCommands = 8
	// maxHooks is how many commands of a pod's hooks run at a time. They may take any time,
	// and those before the end of a pod have no more than its grace period together.
	maxHooks = 32
)

// turns lets the commands of pods wait for each other. The runtime keeps up to 16 MiB of
// each output of a command until it ends, in memory that counts for no pod. Whether that
// was too long for the kubelet is known only then:
//
//	probe ─ one of maxCommands of its pod ─┬─ run ─ too long ─► the pod is verbose
//	hook ── one of maxHooks of its pod ────┤
//	                                       └─ of a verbose pod: the only probe, or the
//	                                          only hook, of its namespace ─ run
//
// Probes do not wait for hooks: a hook may wait for what a probe decides. The zero value is
// ready to use.
type turns struct {
	gates   gates.Gates[string]
	mu      sync.Mutex         // guards verbose
	verbose map[types.UID]bool // pods with a command whose output was too long
}

// run runs a command of a hook or probe of a pod in its turn.
func (t *turns) run(ctx context.Context, pod *v1.Pod, hook bool, command func() ([]byte, error)) ([]byte, error) {
	kind, most := "probes", maxCommands
	if hook {
		kind, most = "hooks", maxHooks
	}
	leave, err := t.gates.Enter(ctx, kind+" of pod "+string(pod.UID), most)
	if err != nil {
		return nil, err
	}
	defer leave()
	t.mu.Lock()
	verbose := t.verbose[pod.UID]
	t.mu.Unlock()
	if verbose {
		leave, err := t.gates.Enter(ctx, kind+" of namespace "+pod.Namespace, 1)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	output, err := command()
	if status.Code(err) == codes.ResourceExhausted {
		t.mu.Lock()
		defer t.mu.Unlock()
		if ctx.Err() == nil { // forget follows the end of ctx
			if t.verbose == nil {
				t.verbose = map[types.UID]bool{}
			}
			t.verbose[pod.UID] = true
		}
	}
	return output, err
}

// forget drops what is known of a pod.
func (t *turns) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.verbose, uid)
}
