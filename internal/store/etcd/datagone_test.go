package etcd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/supervise"
)

// TestMissingDataIsReported checks that the condition DataGone is reported while
// the data directory is missing or is another directory.
func TestMissingDataIsReported(t *testing.T) {
	dir := t.TempDir()
	data, aside := filepath.Join(dir, "etcd"), filepath.Join(dir, "aside")
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(os.MkdirAll(filepath.Join(data, "member"), 0o700))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := supervise.NewGroup(supervise.Options{})
		g.Go(ctx, "etcd", func(ctx context.Context) error { reportDataGone(ctx, data); return nil })
		shows := func(want string) {
			t.Helper()
			time.Sleep(dataGoneInterval)
			synctest.Wait()
			c := conditions(g)
			if want == "" && len(c) > 0 || want != "" && (len(c) != 1 || c[0].Name != "DataGone" || !strings.Contains(c[0].Message, want)) {
				t.Errorf("conditions are %+v, want one of %q", c, want)
			}
		}
		shows("")
		do(os.Rename(data, aside))
		shows("no such file or directory")
		do(os.MkdirAll(filepath.Join(data, "member"), 0o700))
		shows("another directory")
		do(os.RemoveAll(data))
		do(os.Rename(aside, data))
		shows("")
		cancel()
		g.Wait()
	})
}
