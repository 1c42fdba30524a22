package nodejoin

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// What the control plane publishes is what nodes read, also after a change, and is
// not written again without one.
func TestNetwork(t *testing.T) {
	client := fake.NewClientset()
	if n, err := ReadNetwork(t.Context(), client); err == nil || !strings.Contains(err.Error(), "has no ConfigMap kube-system/coracle-network") {
		t.Errorf("%+v, %v", n, err)
	}
	first := Network{ServiceCIDR: "10.96.0.0/16", ClusterCIDR: "10.244.0.0/16,fd00::/48", NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 64}
	second := first
	second.NodeMaskSizeIPv4, second.NodeCIDR, second.Gateway = 25, "10.212.0.0/24,fd00:10:212::/64", "alpha"
	second.Pods, second.NodePorts, second.Etcd = "none", "29500-29999", "https://192.0.2.1:2379,https://192.0.2.2:2379"
	second.Encryption = WireGuard
	for i, step := range []struct {
		network Network
		writes  int
	}{{first, 1}, {first, 0}, {second, 1}, {second, 0}, {first, 1}} {
		client.ClearActions()
		if err := step.network.Publish(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		writes := 0
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" {
				writes++
			}
		}
		if got, err := ReadNetwork(t.Context(), client); err != nil || got != step.network || writes != step.writes {
			t.Errorf("step %d: %+v after %d writes, %v; want %+v after %d", i, got, writes, err, step.network, step.writes)
		}
	}
}

func TestNetworkThatCannotBe(t *testing.T) {
	for change, want := range map[string]string{"clusterCIDR=all": "no '/'", "serviceCIDR=": "no '/'", "nodeCIDR=some": "no '/'", "nodeCIDRMaskSizeIPv4=x": "nodeCIDRMaskSizeIPv4: want a number", "encryption=rot13": "use the version of the control plane"} {
		client := fake.NewClientset()
		if err := (Network{ServiceCIDR: "10.96.0.0/16", ClusterCIDR: "10.244.0.0/16"}).Publish(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		written, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), NetworkName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		key, value, _ := strings.Cut(change, "=")
		written.Data[key] = value
		if _, err := client.CoreV1().ConfigMaps("kube-system").Update(t.Context(), written, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if n, err := ReadNetwork(t.Context(), client); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", change, n, err)
		}
	}
}
