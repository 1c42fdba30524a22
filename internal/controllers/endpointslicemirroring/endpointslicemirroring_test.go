//nolint:staticcheck // Endpoints are deprecated but must be mirrored.
package endpointslicemirroring

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func endpoints(subsets ...v1.EndpointSubset) *v1.Endpoints {
	return &v1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db", UID: "e",
			Labels:      map[string]string{"app": "db", v1.IsHeadlessService: ""},
			Annotations: map[string]string{"note": "n", v1.LastAppliedConfigAnnotation: "{}"},
		},
		Subsets: subsets,
	}
}

func subset(port int32, ready, notReady []string) v1.EndpointSubset {
	s := v1.EndpointSubset{Ports: []v1.EndpointPort{{Name: "sql", Port: port, Protocol: v1.ProtocolTCP}}}
	for _, ip := range ready {
		s.Addresses = append(s.Addresses, v1.EndpointAddress{IP: ip})
	}
	for _, ip := range notReady {
		s.NotReadyAddresses = append(s.NotReadyAddresses, v1.EndpointAddress{IP: ip})
	}
	return s
}

func show(list []*discovery.EndpointSlice) string {
	var out []string
	for _, s := range list {
		line := fmt.Sprint(s.AddressType, ":", *s.Ports[0].Port)
		for _, e := range s.Endpoints {
			line += " " + e.Addresses[0]
			if !*e.Conditions.Ready {
				line += "!"
			}
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		of   *v1.Endpoints
		want string
		skip skipped
	}{
		"ready and not ready": {endpoints(subset(1, []string{"10.0.0.1"}, []string{"10.0.0.2"})), "IPv4:1 10.0.0.1 10.0.0.2!", skipped{}},
		"separate families":   {endpoints(subset(1, []string{"10.0.0.1", "fd00::1"}, nil)), "IPv4:1 10.0.0.1, IPv6:1 fd00::1", skipped{}},
		"separate ports":      {endpoints(subset(1, []string{"10.0.0.1"}, nil), subset(2, []string{"10.0.0.1"}, nil)), "IPv4:1 10.0.0.1, IPv4:2 10.0.0.1", skipped{}},
		"other notations":     {endpoints(subset(1, []string{"010.0.0.1", "FD00:0::1", "::ffff:10.0.0.1"}, nil)), "IPv4:1 10.0.0.1, IPv6:1 fd00::1", skipped{}},
		"equal ports":         {endpoints(subset(1, []string{"10.0.0.1"}, nil), subset(1, []string{"10.0.0.2"}, nil)), "IPv4:1 10.0.0.1 10.0.0.2", skipped{}},
		"invalid address":     {endpoints(subset(1, []string{"here"}, nil)), "", skipped{invalid: 1}},
		"too many":            {endpoints(subset(1, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, []string{"10.0.0.4"})), "IPv4:1 10.0.0.1 10.0.0.2 10.0.0.3", skipped{excess: 1}},
	} {
		groups, skip := groupsOf(test.of, 3)
		create, update, remove := plan(test.of, groups, nil, maxPerSlice)
		if got := show(create); got != test.want || skip != test.skip || len(update)+len(remove) > 0 {
			t.Errorf("%s: %s %+v, want %s", name, got, skip, test.want)
		}
		if again, update, remove := plan(test.of, groups, create, maxPerSlice); len(again)+len(update)+len(remove) > 0 {
			t.Errorf("%s: not stable: %s; %s; %s", name, show(again), show(update), show(remove))
		}
	}
}

func TestPlanChangesFewSlices(t *testing.T) {
	before := endpoints(subset(1, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, nil), subset(2, []string{"10.0.0.1"}, nil))
	groups, _ := groupsOf(before, 1000)
	have, _, _ := plan(before, groups, nil, 2)
	if got := show(have); got != "IPv4:1 10.0.0.1 10.0.0.2, IPv4:1 10.0.0.3, IPv4:2 10.0.0.1" {
		t.Fatal(got)
	}
	after := endpoints(subset(1, []string{"10.0.0.1", "10.0.0.9"}, nil), subset(3, []string{"10.0.0.1"}, nil))
	groups, _ = groupsOf(after, 1000)
	create, update, remove := plan(after, groups, have, 2)
	if c, u, r := show(create), show(update), show(remove); c != "IPv4:3 10.0.0.1" || u != "IPv4:1 10.0.0.1 10.0.0.9" || r != "IPv4:1 10.0.0.3, IPv4:2 10.0.0.1" {
		t.Errorf("create %s; update %s; remove %s", c, u, r)
	}
}

// A slice that is being deleted is replaced, not reused: its endpoints go with it.
func TestPlanReplacesDeletedSlices(t *testing.T) {
	of := endpoints(subset(1, []string{"10.0.0.1"}, nil))
	groups, _ := groupsOf(of, 1000)
	have, _, _ := plan(of, groups, nil, maxPerSlice)
	have[0].DeletionTimestamp, have[0].Finalizers = &metav1.Time{}, []string{"example.com/keep"}
	create, update, remove := plan(of, groups, have, maxPerSlice)
	if got := show(create); got != "IPv4:1 10.0.0.1" || len(update)+len(remove) > 0 {
		t.Errorf("create %s; update %s; remove %s", got, show(update), show(remove))
	}
}

func TestMirroring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
		lock := endpoints(subset(1, []string{"10.0.0.8"}, nil))
		lock.Name, lock.Annotations = "lock", map[string]string{leaderAnnotation: "{}"}
		c := controllertest.New(t, service, endpoints(subset(1, []string{"10.0.0.1"}, nil)), lock,
			&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lock"}})
		c.Run(Descriptor())
		synctest.Wait()
		ctx := context.Background()
		mirrored := func() string {
			list, err := c.Fake.DiscoveryV1().EndpointSlices("shop").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var all []*discovery.EndpointSlice
			for i := range list.Items {
				s := &list.Items[i]
				if s.Labels[discovery.LabelServiceName] != "db" || s.Labels["app"] != "db" || s.Annotations["note"] != "n" ||
					len(s.Labels) != 3 || len(s.Annotations) != 1 || !metav1.IsControlledBy(s, &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{UID: "e"}}) {
					t.Errorf("metadata %+v", s.ObjectMeta)
				}
				all = append(all, s)
			}
			return show(all)
		}
		controllertest.Eventually(t, mirrored, "IPv4:1 10.0.0.1")

		if _, err := c.Fake.CoreV1().Endpoints("shop").Update(ctx, endpoints(subset(1, []string{"10.0.0.1", "10.0.0.2"}, nil)), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, mirrored, "IPv4:1 10.0.0.1 10.0.0.2")

		selecting := service.DeepCopy()
		selecting.ResourceVersion = ""
		selecting.Spec.Selector = map[string]string{"app": "db"}
		if _, err := c.Fake.CoreV1().Services("shop").Update(ctx, selecting, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, mirrored, "")
	})
}
