package endpointslice

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// Endpoints have hints for their zone, and for their node if the Service asks for it. They
// lose them with the Service's preference.
func TestHintsOfATrafficDistribution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: v1.ServiceSpec{
				ClusterIP: "10.0.0.1", IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
				Selector: map[string]string{"app": "web"}, Ports: []v1.ServicePort{{Port: 80}},
			},
		}
		objects := []runtime.Object{service}
		for i, zone := range []string{"east", "west"} {
			ip := fmt.Sprintf("10.1.0.%d", i+1)
			objects = append(objects,
				&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + zone, Labels: map[string]string{v1.LabelTopologyZone: zone}}},
				&v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-" + zone, UID: types.UID(zone), Labels: map[string]string{"app": "web"}},
					Spec:       v1.PodSpec{NodeName: "node-" + zone, Containers: []v1.Container{{Name: "main"}}},
					Status: v1.PodStatus{
						Phase: v1.PodRunning, PodIP: ip, PodIPs: []v1.PodIP{{IP: ip}},
						Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
					},
				})
		}
		c := controllertest.New(t, objects...)
		c.Run(Descriptor())
		hints := func() string {
			list, err := c.Fake.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for i := range list.Items {
				for _, e := range list.Items[i].Endpoints {
					text := e.Addresses[0]
					if e.Hints != nil {
						for _, zone := range e.Hints.ForZones {
							text += " zone " + zone.Name
						}
						for _, node := range e.Hints.ForNodes {
							text += " node " + node.Name
						}
					}
					all = append(all, text)
				}
			}
			sort.Strings(all)
			return strings.Join(all, ", ")
		}
		for _, step := range []struct{ distribution, want string }{
			{"", "10.1.0.1, 10.1.0.2"},
			{v1.ServiceTrafficDistributionPreferClose, "10.1.0.1 zone east, 10.1.0.2 zone west"},
			{v1.ServiceTrafficDistributionPreferSameNode, "10.1.0.1 zone east node node-east, 10.1.0.2 zone west node node-west"},
			{v1.ServiceTrafficDistributionPreferSameZone, "10.1.0.1 zone east, 10.1.0.2 zone west"},
			{"", "10.1.0.1, 10.1.0.2"},
		} {
			current, err := c.Fake.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			current.Spec.TrafficDistribution = nil
			if step.distribution != "" {
				current.Spec.TrafficDistribution = &step.distribution
			}
			if _, err := c.Fake.CoreV1().Services("default").Update(t.Context(), current, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			controllertest.Eventually(t, hints, step.want)
		}
	})
}
