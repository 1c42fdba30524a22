//nolint:staticcheck // Endpoints are deprecated but must be maintained.
package endpoints

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controllers/endpointslice"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func service(change func(s *v1.Service)) *v1.Service {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"team": "a"}},
		Spec: v1.ServiceSpec{
			ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"}, IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
			Selector: map[string]string{"app": "web"},
			Ports:    []v1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http"), Protocol: v1.ProtocolTCP}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func pod(name, ip string, ready bool, port int32) *v1.Pod {
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{
			Ports: []v1.ContainerPort{{Name: "http", ContainerPort: port, Protocol: v1.ProtocolTCP}},
		}}},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, PodIP: ip, PodIPs: []v1.PodIP{{IP: ip}, {IP: "fd00::" + strings.ReplaceAll(ip, ".", ":")}},
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: status}},
		},
	}
}

func words(subsets []v1.EndpointSubset) string {
	var out []string
	for _, s := range subsets {
		for _, p := range s.Ports {
			out = append(out, fmt.Sprintf("%s:%d", p.Name, p.Port))
		}
		for _, a := range s.Addresses {
			out = append(out, a.IP)
		}
		for _, a := range s.NotReadyAddresses {
			out = append(out, "!"+a.IP)
		}
	}
	return strings.Join(out, " ")
}

func TestSubsets(t *testing.T) {
	deleted := pod("c", "10.0.0.9", true, 8080)
	now := metav1.Now()
	deleted.DeletionTimestamp = &now
	done := pod("d", "10.0.0.8", true, 8080)
	done.Status.Phase = v1.PodSucceeded
	pods := []*v1.Pod{pod("b", "10.0.0.10", true, 8080), pod("a", "10.0.0.2", true, 8080), pod("u", "10.0.0.3", false, 8080), deleted, done, pod("other", "10.0.0.4", true, 9090)}
	for _, c := range []struct {
		name   string
		change func(s *v1.Service)
		want   string
	}{
		{"by port name", nil, "http:9090 10.0.0.4 http:8080 10.0.0.10 10.0.0.2 !10.0.0.3"},
		{"by port number", func(s *v1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(1) }, "http:1 10.0.0.10 10.0.0.2 10.0.0.4 !10.0.0.3"},
		{"publishNotReadyAddresses", func(s *v1.Service) {
			s.Spec.PublishNotReadyAddresses = true
			s.Spec.Ports[0].TargetPort = intstr.FromInt32(1)
		}, "http:1 10.0.0.10 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.9"},
		{"headless without ports", func(s *v1.Service) { s.Spec.Ports, s.Spec.ClusterIP = nil, "None" }, "10.0.0.10 10.0.0.2 10.0.0.4 !10.0.0.3"},
		{"a port that no pod has", func(s *v1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("nope") }, ""},
		{"IPv6", func(s *v1.Service) {
			s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol}
			s.Spec.Ports[0].TargetPort = intstr.FromInt32(1)
		}, "http:1 fd00::10:0:0:10 fd00::10:0:0:2 fd00::10:0:0:4 !fd00::10:0:0:3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, truncated := subsets(service(c.change), pods)
			if words(got) != c.want || truncated {
				t.Errorf("got  %s\nwant %s", words(got), c.want)
			}
		})
	}
}

// Ports with the same addresses are in one subset, whichever pods have them.
func TestPortsWithTheSameAddresses(t *testing.T) {
	both := service(func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports,
			v1.ServicePort{Name: "metrics", Port: 9, TargetPort: intstr.FromString("metrics"), Protocol: v1.ProtocolTCP},
			v1.ServicePort{Name: "more", Port: 10, TargetPort: intstr.FromString("metrics"), Protocol: v1.ProtocolTCP})
	})
	measured := pod("a", "10.0.0.2", true, 8080)
	ports := &measured.Spec.Containers[0].Ports
	*ports = append(*ports, v1.ContainerPort{Name: "metrics", ContainerPort: 9, Protocol: v1.ProtocolTCP})
	got, _ := subsets(both, []*v1.Pod{pod("b", "10.0.0.3", true, 8080), measured})
	again, _ := subsets(both, []*v1.Pod{measured, pod("b", "10.0.0.3", true, 8080)})
	if words(got) != words(again) || len(got) != 2 {
		t.Errorf("%s, and in another order %s", words(got), words(again))
	}
	for _, want := range []string{"http:8080 10.0.0.2 10.0.0.3", "metrics:9 more:9 10.0.0.2"} {
		var ports []string
		for i := range got {
			slices.SortFunc(got[i].Ports, func(a, b v1.EndpointPort) int { return strings.Compare(a.Name, b.Name) })
			ports = append(ports, words(got[i:i+1]))
		}
		if !slices.Contains(ports, want) {
			t.Errorf("subsets %q, want %q", ports, want)
		}
	}
}

func TestTruncation(t *testing.T) {
	var pods []*v1.Pod
	for i := range 1500 {
		pods = append(pods, pod(fmt.Sprint(i), fmt.Sprintf("10.1.%d.%d", i/250, i%250), i%2 == 0, 80))
	}
	got, truncated := subsets(service(nil), pods)
	if !truncated || len(got) != 1 || len(got[0].Addresses) != 750 || len(got[0].NotReadyAddresses) != 250 {
		t.Errorf("%d subsets, truncated %v", len(got), truncated)
	}
}

// Changes of pods wait for the batch period, and are then written together. A
// new Service does not wait.
func TestBatchPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, service(nil), pod("a", "10.0.0.2", false, 8080), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		c.Run(Descriptor(), "--endpoint-updates-batch-period=10s")
		c.Run(endpointslice.Descriptor(), "--endpointslice-updates-batch-period=10s")
		show := func() string {
			synctest.Wait()
			e, err := c.Fake.CoreV1().Endpoints("default").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			list, err := c.Fake.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 || len(list.Items[0].Endpoints) != 1 {
				return fmt.Sprint(list, err)
			}
			return fmt.Sprintf("%s ready=%v", words(e.Subsets), *list.Items[0].Endpoints[0].Conditions.Ready)
		}
		controllertest.Eventually(t, show, "http:8080 !10.0.0.2 ready=false")
		time.Sleep(time.Minute) // what the first list of pods caused is over
		c.SetReady("default", "a", time.Now())
		time.Sleep(9 * time.Second)
		if got := show(); got != "http:8080 !10.0.0.2 ready=false" {
			t.Errorf("before the end of the period: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := show(); got != "http:8080 10.0.0.2 ready=true" {
			t.Errorf("after the period: %s", got)
		}
	})
}

func TestFollowsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, service(nil), pod("a", "10.0.0.2", false, 8080), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.LabelTopologyZone: "z"}}})
		c.Run(Descriptor())
		synctest.Wait()
		c.Run(endpointslice.Descriptor())
		synctest.Wait()
		endpoints := func() string {
			e, err := c.Fake.CoreV1().Endpoints("default").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return words(e.Subsets) + " " + e.Labels["team"] + " " + e.Labels[labelManagedBy]
		}
		endpointSlices := func() string {
			list, err := c.Fake.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			var out []string
			for _, s := range list.Items {
				for _, e := range s.Endpoints {
					out = append(out, fmt.Sprintf("%s:%d ready=%v serving=%v terminating=%v zone=%s", e.Addresses[0], *s.Ports[0].Port, *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating, *e.Zone))
				}
				out = append(out, s.Labels[discovery.LabelServiceName])
			}
			return strings.Join(out, " ")
		}
		controllertest.Eventually(t, endpoints, "http:8080 !10.0.0.2 a endpoint-controller")
		controllertest.Eventually(t, endpointSlices, "10.0.0.2:8080 ready=false serving=false terminating=false zone=z web")
		c.SetReady("default", "a", time.Now())
		controllertest.Eventually(t, endpoints, "http:8080 10.0.0.2 a endpoint-controller")
		controllertest.Eventually(t, endpointSlices, "10.0.0.2:8080 ready=true serving=true terminating=false zone=z web")
		if err := c.Fake.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, endpoints, `endpoints "web" not found`)
	})
}
