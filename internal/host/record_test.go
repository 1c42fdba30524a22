package host

import (
	"fmt"
	"path/filepath"
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
