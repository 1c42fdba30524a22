package servicecidr

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func serviceCIDR(name, cidr string, change ...func(*networkingv1.ServiceCIDR)) *networkingv1.ServiceCIDR {
	c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{finalizer}},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
	for _, f := range change {
		f(c)
	}
	return c
}

func TestPlan(t *testing.T) {
	now := time.Now()
	ready := func(c *networkingv1.ServiceCIDR) {
		c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Message: readyMessage}}
	}
	fresh := func(c *networkingv1.ServiceCIDR) { c.Finalizers = nil }
	deleted := func(ago time.Duration) func(*networkingv1.ServiceCIDR) {
		return func(c *networkingv1.ServiceCIDR) { c.DeletionTimestamp = &metav1.Time{Time: now.Add(-ago)} }
	}
	terminating := func(c *networkingv1.ServiceCIDR) {
		c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Terminating"}}
	}
	wide := serviceCIDR("wide", "10.0.0.0/8")
	for _, c := range []struct {
		name    string
		cidr    *networkingv1.ServiceCIDR
		others  []*networkingv1.ServiceCIDR
		address string
		want    string
	}{
		{"new", serviceCIDR("c", "10.1.0.0/24", fresh), nil, "", "protected, True , after 0s"},
		{"ready", serviceCIDR("c", "10.1.0.0/24", ready), nil, "10.1.0.1", "protected, unchanged, after 0s"},
		{"deleted, in use", serviceCIDR("c", "10.1.0.0/24", ready, deleted(time.Minute)), nil, "10.1.0.1", "protected, False Terminating, after 0s"},
		{"still in use", serviceCIDR("c", "10.1.0.0/24", terminating, deleted(time.Minute)), nil, "10.1.0.1", "protected, unchanged, after 0s"},
		{"deleted, in the grace period", serviceCIDR("c", "10.1.0.0/24", ready, deleted(4*time.Second)), nil, "10.2.0.1", "protected, unchanged, after 6s"},
		{"deleted", serviceCIDR("c", "10.1.0.0/24", ready, deleted(time.Minute)), nil, "10.2.0.1", "released, unchanged, after 0s"},
		{"deleted, its address is in another ServiceCIDR", serviceCIDR("c", "10.1.0.0/24", ready, deleted(time.Minute)), []*networkingv1.ServiceCIDR{wide}, "10.1.0.1", "released, unchanged, after 0s"},
		{"the other ServiceCIDR is being deleted, too", serviceCIDR("c", "10.1.0.0/24", terminating, deleted(time.Minute)),
			[]*networkingv1.ServiceCIDR{serviceCIDR("wide", "10.0.0.0/8", deleted(time.Second))}, "10.1.0.1", "protected, unchanged, after 0s"},
		{"never protected", serviceCIDR("c", "10.1.0.0/24", fresh, deleted(time.Minute)), nil, "10.1.0.1", "released, unchanged, after 0s"},
		{"IPv6", serviceCIDR("c", "2001:db8::/64", ready, deleted(time.Minute)), nil, "2001:db8::1", "protected, False Terminating, after 0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var addresses []*networkingv1.IPAddress
			if c.address != "" {
				addresses = append(addresses, &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: c.address}})
			}
			p := plan(c.cidr, append(c.others, c.cidr), addresses, now)
			protection, condition := "released", "unchanged"
			if len(p.finalizers) == 1 {
				protection = "protected"
			}
			if p.condition != nil {
				condition = fmt.Sprint(p.condition.Status, " ", p.condition.Reason)
			}
			if got := fmt.Sprintf("%s, %s, after %s", protection, condition, p.after); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestServiceCIDRInUseIsProtected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := metav1.NewTime(time.Now().Add(-time.Minute))
		c := controllertest.New(t,
			serviceCIDR("fresh", "10.1.0.0/24", func(c *networkingv1.ServiceCIDR) { c.Finalizers = nil }),
			serviceCIDR("going", "10.2.0.0/24", func(c *networkingv1.ServiceCIDR) { c.DeletionTimestamp = &long }),
			&networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.2.0.1"}})
		c.Run(Descriptor())
		synctest.Wait()
		state := func() string {
			list, err := c.Fake.NetworkingV1().ServiceCIDRs().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			out := ""
			for _, cidr := range list.Items {
				out += fmt.Sprint(cidr.Name, len(cidr.Finalizers))
				for _, condition := range cidr.Status.Conditions {
					out += fmt.Sprint(" ", condition.Status, " ", condition.Message)
				}
				out += "; "
			}
			return out
		}
		controllertest.Eventually(t, state, "fresh1 True "+readyMessage+"; going1 False "+inUseMessage+"; ")
		if err := c.Fake.NetworkingV1().IPAddresses().Delete(t.Context(), "10.2.0.1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, state, "fresh1 True "+readyMessage+"; going0 False "+inUseMessage+"; ")
	})
}
