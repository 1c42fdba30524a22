package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/stats"
)

// busyStats are the stats of the machine and of a sandbox with two interfaces.
type busyStats struct{ noStats }

func (busyStats) Groups(context.Context) (stats.Machine, []stats.Group, error) {
	return stats.Machine{}, []stats.Group{
		{ID: "/", Disks: []cgroup.Disk{{Device: "/dev/sda", ReadBytes: 4096, WrittenBytes: 8192, Reads: 1, Writes: 2}}},
		{ID: "/pod", Name: "sandbox", Pod: "web", Namespace: "default", Interfaces: []stats.Interface{
			{Name: "eth0", ReceivedBytes: 11, Packets: &cgroup.Packets{Received: 5, ReceivedDropped: 6, Sent: 7, SentDropped: 8}},
			{Name: "net1", ReceivedBytes: 12},
		}},
	}, nil
}

// Dashboards show the disks and the packets of pods. Packets that are not known are
// left out, and not reported as 0.
func TestDisksAndPackets(t *testing.T) {
	s := newTestServer(t)
	s.config.Stats = busyStats{}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		for _, name := range []string{"container_fs_", "container_network_receive_bytes", "container_network_receive_packets", "container_network_transmit_packets"} {
			if strings.HasPrefix(line, name) {
				got = append(got, strings.TrimSpace(line))
			}
		}
	}
	const root, pod = `{container="",device="/dev/sda",id="/",image="",name="",namespace="",pod=""} `, `name="sandbox",namespace="default",pod="web"} `
	const eth0 = `{container="",id="/pod",image="",interface="eth0",` + pod
	want := []string{
		"container_fs_reads_bytes_total" + root + "4096",
		"container_fs_reads_total" + root + "1",
		"container_fs_writes_bytes_total" + root + "8192",
		"container_fs_writes_total" + root + "2",
		"container_network_receive_bytes_total" + eth0 + "11",
		`container_network_receive_bytes_total{container="",id="/pod",image="",interface="net1",` + pod + "12",
		"container_network_receive_packets_dropped_total" + eth0 + "6",
		"container_network_receive_packets_total" + eth0 + "5",
		"container_network_transmit_packets_dropped_total" + eth0 + "8",
		"container_network_transmit_packets_total" + eth0 + "7",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// manyStats are the stats of very many containers.
type manyStats struct{ noStats }

func (manyStats) Groups(context.Context) (stats.Machine, []stats.Group, error) {
	return stats.Machine{}, slices.Repeat([]stats.Group{{ID: "/pod/container", Container: "main", Pod: strings.Repeat("x", 253), Namespace: "default"}}, 200), nil
}

// largestWrite is an answer that knows its largest write.
type largestWrite struct {
	*httptest.ResponseRecorder
	bytes int
}

func (l *largestWrite) Write(p []byte) (int, error) {
	l.bytes = max(l.bytes, len(p))
	return l.ResponseRecorder.Write(p)
}

// The metrics of very many containers are not in memory at once.
func TestMetricsAreWrittenInBlocks(t *testing.T) {
	s := newTestServer(t)
	s.config.Stats = manyStats{}
	w := &largestWrite{ResponseRecorder: httptest.NewRecorder()}
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
	if n := w.Body.Len(); n < 10*textBlock || w.bytes > 2*textBlock {
		t.Errorf("of %d bytes, %d are written at once", n, w.bytes)
	}
	if n := strings.Count(w.Body.String(), "\ncontainer_memory_rss{"); n != 200 {
		t.Errorf("%d containers have container_memory_rss, want 200", n)
	}
}

// Two pods of one name, one after the other, are told apart.
func TestProbesOfReplacedPods(t *testing.T) {
	s := newTestServer(t)
	s.config.ProbeCounts = func() map[probe.Count]int {
		return map[probe.Count]int{
			{Namespace: "default", Pod: "web", UID: "old", Container: "main", Probe: "Liveness", Result: "failed"}: 2,
			{Namespace: "default", Pod: "web", UID: "new", Container: "main", Probe: "Liveness", Result: "failed"}: 1,
		}
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/probes", nil))
	for uid, n := range map[string]string{"old": "2", "new": "1"} {
		if line := `prober_probe_total{container="main",namespace="default",pod="web",pod_uid="` + uid + `",probe_type="Liveness",result="failed"} ` + n; !strings.Contains(w.Body.String(), "\n"+line+"\n") {
			t.Errorf("missing: %s\nthere is:\n%s", line, w.Body)
		}
	}
}
