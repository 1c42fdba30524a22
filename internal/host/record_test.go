package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/test/mark"
)

func TestMain(m *testing.M) { os.Exit(mark.Main(m)) }

// Clusters come and go side by side, and each that goes last takes the empty
// folders with it.
func TestRecordsComeAndGo(t *testing.T) {
	r := Registry{root: filepath.Join(t.TempDir(), "lib", "coracle")}
	var clusters sync.WaitGroup
	for i := range 4 {
		clusters.Go(func() {
			name := fmt.Sprint("cluster-", i)
			for range 300 {
				if err := r.Put(Record{Occupied: Occupied{Name: name}}); err != nil {
					t.Error(err)
					return
				}
				if err := r.Delete(name); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clusters.Wait()
}

// Deleting a record also removes the unfinished file of a killed writer.
func TestRecordThatWasNotFinished(t *testing.T) {
	r := NewRegistry(filepath.Join(t.TempDir(), "coracle"))
	if err := r.Put(Record{Occupied: Occupied{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	files(t, r.Folder(), ".a.json.coracle-7")
	if err := r.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if left := listed(t, filepath.Dir(r.root)); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// An operation on a cluster never changes the data of another one.
func TestRecordKnowsItsOwnData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	rec := Record{Occupied: Occupied{Name: "a", DataDir: dir}}
	for _, there := range []string{"", "a", "b"} {
		if there != "" {
			clusterIn(t, dir, there)
		}
		if err := rec.CheckOwn(); (err == nil) != (there != "b") || err != nil && !strings.Contains(err.Error(), "data of cluster b, not of cluster a") {
			t.Errorf("%q is there: %v", there, err)
		}
	}
	if err := os.WriteFile(SettingsFile(dir), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rec.CheckOwn(); err != nil {
		t.Errorf("damaged settings, which down is for: %v", err)
	}
}

// A cluster whose data is not there, or not whole, is not started empty.
func TestRecordKnowsWhatDataThereMustBe(t *testing.T) {
	for _, tt := range []struct {
		what    string
		rec     Record
		without string
		outside bool
		missing string
	}{
		{"all there", Record{Settled: true, Served: true}, "", false, ""},
		{"disk not mounted", Record{Settled: true, Served: true}, ".", false, "settings.json"},
		{"settings lost", Record{Settled: true}, "settings.json", false, "settings.json"},
		{"objects lost", Record{Settled: true, Served: true}, "etcd", false, "etcd/member"},
		{"never served", Record{Settled: true}, "etcd", false, ""},
		{"objects elsewhere", Record{Settled: true, Served: true}, "etcd", true, ""},
		{"of an earlier version", Record{Served: true}, "settings.json", false, ""},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		clusterIn(t, dir, "a")
		if tt.outside {
			s := keptSettings(dir)
			s.Options.APIServerArgs = append(s.Options.APIServerArgs, "etcd-servers=https://e:2379")
			if err := s.Write(); err != nil {
				t.Fatal(err)
			}
		}
		if tt.without != "" {
			if err := os.RemoveAll(filepath.Join(dir, tt.without)); err != nil {
				t.Fatal(err)
			}
		}
		tt.rec.Name, tt.rec.DataDir = "a", dir
		err := tt.rec.CheckData()
		if (err == nil) != (tt.missing == "") || err != nil && (!strings.Contains(err.Error(), dir+", where "+tt.missing+" is missing") || !strings.Contains(err.Error(), "coracle down --name=a --yes")) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}

// TestDamagedRecords reads records that were truncated or changed. Each is an
// ErrDamaged that says how to go on, and can be deleted.
func TestDamagedRecords(t *testing.T) {
	r := NewRegistry(filepath.Join(t.TempDir(), "coracle"))
	if err := r.Put(Record{Occupied: Occupied{Name: "a", DataDir: "/data"}}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(r.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	for what, content := range map[string]string{
		"empty":           "",
		"truncated":       string(whole[:len(whole)/2]),
		"not an object":   "[]",
		"another type":    `{"options": {"name": 1}}`,
		"another cluster": strings.ReplaceAll(string(whole), `"a"`, `"b"`),
		"no directory":    `{"options": {"name": "a"}}`,
		"flat, no server": `{"name": "a", "dataDir": "/data", "server": "://"}`,
	} {
		if err := os.WriteFile(r.path("a"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Get("a"); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "coracle up --name=a --data-dir=DIR") {
			t.Errorf("%s: %v", what, err)
		}
		if names, err := r.Names(); err != nil || !slices.Equal(names, []string{"a"}) {
			t.Errorf("%s: the names are %v, %v", what, names, err)
		}
	}
	if err := r.Delete("a"); err != nil {
		t.Error(err)
	}
	if _, err := r.Get("a"); !errors.Is(err, ErrNoCluster) {
		t.Errorf("after it was deleted: %v", err)
	}
}

// TestTwoClusters keeps two clusters on one machine: each has a slot, a data
// directory and a record of its own, and the removal of one leaves the other.
func TestTwoClusters(t *testing.T) {
	r := NewRegistry(filepath.Join(t.TempDir(), "coracle"))
	var all []Record
	var ports []cluster.Ports
	for _, name := range []string{"a", "b"} {
		dir := r.DataDir(name)
		c, err := ClaimDir(t.Context(), dir, name, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Lock.Release() })
		s := Settings{Nodes: 1, Options: cluster.Options{Name: name, DataDir: dir, BindAddress: "0.0.0.0"}}
		s.Complete(freeSlot(all, name, func(int) bool { return true }, Record.Abandoned), "n", "/bundle", "/config")
		if err := errors.Join(CheckRanges(s, all), CheckNodePorts(s, all), s.Write()); err != nil {
			t.Fatal(err)
		}
		rec := Record{Slot: s.Slot, Nodes: s.Nodes, Settled: true, Made: c.Made, Occupied: s.Occupied()}
		if err := r.Put(rec); err != nil {
			t.Fatal(err)
		}
		all, ports = append(all, rec), append(ports, s.Options.Ports)
	}
	if all[0].Slot != 0 || all[1].Slot != 1 || ports[0] == ports[1] {
		t.Errorf("the slots are %d and %d, the ports %v and %v", all[0].Slot, all[1].Slot, ports[0], ports[1])
	}
	if _, err := ClaimDir(t.Context(), all[1].DataDir, "a", false); err == nil {
		t.Error("a cluster claims the data of the other")
	}
	left, err := RemoveData(all[0].DataDir)
	if err := errors.Join(err, r.Delete("a"), Vacate(all[0].DataDir, all[0].Directories())); err != nil || len(left) > 0 {
		t.Errorf("the removal leaves %v, %v", left, err)
	}
	rec, err := r.Get("b")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all[1], rec); diff != "" {
		t.Errorf("the other record changed:\n%s", diff)
	}
	if s, err := ReadSettings(rec.DataDir); err != nil || s.Options.Name != "b" {
		t.Errorf("the other settings: %+v, %v", s, err)
	}
}
