package apiserver

import (
	"slices"
	"strings"
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
		err := o.checkAuthorities(clients, test.authority)
		if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "overlapping certificates; --requestheader-allowed-names must be specified to ensure") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
