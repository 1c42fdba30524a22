package pleg

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
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
