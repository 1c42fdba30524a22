package kubelet

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/podquery"
)

// resizeWhole gives the pod as a whole that much CPU, as request and limit.
func (b *bench) resizeWhole(name, cpu string) {
	b.t.Helper()
	p := b.get(name).DeepCopy()
	p.Generation++
	p.Spec.Resources = new(cpus(cpu))
	if _, err := b.api.CoreV1().Pods("default").Update(b.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.after(2 * time.Minute)
}

// busyGroups are control groups that refuse changes while fails is set.
type busyGroups struct {
	cgroup.Groups
	fails atomic.Bool
}

func (s *busyGroups) Apply(path string, r *runtimeapi.LinuxContainerResources, pids int64) error {
	if s.fails.Load() {
		return errors.New("device or resource busy")
	}
	return s.Groups.Apply(path, r, pids)
}

// resizable is a bench with a pod of two CPUs as a whole, whose runtime records of which
// resizes it is told, and whose control groups can refuse changes.
type resizable struct {
	*bench
	busy busyGroups

	mu     sync.Mutex // guards what follows
	told   []int64    // thousandths of a CPU
	answer error      // of the runtime
}

func newResizable(t *testing.T) *resizable {
	r := &resizable{bench: newBench(t)}
	r.configure = func(c *Config) { r.busy.Groups, c.Groups = c.Groups, &r.busy }
	r.runtime.ResizeSandbox = func(request *runtimeapi.UpdatePodSandboxResourcesRequest) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if request.GetPodSandboxId() == "" {
			t.Error("a request names no sandbox")
		}
		r.told = append(r.told, request.GetResources().GetCpuQuota()/100)
		return r.answer
	}
	r.start()
	r.create(pod("web", func(p *v1.Pod) {
		p.Generation, p.Spec.Containers[0].Resources, p.Spec.Resources = 1, cpus("1"), new(cpus("2"))
	}))
	r.after(time.Minute)
	return r
}

// answers sets what the runtime answers to resizes.
func (r *resizable) answers(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = err
}

// takeTold returns of which resizes the runtime was told since the last call. What was
// tried again counts once.
func (r *resizable) takeTold() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := slices.Compact(r.told)
	r.told = nil
	return told
}

// check checks of which resizes the runtime was told, and what the pod has.
func (r *resizable) check(when string, told []int64, quota int64) {
	r.t.Helper()
	if got := r.takeTold(); !slices.Equal(got, told) {
		r.t.Errorf("%s: the runtime is told of %d thousandths of a CPU, want %d", when, got, told)
	}
	group := cgroup.Pod("", podquery.QOSClass(r.get("web")), "uid-web")
	if got := r.groups.Get(group).GetCpuQuota() / 100; got != quota {
		r.t.Errorf("%s: the pod has %d thousandths of a CPU, want %d", when, got, quota)
	}
}

// The runtime is told of a resize before the pod's control group changes, and may refuse
// it. It is told of the former resources if the group cannot change after all.
func TestRuntimeIsToldOfResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResizable(t)
		defer func() { b.stop() }()
		b.check("before", nil, 2000)
		b.resizeWhole("web", "3")
		b.check("a resize of the pod", []int64{3000}, 3000)

		b.answers(grpcstatus.Error(codes.FailedPrecondition, "a plugin says no"))
		b.resizeWhole("web", "3500m")
		b.check("one that the runtime refuses", []int64{3500}, 3000)
		conditions := b.get("web").Status.Conditions
		if i := slices.IndexFunc(conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodResizeInProgress }); i < 0 ||
			conditions[i].Reason != v1.PodReasonError || !strings.Contains(conditions[i].Message, "a plugin says no") {
			t.Errorf("conditions %+v", conditions)
		}
		b.answers(nil)
		b.after(2 * time.Minute)
		b.check("once it accepts it", []int64{3500}, 3500)

		b.busy.fails.Store(true)
		b.resizeWhole("web", "2500m")
		if got := b.takeTold(); len(got) < 2 || !slices.Equal(got[:2], []int64{2500, 3500}) {
			t.Errorf("while the control group cannot change, the runtime is told of %d", got)
		}
		b.busy.fails.Store(false)
		b.after(2 * time.Minute)
		b.check("once it can", []int64{2500}, 2500)

		b.answers(grpcstatus.Error(codes.Unimplemented, "unknown method"))
		b.resizeWhole("web", "2")
		b.check("a runtime without the call", []int64{2000}, 2000)
		b.resize("web", "1500m")
		if got := b.quota(); got != 1500 {
			t.Errorf("the container has %d thousandths of a CPU, want 1500", got)
		}
		b.check("a resize of the container", []int64{2000}, 2000)
	})
}

// A kubelet that is restarted in the middle of a resize goes on with it: the pod's status
// does not say that it is done, and the runtime is told again.
func TestResizeOfThePodGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResizable(t)
		defer func() { b.stop() }()
		shows := func(when string, cpu int64, progress v1.ConditionStatus) {
			t.Helper()
			p := b.get("web")
			if got, in := p.Status.Resources.Limits.Cpu().Value(), conditionOf(p, v1.PodResizeInProgress); got != cpu || in != progress {
				t.Errorf("%s: the status shows %d CPUs, in progress %s, want %d and %s", when, got, in, cpu, progress)
			}
		}
		b.busy.fails.Store(true)
		b.resizeWhole("web", "3")
		shows("while it fails", 2, v1.ConditionTrue)
		b.stop()
		b.takeTold()
		b.answers(errors.New("a plugin says no"))
		b.busy.fails.Store(false)
		b.start()
		b.after(time.Minute)
		b.check("while the runtime refuses it", []int64{3000}, 2000)
		shows("after a restart", 2, v1.ConditionTrue)
		b.answers(nil)
		b.after(2 * time.Minute)
		b.check("in the end", []int64{3000}, 3000)
		shows("in the end", 3, v1.ConditionUnknown)
		b.stop()
		b.start()
		b.after(time.Minute)
		b.check("after another restart", nil, 3000)
		shows("after another restart", 3, v1.ConditionUnknown)
	})
}

// With the feature gate off, a pod keeps the resources that it has as a whole, and its
// status does not show them.
func TestPodIsNotResizedWithoutTheFeature(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.configure = func(c *Config) {
			c.Configuration.FeatureGates = map[string]bool{string(feature.InPlacePodLevelResourcesVerticalScaling): false}
		}
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web", func(p *v1.Pod) {
			p.Generation, p.Spec.Containers[0].Resources, p.Spec.Resources = 1, cpus("1"), new(cpus("2"))
		}))
		b.after(time.Minute)
		b.resizeWhole("web", "3")
		p := b.get("web")
		waits := podquery.Condition(&p.Status, v1.PodResizePending)
		if waits == nil || waits.Reason != v1.PodReasonInfeasible || waits.Message != "InPlacePodLevelResourcesVerticalScaling is disabled" {
			t.Errorf("the resize waits because of %+v", waits)
		}
		if got := b.groups.Get(cgroup.Pod("", podquery.QOSClass(p), p.UID)).GetCpuQuota(); got != 200_000 {
			t.Errorf("the quota of the pod is %d after the resize, want 200000", got)
		}
		if p.Status.Resources != nil || p.Status.AllocatedResources != nil {
			t.Errorf("the status shows %+v and %v", p.Status.Resources, p.Status.AllocatedResources)
		}
		if got := b.metrics()["kubelet_pod_infeasible_resizes_total,plr_feature_gate_off"]; got != 1 {
			t.Errorf("%v resizes are infeasible for the feature gate", got)
		}
		b.resizeWhole("web", "2")
		if waits := podquery.Condition(&b.get("web").Status, v1.PodResizePending); waits != nil {
			t.Errorf("a resize that was taken back waits: %+v", waits)
		}
	})
}
