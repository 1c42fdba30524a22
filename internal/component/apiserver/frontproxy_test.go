package apiserver

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/feature"
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

// With RemoteRequestHeaderUID off, headers name no UIDs, and other names of these headers
// than the default are refused.
func TestUIDHeaders(t *testing.T) {
	for _, test := range []struct {
		gates   []string
		headers []string
		refused string
		trusted int
	}{
		{nil, []string{"X-Remote-Uid", "X-Other"}, "", 2},
		{nil, []string{"X-Other"}, "without specifying the standard X-Remote-Uid header", 1},
		{[]string{"RemoteRequestHeaderUID=false"}, []string{"X-Remote-Uid"}, "", 0},
		{[]string{"RemoteRequestHeaderUID=false"}, nil, "", 0},
		{[]string{"RemoteRequestHeaderUID=false"}, []string{"X-Remote-Uid", "X-Other"}, `--requestheader-uid-headers requires the "RemoteRequestHeaderUID" feature to be enabled`, 0},
	} {
		gates, err := feature.Parse(test.gates)
		if err != nil {
			t.Fatal(err)
		}
		o := newFrontProxyOptions()
		o.UIDHeaders = test.headers
		errs := o.validate(gates)
		if len(errs) > 0 != (test.refused != "") || len(errs) > 0 && !strings.Contains(errs[0].Error(), test.refused) {
			t.Errorf("%v, headers %v: %v", test.gates, test.headers, errs)
		}
		if got := o.trusting(trusted{}, gates).UIDHeaders; len(got) != test.trusted {
			t.Errorf("%v, headers %v: %v are trusted", test.gates, test.headers, got)
		}
	}
}
