package apiserver

import (
	"fmt"
	"net"
	"testing"

	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/pki"
)

// TestFormerAddressesStayInTheCertificate checks that the certificate of a server whose
// machine has got another address is valid for the former one as well, the latest ones
// first, and that their number is bounded.
func TestFormerAddressesStayInTheCertificate(t *testing.T) {
	keysDir := t.TempDir()
	start := func(address string) string {
		t.Helper()
		keys, err := pki.Open(keysDir, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		o := NewOptions()
		o.Services.ClusterIPRange, o.Serving.AdvertiseAddress = "10.96.0.0/16", net.ParseIP(address)
		if _, err := (&Server{options: o, keys: keys}).servingCertificate(); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(ServingAddresses(keys))
	}
	const always = "[127.0.0.1 ::1 10.96.0.1 "
	for _, step := range []struct{ address, want string }{
		{"192.0.2.1", "192.0.2.1]"},
		{"192.0.2.2", "192.0.2.2 192.0.2.1]"},
		{"2001:db8::3", "2001:db8::3 192.0.2.2 192.0.2.1]"},
		{"192.0.2.1", "2001:db8::3 192.0.2.2 192.0.2.1]"}, // it is valid for that, and stays
	} {
		if got := start(step.address); got != always+step.want {
			t.Errorf("at %s the certificate is valid for %s, want %s", step.address, got, always+step.want)
		}
	}
	for last := range 2 * maxFormer {
		start(fmt.Sprintf("198.51.100.%d", last+1))
	}
	const want = always + "198.51.100.16 198.51.100.15 198.51.100.14 198.51.100.13 198.51.100.12 198.51.100.11 198.51.100.10 198.51.100.9 198.51.100.8]"
	if got := start("198.51.100.16"); got != want {
		t.Errorf("after many addresses, the certificate is valid for %s, want %s", got, want)
	}
}
