package csi

import (
	"context"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func storage(size string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
}

// resized is a volume that its controller has made larger than its claim says.
func resized(size string, change ...func(c *v1.PersistentVolumeClaim)) Source {
	s := persistent(func(pv *v1.PersistentVolume) { pv.Spec.Capacity = storage(size) })
	s.Claim.Spec.Resources.Requests, s.Claim.Status.Capacity = storage(size), storage("1Gi")
	for _, c := range change {
		c(s.Claim)
	}
	return s
}

// newExpander returns a bench whose driver answers NodeExpandVolume with *answer.
func newExpander(t *testing.T, claim *v1.PersistentVolumeClaim) (b *bench, answer *codes.Code) {
	t.Helper()
	b, answer = newBench(t, csiDriver(), claim), new(codes.Code)
	b.driver.Capabilities = append(b.driver.Capabilities, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
	b.driver.Before = func(_ context.Context, method string, _ any) error {
		if method == "NodeExpandVolume" {
			return status.Error(*answer, "no")
		}
		return nil
	}
	return b, answer
}

// expansions returns how often the driver was to expand a volume.
func (b *bench) expansions() int {
	n := 0
	for _, call := range b.driver.Calls() {
		if call == "NodeExpandVolume" {
			n++
		}
	}
	return n
}

func (b *bench) claim() *v1.PersistentVolumeClaim {
	b.Helper()
	c, err := b.api.CoreV1().PersistentVolumeClaims("default").Get(b.Context(), "c", metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// The claim tells the controller how the node gets on, which takes back what is
// not feasible. The pod then starts with the volume as it is.
func TestProgressOfExpansion(t *testing.T) {
	for name, c := range map[string]struct {
		status    v1.ClaimResourceStatus
		answer    codes.Code
		calls     int
		fails     bool
		after     v1.ClaimResourceStatus
		size      string
		condition bool
	}{
		"no status":          {size: "1Gi"},
		"controller's":       {status: v1.PersistentVolumeClaimControllerResizeInProgress, after: v1.PersistentVolumeClaimControllerResizeInProgress, size: "1Gi"},
		"infeasible":         {status: v1.PersistentVolumeClaimNodeResizeInfeasible, after: v1.PersistentVolumeClaimNodeResizeInfeasible, size: "1Gi"},
		"pending":            {status: v1.PersistentVolumeClaimNodeResizePending, calls: 1, size: "2Gi"},
		"in progress":        {status: v1.PersistentVolumeClaimNodeResizeInProgress, calls: 1, size: "2Gi"},
		"refused for ever":   {v1.PersistentVolumeClaimNodeResizePending, codes.OutOfRange, 1, true, v1.PersistentVolumeClaimNodeResizeInfeasible, "1Gi", true},
		"refused":            {v1.PersistentVolumeClaimNodeResizePending, codes.Internal, 1, true, v1.PersistentVolumeClaimNodeResizeInProgress, "1Gi", true},
		"not answered":       {v1.PersistentVolumeClaimNodeResizePending, codes.Unavailable, 1, true, v1.PersistentVolumeClaimNodeResizeInProgress, "1Gi", false},
		"refused while used": {v1.PersistentVolumeClaimNodeResizePending, codes.FailedPrecondition, 1, false, v1.PersistentVolumeClaimNodeResizeInProgress, "1Gi", true},
	} {
		source := resized("2Gi", func(claim *v1.PersistentVolumeClaim) {
			claim.Status.AllocatedResources = storage("2Gi")
			if c.status != "" {
				claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: c.status}
			}
		})
		b, answer := newExpander(t, source.Claim)
		*answer = c.answer
		v := b.volumes(b.files)
		if _, err := v.SetUp(t.Context(), pod(podUID), source); (err != nil) != c.fails {
			t.Errorf("%s: error %v", name, err)
		}
		claim := b.claim()
		if calls, after := b.expansions(), claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]; calls != c.calls || after != c.after {
			t.Errorf("%s: %d calls, status %q", name, calls, after)
		}
		if size := claim.Status.Capacity[v1.ResourceStorage]; size.String() != c.size {
			t.Errorf("%s: the claim has %s", name, size.String())
		}
		failed := slices.ContainsFunc(claim.Status.Conditions, func(is v1.PersistentVolumeClaimCondition) bool {
			return is.Type == v1.PersistentVolumeClaimNodeResizeError && is.Status == v1.ConditionTrue && strings.HasPrefix(is.Message, "failed to expand pvc with rpc error: code = ")
		})
		if failed != c.condition {
			t.Errorf("%s: conditions %+v", name, claim.Status.Conditions)
		}
		if c.answer != codes.OutOfRange && c.answer != codes.FailedPrecondition {
			continue
		}
		source.Claim = claim
		_, err := v.SetUp(t.Context(), pod(podUID), source)
		if calls := b.expansions(); err != nil || calls > 0 {
			t.Errorf("%s, then: %d calls, error %v", name, calls, err)
		}
	}
}

// The file system of a volume that a pod only reads is not expanded. The pod and its claim
// are told of that once.
func TestReadOnlyVolumeIsNotExpanded(t *testing.T) {
	source := resized("2Gi")
	source.Volume.PersistentVolumeClaim.ReadOnly = true
	b, _ := newExpander(t, source.Claim)
	v := b.volumes(b.files)
	for _, want := range []int{2, 0, 0} {
		if _, err := v.SetUp(t.Context(), pod(podUID), source); err != nil {
			t.Fatal(err)
		}
		told := len(b.events.Events)
		for range told {
			if e := <-b.events.Events; e != `Warning FileSystemResizeFailed MountVolume.NodeExpandVolume failed for volume "pv1" requested read-only file system` {
				t.Errorf("event %q", e)
			}
		}
		if told != want {
			t.Errorf("%d events, want %d", told, want)
		}
	}
	if calls := b.expansions(); calls > 0 {
		t.Errorf("the driver was asked %d times", calls)
	}
	if size := b.claim().Status.Capacity[v1.ResourceStorage]; size.String() != "1Gi" {
		t.Errorf("the claim has %s", size.String())
	}
}

// Somebody wants another size than the one that the driver refuses.
func TestRefusedSizeThatNobodyWants(t *testing.T) {
	source := resized("2Gi", func(c *v1.PersistentVolumeClaim) { c.Status.AllocatedResources = storage("2Gi") })
	source.Claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	b, answer := newExpander(t, source.Claim)
	*answer = codes.Internal
	v := b.volumes(b.files)
	for _, want := range []v1.ClaimResourceStatus{v1.PersistentVolumeClaimNodeResizeInProgress, v1.PersistentVolumeClaimNodeResizeInfeasible} {
		if _, err := v.SetUp(t.Context(), pod(podUID), source); err == nil {
			t.Error("no error")
		}
		source.Claim = b.claim()
		if got := source.Claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]; got != want || len(source.Claim.Status.Conditions) != 1 {
			t.Errorf("status %q, want %q, conditions %+v", got, want, source.Claim.Status.Conditions)
		}
		source.Claim.Spec.Resources.Requests = storage("1500Mi")
	}
}

// A volume that several nodes have is expanded on each of them.
func TestVolumeThatAnotherNodeHasExpanded(t *testing.T) {
	for name, c := range map[string]struct {
		mode   v1.PersistentVolumeAccessMode
		answer codes.Code
		calls  int
	}{
		"many writers":       {v1.ReadWriteMany, codes.OK, 1},
		"no help of drivers": {v1.ReadWriteMany, codes.Unimplemented, 1},
		"one writer":         {v1.ReadWriteOnce, codes.OK, 0},
	} {
		before := resized("1Gi", func(claim *v1.PersistentVolumeClaim) {
			claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{c.mode}
		})
		b, answer := newExpander(t, before.Claim)
		*answer = c.answer
		v := b.volumes(b.files)
		after := resized("2Gi", func(claim *v1.PersistentVolumeClaim) {
			claim.Spec.AccessModes, claim.Status.Capacity = before.Claim.Spec.AccessModes, storage("2Gi")
		})
		for _, source := range []Source{before, after, after} {
			if _, err := v.SetUp(t.Context(), pod(podUID), source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := b.expansions(); n != c.calls {
			t.Errorf("%s: expanded %d times", name, n)
		}
		for _, action := range b.api.Actions() {
			if action.Matches("patch", "persistentvolumeclaims") {
				t.Errorf("%s: the claim was changed: %v", name, action)
			}
		}
	}
}
