package pleg

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/cri/fake"
)

// told is what a Generator tells of pods, of which one is known.
type told []string

func (*told) Has(uid types.UID) bool  { return uid == "known" }
func (p *told) Wake(uid types.UID)    { *p = append(*p, "wake "+string(uid)) }
func (p *told) Orphan(s *cri.Summary) { *p = append(*p, "orphan "+string(s.UID)) }

func TestRelist(t *testing.T) {
	runtime, pods := fake.New(), &told{}
	g := New(runtime, pods, func(err error) {
		if err != nil {
			t.Error(err)
		}
	}, prometheus.NewRegistry())
	sandboxes := map[string]string{}
	for _, uid := range []string{"known", "stranger"} {
		id, err := runtime.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid},
			Labels:   map[string]string{kubelettypes.KubernetesPodUIDLabel: uid},
		}, "")
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
			t.Errorf("told %q, want %q", *pods, want)
		}
	}
	relist("orphan stranger", "wake known")
	relist("orphan stranger") // nothing has changed
	if err := runtime.StopPodSandbox(t.Context(), sandboxes["known"]); err != nil {
		t.Fatal(err)
	}
	relist("orphan stranger", "wake known")
	for _, id := range sandboxes {
		if err := runtime.RemovePodSandbox(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	relist("wake known", "wake stranger")
}
