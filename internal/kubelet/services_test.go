package kubelet

import (
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
)

// Containers get the variables of their namespace's Services and of kubernetes. The
// kubelet keeps of a Service what the variables show.
func TestVariablesOfServices(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		const large = 10_000
		text := strings.Repeat("x", large)
		for _, name := range []types.NamespacedName{
			{Namespace: "default", Name: "kubernetes"}, {Namespace: "shop", Name: "web-api"}, {Namespace: "shop", Name: "no-address"}, {Namespace: "other", Name: "db"},
		} {
			s := &v1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, ResourceVersion: "1", Labels: map[string]string{"a": text}, Annotations: map[string]string{"a": text}},
				Spec: v1.ServiceSpec{
					ClusterIP: "10.96.0.7", Selector: map[string]string{"app": text}, ExternalIPs: []string{"192.0.2.7"},
					Ports: []v1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}, {Name: "dns", Protocol: v1.ProtocolUDP, Port: 53}},
				},
			}
			if name.Name == "no-address" {
				s.Spec.ClusterIP = v1.ClusterIPNone
			}
			if _, err := b.api.CoreV1().Services(name.Namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		b.create(pod("web", func(p *v1.Pod) { p.Namespace = "shop" }))
		b.after(time.Second)
		got := map[string]string{}
		for _, e := range b.runtime.Config(b.live("main")).GetEnvs() {
			got[e.GetKey()] = string(e.GetValue())
		}
		want := map[string]string{}
		for _, prefix := range []string{"KUBERNETES", "WEB_API"} {
			for name, value := range map[string]string{
				"SERVICE_HOST": "10.96.0.7", "SERVICE_PORT": "80", "SERVICE_PORT_HTTP": "80", "SERVICE_PORT_DNS": "53", "PORT": "tcp://10.96.0.7:80",
				"PORT_80_TCP": "tcp://10.96.0.7:80", "PORT_80_TCP_PROTO": "tcp", "PORT_80_TCP_PORT": "80", "PORT_80_TCP_ADDR": "10.96.0.7",
				"PORT_53_UDP": "udp://10.96.0.7:53", "PORT_53_UDP_PROTO": "udp", "PORT_53_UDP_PORT": "53", "PORT_53_UDP_ADDR": "10.96.0.7",
			} {
				want[prefix+"_"+name] = value
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("the container has %v, want %v", got, want)
		}
		kept := b.kubelet.services.informer.GetStore().List()
		for _, obj := range kept {
			if s := obj.(*v1.Service); s.Size() >= 200 || s.Spec.ClusterIP == v1.ClusterIPNone && s.Spec.Ports != nil {
				t.Errorf("the kubelet keeps %d bytes: %v", s.Size(), s)
			}
		}
		if len(kept) != 4 {
			t.Errorf("the kubelet knows %d Services, want 4", len(kept))
		}
	})
	other := cache.DeletedFinalStateUnknown{Key: "x/one"}
	if kept, err := reduceService(other); err != nil || kept != other {
		t.Errorf("another object: %v, %v", kept, err)
	}
}
