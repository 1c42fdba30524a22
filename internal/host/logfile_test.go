package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The log stays within its bound, whoever writes how much, and the last lines
// are there.
func TestLogIsBounded(t *testing.T) {
	const limit = 4096
	path := filepath.Join(t.TempDir(), "coracle.log")
	var writers sync.WaitGroup
	for w := range 4 { // as processes of their own do
		writers.Go(func() {
			moved := 0
			l, err := openLog(path, limit, func(*os.File) error { moved++; return nil })
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = l.Close() }()
			for i := range 500 {
				if _, err := fmt.Fprintf(l, "writer %d line %04d %s\n", w, i, strings.Repeat("x", 30)); err != nil {
					t.Error(err)
					return
				}
			}
			if moved == 0 {
				t.Errorf("writer %d was never told of another file", w)
			}
		})
	}
	writers.Wait()
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 1+oldLogs {
		t.Fatalf("there are %v, %v", files, err)
	}
	last := map[string]bool{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > limit+4*100 { // each writer may have one line on its way
			t.Errorf("%s has %d bytes", file, len(raw))
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", file, info.Mode(), err)
		}
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, "line 0499") {
				last[line[:8]] = true
			}
			if !strings.HasPrefix(line, "writer ") || !strings.HasSuffix(line, "x\n") {
				t.Errorf("%s has half a line: %q", file, line)
			}
		}
	}
	if len(last) == 0 {
		t.Error("no writer's last line is kept")
	}
}
