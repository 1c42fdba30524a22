package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Clusters come and go side by side, and each that goes last takes the empty
// folders with it.
func TestRecordsComeAndGo(t *testing.T) {
	r := Registry{root: filepath.Join(t.TempDir(), "lib", "coracle")}
	var clusters sync.WaitGroup
	for i := range 4 {
		clusters.Go(func() {
			name := fmt.Sprint("cluster-", i)
			for range 300 {
				if err := r.Put(Record{Name: name}); err != nil {
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

// A record whose writer was killed goes with the next one.
func TestRecordThatWasNotFinished(t *testing.T) {
	r := NewRegistry(filepath.Join(t.TempDir(), "coracle"))
	if err := r.Put(Record{Name: "a"}); err != nil {
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

// What is done to a cluster is never done to the data of another one.
func TestRecordKnowsItsOwnData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	rec := Record{Name: "a", DataDir: dir}
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

// A cluster whose data is not there, or not whole, is not started anew.
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
			s.APIServerArgs = append(s.APIServerArgs, "etcd-servers=https://e:2379")
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
