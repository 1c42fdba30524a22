package addresspool

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func rangeOf(from, to string) Range { return Range{netip.MustParseAddr(from), netip.MustParseAddr(to)} }

func TestParse(t *testing.T) {
	got, errs := Parse(map[string]string{
		"office": `
addresses: [192.0.2.240-192.0.2.250, "2001:db8::/120", 198.51.100.7]
`,
		"lab": `{"addresses": ["203.0.113.0/24", "192.0.2.0/31"], "autoAssign": false, "avoidBuggyIPs": true, "namespaces": ["web", "api"]}`,
	}, netip.MustParsePrefix("10.96.0.0/16"))
	want := Pools{
		{Name: "lab", Ranges: []Range{rangeOf("203.0.113.1", "203.0.113.254"), rangeOf("192.0.2.0", "192.0.2.1")}, AvoidBuggyIPs: true, Namespaces: []string{"web", "api"}},
		{Name: "office", Ranges: []Range{rangeOf("192.0.2.240", "192.0.2.250"), rangeOf("2001:db8::", "2001:db8::ff"), rangeOf("198.51.100.7", "198.51.100.7")}, AutoAssign: true},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || len(errs) > 0 {
		t.Errorf("%v (-want +got)\n%s", errs, diff)
	}
	if none, errs := Parse(nil); len(none)+len(errs) > 0 {
		t.Errorf("nothing is configured: %v, %v", none, errs)
	}
}

// Every wrong field is named, and nothing is taken from what has an error.
func TestParseNamesEveryWrongField(t *testing.T) {
	many := `["` + strings.Repeat(`192.0.2.1","`, mostRanges) + `192.0.2.1"]`
	for name, c := range map[string]struct {
		data map[string]string
		want []string
	}{
		"no YAML":         {map[string]string{"a": "{"}, []string{"data[a]"}},
		"a list":          {map[string]string{"a": "[192.0.2.1]"}, []string{"data[a]"}},
		"twice":           {map[string]string{"a": "addresses: [192.0.2.1]\naddresses: [192.0.2.2]"}, []string{"data[a]"}},
		"empty":           {map[string]string{"a": ""}, []string{"data[a].addresses"}},
		"no addresses":    {map[string]string{"a": "autoAssign: true"}, []string{"data[a].addresses"}},
		"no list":         {map[string]string{"a": "addresses: 192.0.2.1"}, []string{"data[a].addresses"}},
		"several":         {map[string]string{"a": "addresses: []\nautoAssign: maybe\nnamespaces: [Web]\nmode: bgp\navoidBuggyIPs: null"}, []string{"data[a].autoAssign", "data[a].avoidBuggyIPs", "data[a].mode", "data[a].namespaces[0]", "data[a].addresses"}},
		"no namespace":    {map[string]string{"a": "addresses: [192.0.2.1]\nnamespaces: []"}, []string{"data[a].namespaces"}},
		"of two pools":    {map[string]string{"a": "addresses: [x]", "b": "addresses: [192.0.2.1, z]"}, []string{"data[a].addresses[0]", "data[b].addresses[1]"}},
		"inside of it":    {map[string]string{"a": "addresses: [192.0.2.1/24]"}, []string{"data[a].addresses[0]"}},
		"backwards":       {map[string]string{"a": "addresses: [192.0.2.2-192.0.2.1]"}, []string{"data[a].addresses[0]"}},
		"two families":    {map[string]string{"a": `addresses: ["192.0.2.2-2001:db8::1"]`}, []string{"data[a].addresses[0]"}},
		"a zone":          {map[string]string{"a": `addresses: ["2001:db8::1%eth0"]`}, []string{"data[a].addresses[0]"}},
		"no machine's":    {map[string]string{"a": `addresses: [0.0.0.0/0, 127.0.0.1, 224.0.0.1, 255.255.255.255, "fe80::1", "::1", "::ffff:192.0.2.1", 169.254.1.1]`}, []string{"data[a].addresses[0]", "data[a].addresses[1]", "data[a].addresses[2]", "data[a].addresses[3]", "data[a].addresses[4]", "data[a].addresses[5]", "data[a].addresses[6]", "data[a].addresses[7]"}},
		"one in the next": {map[string]string{"a": "addresses: [192.0.2.0/24]", "b": "addresses: [198.51.100.1, 192.0.2.7]"}, []string{"data[b].addresses[1]"}},
		"the other way":   {map[string]string{"a": "addresses: [192.0.2.7]", "b": "addresses: [192.0.2.0/24, 192.0.2.200]"}, []string{"data[b].addresses[0]", "data[b].addresses[1]"}},
		"of the cluster":  {map[string]string{"a": "addresses: [10.0.0.0/8]"}, []string{"data[a].addresses[0]"}},
		"too many ranges": {map[string]string{"a": `{"addresses": ` + many + `}`}, []string{"data[a].addresses"}},
	} {
		pools, errs := Parse(c.data, netip.MustParsePrefix("10.96.0.0/16"))
		var got []string
		for _, err := range errs {
			got = append(got, err.Field)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || pools != nil {
			t.Errorf("%s: %v, %v (-want +got)\n%s", name, pools, errs, diff)
		}
	}
	many64 := map[string]string{}
	for i := range mostPools + 1 {
		many64[fmt.Sprint("pool-", i)] = ""
	}
	if _, errs := Parse(many64); len(errs) != 1 {
		t.Errorf("too many pools: %v", errs)
	}
}

func TestPools(t *testing.T) {
	pools, errs := Parse(map[string]string{
		"edges": `{"addresses": ["192.0.2.0-192.0.3.255"], "avoidBuggyIPs": true, "namespaces": ["web"]}`,
		"six":   `{"addresses": ["2001:db8::/64"]}`,
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for address, want := range map[string]string{
		"192.0.2.0": "", "192.0.2.1": "edges", "192.0.2.255": "", "192.0.3.0": "", "192.0.3.254": "edges", "192.0.4.1": "", "2001:db8::": "six", "2001:db8::ffff:ffff:ffff:ffff": "six", "2001:db8:0:1::": "", "::ffff:192.0.2.1": "", "2001:db8::1%eth0": "",
	} {
		got := ""
		if pool := pools.Of(netip.MustParseAddr(address)); pool != nil {
			got = pool.Name
		}
		if got != want {
			t.Errorf("%s is in pool %q, want %q", address, got, want)
		}
	}
	if edges := pools.Named("edges"); !edges.Admits("web") || edges.Admits("api") || !pools.Named("six").Admits("api") || pools.Named("seven") != nil {
		t.Error("the wrong namespaces, or pools")
	}
}

func TestServices(t *testing.T) {
	s := &v1.Service{Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer}}
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{
		{IP: "192.0.2.1"}, {IP: "192.0.2.2", IPMode: new(v1.LoadBalancerIPModeProxy)}, {IP: "2001:db8::1", IPMode: new(v1.LoadBalancerIPModeVIP)}, {Hostname: "web.example"},
	}
	if got := fmt.Sprint(Ingress(s)); got != "[192.0.2.1 2001:db8::1]" {
		t.Errorf("addresses %s", got)
	}
	own, other, plain := s.DeepCopy(), s.DeepCopy(), s.DeepCopy()
	own.Spec.LoadBalancerClass, other.Spec.LoadBalancerClass, plain.Spec.Type = new(Class), new("example.com/lb"), v1.ServiceTypeNodePort
	if !IsBalanced(s) || !IsBalanced(own) || IsBalanced(other) || IsBalanced(plain) || IsBalanced(nil) {
		t.Error("the wrong Services")
	}
	config := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}}
	if !IsConfig(config) || IsConfig(&v1.ConfigMap{}) || IsConfig(nil) {
		t.Error("the wrong ConfigMap")
	}
}
