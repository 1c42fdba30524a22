package apiserver

import (
	"slices"
	"testing"

	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/pki"
)

// TestOverlappingAuthorities checks that an authority of all clients is no
// authority of front proxies unless these are named.
func TestOverlappingAuthorities(t *testing.T) {
	d, err := pki.Open(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	clients, proxies := d.Cluster().PEM(), d.FrontProxy().PEM()
	both := slices.Concat(proxies, clients)
	for name, test := range map[string]struct {
		file      string
		names     []string
		authority []byte
		refused   bool
	}{
		"another authority": {"ca.crt", nil, proxies, false},
		"one of both":       {"ca.crt", nil, both, true},
		"the same":          {"ca.crt", nil, clients, true},
		"with names":        {"ca.crt", []string{"gate"}, both, false},
		"the cluster's own": {"", nil, clients, false},
		"not an authority":  {"ca.crt", nil, nil, false},
	} {
		o := &FrontProxyOptions{}
		o.ClientCAFile, o.AllowedNames = test.file, test.names
		if err := o.checkAuthorities(clients, test.authority); (err != nil) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
