package host

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/coracle-io/coracle/cluster"
)

func TestPortsOfACluster(t *testing.T) {
	o := cluster.Options{
		Ports:         cluster.Ports{Secure: 6443, Manager: 10257, Scheduler: 10259, Kubelet: 10250, KubeletHealthz: 10248, ProxyHealthz: 10256, ProxyMetrics: 10249, DNS: 10053, DNSMetrics: 9153},
		APIServerArgs: []string{"secure-port=7443", "v=2"}, ControllerManagerArgs: []string{"--secure-port=0"}, SchedulerArgs: []string{"secure-port=nonsense"},
		KubeletArgs: []string{"port=7250"}, ProxyArgs: []string{"healthz-bind-address=[::]:7256", "metrics-bind-address="},
	}
	want := cluster.Ports{Secure: 7443, Kubelet: 7250, KubeletHealthz: 10248, ProxyHealthz: 7256, DNS: 10053, DNSMetrics: 9153}
	if got := portsOf(o); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if o.Ports.Secure != 6443 {
		t.Error("the options were changed")
	}
}

// TestNeighbourPorts checks that records name the ports of other clusters, of those
// without a node the control plane's alone.
func TestNeighbourPorts(t *testing.T) {
	r := NewRegistry(filepath.Join(t.TempDir(), "coracle"))
	for i, name := range []string{"own", "other", "plane"} {
		rec := Record{Nodes: 2 - i, Occupied: Occupied{Name: name, DataDir: "/" + name, Ports: DefaultsOf(name, i).Ports}}
		if err := r.Put(rec); err != nil {
			t.Fatal(err)
		}
	}
	files(t, r.Folder(), "damaged.json")
	got := r.NeighbourPorts("own")
	slices.Sort(got)
	if want := []int{6444, 6445, 9173, 10073, 10268, 10269, 10270, 10276, 10277, 10279, 10297, 10299}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := NewRegistry(filepath.Join(t.TempDir(), "none")).NeighbourPorts("own"); len(got) != 0 {
		t.Errorf("without records: %v", got)
	}
}
