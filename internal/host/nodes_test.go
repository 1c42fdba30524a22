package host

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// withNodes returns the settings of a cluster with several nodes.
func withNodes(dir string, count int) Settings {
	s := keptSettings(dir)
	s.Nodes = count
	return s
}

// Nodes that come and go have numbers that were free, the highest as long as there is
// one, and what they leave is counted for the removal of the cluster.
func TestNodesComeAndGo(t *testing.T) {
	s := withNodes("/data", 3)
	check := func(what string, numbers ...int) {
		t.Helper()
		if got := s.NodeNumbers(); !slices.Equal(got, numbers) || s.Nodes != len(numbers) {
			t.Errorf("%s: nodes %v, and %d of them; want %v", what, got, s.Nodes, numbers)
		}
	}
	check("at first", 1, 2, 3)
	s.SetNodeState(2, cluster.NodeLeaving)
	check("while one leaves", 1, 3)
	if number, state, ok := s.FindNode("host-2"); number != 2 || state != cluster.NodeLeaving || !ok {
		t.Errorf("the one that leaves is %d, %s, %v", number, state, ok)
	}
	s.SetNodeState(2, cluster.NodeRemoved)
	s.SetNodeState(2, cluster.NodeRemoved)
	check("when it has left", 1, 3)
	if _, _, ok := s.FindNode("host-2"); ok {
		t.Error("one that has left is found")
	}
	if number := s.AddNode(cluster.EachNode{Name: "extra", State: cluster.NodeAdding}); number != 4 {
		t.Errorf("the new one is %d, want 4: the order of the nodes is that in which they came", number)
	}
	check("with a new one", 1, 3, 4)
	if names := s.ClusterOptions().NodeNames(); !slices.Equal(names, []string{"host", "host-3", "extra"}) {
		t.Errorf("they are called %v", names)
	}
	s.SetNodeState(4, cluster.NodePresent)
	check("which is ready", 1, 3, 4)
	for _, number := range []int{3, 4} {
		s.SetNodeState(number, cluster.NodeRemoved)
	}
	check("when the first is alone", 1)
	if occupied := s.Occupied(); !s.Several() || occupied.Node.Count != 4 || occupied.Node.Each != nil {
		t.Errorf("several %v, the record has %+v", s.Several(), occupied.Node)
	}
	if number := s.AddNode(cluster.EachNode{}); number != 2 {
		t.Errorf("the next one is %d", number)
	}
	check("with another one", 1, 2)
	for range 48 {
		s.AddNode(cluster.EachNode{})
	}
	s.SetNodeState(7, cluster.NodeRemoved)
	if number := s.AddNode(cluster.EachNode{}); number != 7 || len(s.NodeNumbers()) != 50 {
		t.Errorf("the last one is %d of %d", number, len(s.NodeNumbers()))
	}
}

// A change of one copy of settings does not reach another one.
func TestNodesOfCopies(t *testing.T) {
	s := withNodes("/data", 3)
	s.AddNode(cluster.EachNode{Labels: map[string]string{"a": "b"}})
	other := s
	other.SetNodeState(4, cluster.NodeLeaving)
	if s.Options.Node.Each[3].State != cluster.NodePresent || s.Nodes != 4 || other.Nodes != 3 {
		t.Errorf("%+v, and the copy %+v", s.Options.Node.Each, other.Options.Node.Each)
	}
}

// Few addresses are used again.
func TestNumbersOfASmallRange(t *testing.T) {
	for cidr, want := range map[string]int{"10.9.0.0/29": 3, "fd00::/64,10.9.0.0/29": 3, "10.9.0.0/24,fd00::/125": 3, "10.9.0.0/24,fd00::/64": 7, "10.9.0.0/8": 7} {
		s := withNodes("/data", 6)
		s.Options.Node.CIDR = cidr
		s.SetNodeState(3, cluster.NodeRemoved)
		if number := s.AddNode(cluster.EachNode{}); number != want {
			t.Errorf("%s: the new one is %d, want %d: the first with a free address", cidr, number, want)
		}
	}
}

func TestSettingsWithNodesAreKept(t *testing.T) {
	s := withNodes(t.TempDir(), 3)
	s.AddNode(cluster.EachNode{Name: "x", Labels: map[string]string{"a": "b"}, Taints: []string{"c:NoSchedule"}, KubeletArgs: []string{"max-pods=3"}, State: cluster.NodeAdding})
	s.SetNodeState(2, cluster.NodeRemoved)
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	read, err := ReadSettings(s.Options.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, read); diff != "" {
		t.Errorf("written and read again they differ:\n%s", diff)
	}
	s.Options.Node.Each = make([]cluster.EachNode, 51)
	if err := s.Write(); err == nil || !strings.Contains(err.Error(), "options.node.each: 51: want up to 50 nodes") {
		t.Error(err)
	}
}

// What a list says of nodes that are there is shown, and only their names are refused.
func TestChangesOfNodes(t *testing.T) {
	for _, tt := range []struct {
		what   string
		nodes  int
		listed []cluster.EachNode
		want   []string // with ! in front of what is refused
		each   []cluster.EachNode
	}{
		{"a number", 3, nil, nil, nil},
		{"one more", 4, nil, []string{"--nodes: 3 → 4"}, nil},
		{"fewer", 2, nil, []string{"!--nodes: 3 → 2"}, nil},
		{"a list of nothing", 3, make([]cluster.EachNode, 3), nil, nil},
		{"labels", 3, []cluster.EachNode{{}, {Labels: map[string]string{"b": "2", "a": "1"}, Taints: []string{"c:NoExecute"}}, {}},
			[]string{"nodes[1]: (nothing) → labels a=1,b=2; taints c:NoExecute"}, []cluster.EachNode{{}, {Labels: map[string]string{"b": "2", "a": "1"}, Taints: []string{"c:NoExecute"}}}},
		{"the names that they have", 3, []cluster.EachNode{{}, {Name: "host-2"}, {Name: "host-3"}}, nil, nil},
		{"another name", 3, []cluster.EachNode{{}, {Name: "beta"}, {}}, []string{"!nodes[1]: (nothing) → name beta"}, []cluster.EachNode{{}, {Name: "beta"}}},
		{"a new one", 4, []cluster.EachNode{{}, {}, {}, {Name: "beta"}}, []string{"--nodes: 3 → 4"}, []cluster.EachNode{{}, {}, {}, {Name: "beta"}}},
	} {
		kept := withNodes("/data", 3)
		given := Settings{Nodes: tt.nodes, Options: cluster.Options{Node: &cluster.NodeOptions{Each: tt.listed}}}
		now, changes := kept.With(given, []string{"nodes"})
		got := textsOfChanges(changes)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, diff)
		}
		if diff := cmp.Diff(tt.each, now.Options.Node.Each); diff != "" {
			t.Errorf("%s: nodes (-want +got):\n%s", tt.what, diff)
		}
		if diff := cmp.Diff(withNodes("/data", 3), kept); diff != "" {
			t.Errorf("%s: the kept settings themselves changed:\n%s", tt.what, diff)
		}
	}
}

// A list may name nodes as they are called anyway, also when it is given again.
func TestListWithUsualNames(t *testing.T) {
	kept := withNodes("/data", 3)
	kept.Options.Node.Each = []cluster.EachNode{{}, {Name: "host-2"}}
	given := Settings{Nodes: 4, Options: cluster.Options{Node: &cluster.NodeOptions{Each: []cluster.EachNode{{}, {Name: "host-2"}, {Name: "host-3"}, {Name: "host-4"}}}}}
	now, changes := kept.With(given, []string{"nodes"})
	if len(changes) != 1 || changes[0].Flag != "nodes" || changes[0].Refused != "" {
		t.Errorf("it changes %v, want the number alone", changes)
	}
	if names := now.ClusterOptions().NodeNames(); !slices.Equal(names, []string{"host", "host-2", "host-3", "host-4"}) {
		t.Errorf("they are called %v", names)
	}
}

// A list names the nodes that there are, in order. A new one comes after them.
func TestListAfterARemoval(t *testing.T) {
	kept := withNodes("/data", 3)
	kept.SetNodeState(2, cluster.NodeRemoved)
	label := func(value string) cluster.EachNode { return cluster.EachNode{Labels: map[string]string{"is": value}} }
	given := Settings{Nodes: 3, Options: cluster.Options{Node: &cluster.NodeOptions{Each: []cluster.EachNode{label("first"), label("second"), label("new")}}}}
	now, _ := kept.With(given, []string{"nodes"})
	want := []cluster.EachNode{label("first"), {State: cluster.NodeRemoved}, label("second"), label("new")}
	if diff := cmp.Diff(want, now.Options.Node.Each); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The removal of one node leaves the files of others, and those of users.
func TestRemoveNode(t *testing.T) {
	dir, run := t.TempDir(), t.TempDir()
	gone := []string{"nodes/2/kubelet/pods/a", "nodes/2/cni/conf/a.conflist", "nodes/2/node/ca.crt", "nodes/2/local-volumes/pvc-1/x"}
	kept := []string{"nodes/2/notes.txt", "nodes/3/kubelet/pods/a", "kubelet/pods/a"}
	for _, name := range append(gone, kept...) {
		write(t, filepath.Join(dir, name))
	}
	write(t, filepath.Join(run, "2", "containerd", "containerd.sock"))
	write(t, filepath.Join(run, "3", "containerd", "containerd.sock"))
	if volumes, err := VolumesOfNode(dir, 2); err != nil || !slices.Equal(volumes, []string{"pvc-1"}) {
		t.Errorf("volumes %v, %v", volumes, err)
	}
	for range 2 {
		left, err := RemoveNode(dir, run, 2)
		if err != nil || !slices.Equal(left, []string{"notes.txt"}) {
			t.Errorf("left %q, %v", left, err)
		}
	}
	for _, path := range []string{filepath.Join(run, "2"), filepath.Join(dir, "nodes/2/kubelet"), filepath.Join(dir, "nodes/2/local-volumes")} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	for _, path := range append(under(dir, kept...), filepath.Join(run, "3", "containerd", "containerd.sock")) {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "nodes/2/notes.txt")); err != nil {
		t.Fatal(err)
	}
	if left, err := RemoveNode(dir, run, 2); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "nodes/2")); !os.IsNotExist(err) {
		t.Errorf("the directory of the node is left: %v", err)
	}
	if volumes, err := VolumesOfNode(dir, 2); err != nil || len(volumes) > 0 {
		t.Errorf("volumes %v, %v", volumes, err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func under(dir string, names ...string) (paths []string) {
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// One command at a time changes the nodes of a cluster.
func TestLockNodes(t *testing.T) {
	rec := Record{Occupied: Occupied{Name: "a"}, RunDir: t.TempDir()}
	lock, err := rec.LockNodes(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var held *sharedfile.HeldError
	if _, err := rec.LockNodes(t.Context(), 0); !errors.As(err, &held) || held.Holder.PID != os.Getpid() {
		t.Errorf("a second command: %v, want that process %d holds the lock", err, os.Getpid())
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if lock, err = rec.StopNodesCommand(t.Context(), 0); err != nil { // nobody is there to be ended
		t.Fatal(err)
	}
	if _, err := rec.LockNodes(t.Context(), 0); !errors.As(err, &held) {
		t.Errorf("a command while the cluster is being stopped: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	rec.RunDir = filepath.Join(rec.RunDir, "none")
	if lock, err := rec.StopNodesCommand(t.Context(), 0); lock != nil || err != nil {
		t.Errorf("without the directory of sockets: %v, %v", lock, err)
	}
}

// A command that changes nodes is ended before the cluster is stopped or removed.
func TestStopNodesCommand(t *testing.T) {
	rec := Record{Occupied: Occupied{Name: "a"}, RunDir: t.TempDir()}
	lock, err := rec.LockNodes(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("sleep", "1000")
	holder.ExtraFiles = []*os.File{lock.File()}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	HandOver(lock, "a", holder.Process.Pid)
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- holder.Wait() }()
	if lock, err = rec.StopNodesCommand(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	<-ended //nolint:errcheck // it was ended by a signal
}
