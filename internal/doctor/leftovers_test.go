package doctor

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/coracle-io/coracle/internal/clusternames"
)

// A cluster without a record does not count as removed while one of its
// processes runs.
func TestLives(t *testing.T) {
	run, group := t.TempDir(), t.TempDir()
	if lives(run, group, filepath.Join(group, "absent")) {
		t.Error("an empty run directory and control group are taken for a cluster that runs")
	}
	pod := filepath.Join(group, "pods", "pod1")
	if err := os.MkdirAll(pod, 0o700); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]bool{"": false, "12\n13\n": true} {
		if err := os.WriteFile(filepath.Join(pod, "cgroup.procs"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lives(run, group); got != want {
			t.Errorf("with the processes %q: %t", content, got)
		}
	}
	l, err := net.Listen("unix", filepath.Join(run, "s"))
	if err != nil {
		t.Fatal(err)
	}
	if !lives(run) {
		t.Error("a process that listens in the run directory is not seen")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if lives(run) {
		t.Error("a closed socket is taken for a cluster that runs")
	}
}

// Rules of iptables belong to a cluster by the name of its proxy's table. Those of a
// proxy that is no cluster's are none's.
func TestRulesOfClusters(t *testing.T) {
	table := clusternames.ProxyTable("old")
	want := []Leftover{{"old", "rules of iptables of the proxy " + table, "coracle proxy --cleanup --nftables-table=" + table}}
	if got := leftRules([]string{"kube-proxy", table}, nil); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	want = []Leftover{{"old", "virtual servers of IPVS and the interface kube-ipvs0 of the proxy " + table, "coracle proxy --cleanup --nftables-table=" + table}}
	if got := leftServers([]string{"kube-proxy", table}, nil); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
