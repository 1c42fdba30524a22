package conntrack

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// TestSettings checks that settings are raised, never lowered, and that what
// the kernel does not have or does not let be changed keeps the others from nothing.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	files := kernelFiles{dir, filepath.Join(dir, "hashsize")}
	for name, value := range map[string]string{
		"nf_conntrack_max": "65536\n", "hashsize": "16384\n", "nf_conntrack_tcp_timeout_established": "432000\n", "nf_conntrack_tcp_timeout_close_wait": "60\n",
		"nf_conntrack_tcp_be_liberal": "0\n", "nf_conntrack_udp_timeout": "30\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, c Settings, want string) {
		t.Helper()
		c.apply(klog.Background(), files)
		have := map[string]string{}
		for _, name := range []string{
			"hashsize", "nf_conntrack_max", "nf_conntrack_tcp_be_liberal", "nf_conntrack_tcp_timeout_close_wait", "nf_conntrack_tcp_timeout_established", "nf_conntrack_udp_timeout",
		} {
			raw, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			have[name] = strings.TrimSpace(string(raw))
		}
		var got []string
		for _, name := range slices.Sorted(maps.Keys(have)) {
			got = append(got, have[name])
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %s, want %s", when, text, want)
		}
	}
	check("nothing", Settings{}, "16384 65536 0 60 432000 30")
	all := Settings{Max: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour, TCPBeLiberal: true, UDP: time.Minute, UDPStream: time.Hour}
	check("all", all, "32768 131072 1 3600 432000 60")
	check("less", Settings{Max: 1000, TCPCloseWait: time.Minute}, "32768 131072 1 3600 432000 60")
}
