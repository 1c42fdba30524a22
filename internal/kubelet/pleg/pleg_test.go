package pleg

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// calls records the calls of a Generator. The pod known has a worker.
type calls []string

func (*calls) Has(uid types.UID) bool { return uid == "known" }
func (p *calls) Wake(uid types.UID)   { *p = append(*p, "wake "+string(uid)) }
func (p *calls) Listed(orphans []*cri.Summary) {
	*p = append(*p, "listed")
	for _, s := range orphans {
		*p = append(*p, "orphan "+string(s.UID))
	}
}

func TestRelist(t *testing.T) {
	runtime, pods := inmemory.New(), &calls{}
	g := New(runtime, "/var/lib/kubelet", pods, func(err error) {
		if err != nil {
			t.Error(err)
		}
	}, prometheus.NewRegistry())
	sandboxes := map[string]string{}
	for uid, root := range map[string]string{"known": "/var/lib/kubelet", "stranger": "/var/lib/kubelet", "of another kubelet": "/data/kubelet", "of nobody": ""} {
		config := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid},
			Labels:   map[string]string{kubelettypes.KubernetesPodUIDLabel: uid},
		}
		if root != "" {
			config.Annotations = cri.SandboxAnnotations(&v1.Pod{}, root)
		}
		id, err := runtime.RunPodSandbox(t.Context(), config, "")
		if err != nil {
			t.Fatal(err)
		}
		sandboxes[uid] = id
	}
	var last map[types.UID]*cri.Summary
	relist := func(want ...string) {
		t.Helper()
		*pods = nil
		last = g.relist(t.Context(), last)
		if slices.Sort(*pods); !slices.Equal(*pods, want) {
			t.Errorf("calls %q, want %q", *pods, want)
		}
	}
	relist("listed", "orphan of nobody", "orphan stranger", "wake known")
	relist("listed", "orphan of nobody", "orphan stranger") // nothing has changed
	if err := runtime.StopPodSandbox(t.Context(), sandboxes["known"]); err != nil {
		t.Fatal(err)
	}
	relist("listed", "orphan of nobody", "orphan stranger", "wake known")
	for _, id := range sandboxes {
		if err := runtime.RemovePodSandbox(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	relist("listed", "wake known", "wake of another kubelet", "wake of nobody", "wake stranger")
}

// silent is a runtime that does not answer while away is set.
type silent struct {
	*inmemory.Runtime
	away bool
}

var errAway = errors.New("the runtime is away")

func (s *silent) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if s.away {
		return nil, errAway
	}
	return s.Runtime.ListPodSandbox(ctx, filter)
}

// A pod is woken when one of its containers starts, ends or is removed. What happens
// while the runtime does not answer is seen afterwards.
func TestRelistOfContainers(t *testing.T) {
	const root = "/var/lib/kubelet"
	runtime, pods := &silent{Runtime: inmemory.New()}, &calls{}
	var answer error
	g := New(runtime, root, pods, func(err error) { answer = err }, prometheus.NewRegistry())
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "known"}}
	sandbox, err := runtime.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "known"},
		Labels:   cri.PodLabels(pod), Annotations: cri.SandboxAnnotations(pod, root),
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := runtime.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Labels: cri.ContainerLabels(pod, "main"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	changed, unchanged := []string{"listed", "wake known"}, []string{"listed"}
	var last map[types.UID]*cri.Summary
	for _, step := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"it is created", func() error { return nil }, changed},
		{"nothing happens", func() error { return nil }, unchanged},
		{"it starts", func() error { return runtime.StartContainer(t.Context(), id) }, changed},
		{"the runtime is away", func() error { runtime.away = true; return nil }, nil},
		{"it ends before the runtime is back", func() error { runtime.away = false; return runtime.StopContainer(t.Context(), id, 30) }, changed},
		{"nothing happens any more", func() error { return nil }, unchanged},
		{"it is removed", func() error { return runtime.RemoveContainer(t.Context(), id) }, changed},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		*pods = nil
		last = g.relist(t.Context(), last)
		if slices.Sort(*pods); !slices.Equal(*pods, step.want) {
			t.Errorf("%s: calls %q, want %q", step.what, *pods, step.want)
		}
		if errors.Is(answer, errAway) != runtime.away {
			t.Errorf("%s: the answer is %v", step.what, answer)
		}
	}
}
