package dns

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/coracle-io/coracle/internal/client"
)

func TestSettings(t *testing.T) {
	s, err := parseSettings(map[string]string{
		stubDomains:         `{"Example.com": ["192.0.2.53", "192.0.2.54:5353"], "deep.example.com": ["fd00::53"], "10.in-addr.arpa.": ["192.0.2.55"]}`,
		upstreamNameservers: `["192.0.2.1", "[fd00::1]:53"]`,
	}, "cluster.local.", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"example.com.":            {"192.0.2.53:53", "192.0.2.54:5353"},
		"www.example.com.":        {"192.0.2.53:53", "192.0.2.54:5353"},
		"a.b.deep.example.com.":   {"[fd00::53]:53"},
		"notexample.com.":         {"192.0.2.1:53", "[fd00::1]:53"},
		"com.":                    {"192.0.2.1:53", "[fd00::1]:53"},
		".":                       {"192.0.2.1:53", "[fd00::1]:53"},
		"4.3.2.10.in-addr.arpa.":  {"192.0.2.55:53"},
		"4.3.2.110.in-addr.arpa.": {"192.0.2.1:53", "[fd00::1]:53"},
	} {
		if got := s.resolvers(name); !slices.Equal(got, want) {
			t.Errorf("%s is asked of %v, want %v", name, got, want)
		}
	}
	if got := (&settings{}).resolvers("example.com."); got != nil {
		t.Errorf("without settings, resolvers %v, want the host's", got)
	}
}

func TestBadSettings(t *testing.T) {
	_, err := parseSettings(map[string]string{
		stubDomains: `{"example.com": ["192.0.2.53", "ns.example.com", "192.0.2.53:0"], "sub.cluster.local": ["192.0.2.53"], "cluster.local": ["192.0.2.53"],
			"": ["192.0.2.53"], ".": ["192.0.2.53"], "none.example.com": [], "own.example.com": ["10.96.0.10"]}`,
		upstreamNameservers: `["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]`,
		"federations":       "{}",
	}, "cluster.local.", []string{"10.96.0.10:53"})
	for _, want := range []string{
		`stubDomains[example.com][1]: "ns.example.com" is not an address`, `stubDomains[example.com][2]: "192.0.2.53:0" is not an address`,
		"stubDomains[sub.cluster.local]: the cluster itself", "stubDomains[cluster.local]: the cluster itself",
		"stubDomains[]: not a domain", "stubDomains[.]: not a domain", "stubDomains[none.example.com]: names no server",
		"stubDomains[own.example.com][0]: 10.96.0.10 is the cluster's own DNS", "upstreamNameservers: 4 servers, want at most 3", "federations: unknown",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no error %q in\n%v", want, err)
		}
	}
	for key, text := range map[string]string{stubDomains: "example.com: 192.0.2.53", upstreamNameservers: `"192.0.2.53"`} {
		if _, err := parseSettings(map[string]string{key: text}, "cluster.local.", nil); err == nil || !strings.HasPrefix(err.Error(), key+": want ") {
			t.Errorf("%s: %s: error %v", key, text, err)
		}
	}
}

// configMaps returns a client that watches the ConfigMaps of a source.
func configMaps(source *cachetesting.FakeControllerSource) *client.Client {
	return &client.Client{Watch: func(schema.GroupVersionResource, string, fields.Selector) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(source, &v1.ConfigMap{}, 0, nil)
	}}
}

func TestSettingsFollowTheConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := cachetesting.NewFakeControllerSource()
		s := &Server{config: Config{Client: configMaps(source)}, forward: newForwarder("/nonexistent", "", nil), zone: &Zone{Domain: "cluster.local."}}
		configMap := func(nameservers string) *v1.ConfigMap {
			return &v1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: serviceNamespace, Name: serviceName},
				Data:       map[string]string{upstreamNameservers: nameservers},
			}
		}
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := s.forward.resolvers("example.com."); !slices.Equal(got, want) {
				t.Errorf("%s: resolvers %v, want %v", when, got, want)
			}
		}
		source.Add(configMap(`["192.0.2.1"]`))
		if err := s.followSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("at the start", "192.0.2.1:53")
		key := question{name: "example.com."}
		s.forward.cache.put(key, message(t, 0, "--", soa))
		source.Modify(configMap(`["192.0.2.2"]`))
		expect("after a change", "192.0.2.2:53")
		if s.forward.cache.get(key) != nil {
			t.Error("an answer of a resolver of before is cached")
		}
		source.Modify(configMap(`["nonsense"]`))
		expect("after a bad change", "192.0.2.2:53")
		source.Delete(configMap(""))
		expect("without the ConfigMap")
		source.Shutdown()
	})
}
