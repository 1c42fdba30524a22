package dynamicresources

import (
	"context"
	"errors"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// canceling is a client that ends a context while the status of a claim is written.
type canceling struct {
	kubernetes.Interface
	cancel func()
}

func (c canceling) ResourceV1() resourceclient.ResourceV1Interface {
	return cancelingGroup{c.Interface.ResourceV1(), c.cancel}
}

type cancelingGroup struct {
	resourceclient.ResourceV1Interface
	cancel func()
}

func (c cancelingGroup) ResourceClaims(namespace string) resourceclient.ResourceClaimInterface {
	return cancelingClaims{c.ResourceV1Interface.ResourceClaims(namespace), c.cancel}
}

type cancelingClaims struct {
	resourceclient.ResourceClaimInterface
	cancel func()
}

func (c cancelingClaims) UpdateStatus(ctx context.Context, claim *resourceapi.ResourceClaim, o metav1.UpdateOptions) (*resourceapi.ResourceClaim, error) {
	updated, err := c.ResourceClaimInterface.UpdateStatus(ctx, claim, o)
	c.cancel()
	if err == nil {
		err = ctx.Err()
	}
	return updated, err
}

// Devices stay taken that the API has allocated while PreBind was canceled. Nothing is
// written after that.
func TestACanceledBindingKnowsWhatItWrote(t *testing.T) {
	f := newFixture(t, "", nil, node("a"), class("any", ""), slice("a", "gpu-0", "gpu-1"), claim("c", "any"), claim("d", "any"))
	state, info := framework.NewCycleState(f.h), framework.NewPodInfo(pod("web", "c", "d"))
	if got := f.filter(state, info.Pod); got != "a: fits" {
		t.Fatal(got)
	}
	if err := f.Reserve(t.Context(), state, info, "a").AsError(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.plugin.client = canceling{f.Fake, cancel}
	if err := f.PreBind(ctx, state, info, "a").AsError(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was canceled", err)
	}
	f.plugin.client = f.Fake
	known := f.plugin.claims
	if known.pendingOf("c") != nil || known.pendingOf("d") == nil {
		t.Error("the first allocation is not known to be written, or the second one is")
	}
	f.Unreserve(t.Context(), state, info, "a")
	if n := known.allocated(false).AllocatedDevices.Len(); n != 1 {
		t.Errorf("%d devices are taken, want that of the first claim", n)
	}
	if c, d := f.claim("c"), f.claim("d"); !strings.HasPrefix(c, "a/gpu-") || strings.Contains(c, "for ") || strings.Contains(d, "gpu-") {
		t.Errorf("claims: %s; %s", c, d)
	}
}

// An allocated claim has the finalizer, whoever else sets or removes it before the binding.
func TestFinalizerOfAnAllocatedClaim(t *testing.T) {
	with := func(c *resourceapi.ResourceClaim) { c.Finalizers = []string{resourceapi.Finalizer} }
	bare := func(*resourceapi.ResourceClaim) {}
	for name, change := range map[string]struct{ before, after claimOption }{
		"it is there": {with, with}, "it comes": {bare, with}, "it goes": {with, bare},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "", nil, node("a"), class("any", ""), slice("a", "gpu-0"), claim("c", "any", change.before))
			state, info := framework.NewCycleState(f.h), framework.NewPodInfo(pod("web", "c"))
			if got := f.filter(state, info.Pod); got != "a: fits" {
				t.Fatal(got)
			}
			if err := f.Reserve(t.Context(), state, info, "a").AsError(); err != nil {
				t.Fatal(err)
			}
			changed := claim("c", "any", change.after)
			changed.ResourceVersion = "1000"
			if err := f.Fake.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), changed, "shop"); err != nil {
				t.Fatal(err)
			}
			if err := f.PreBind(t.Context(), state, info, "a").AsError(); err != nil {
				t.Error(err)
			}
			if got, want := f.claim("c"), "a/gpu-0 for web protected"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
