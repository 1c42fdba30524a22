package logging

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestFileIsBounded checks that the log stays within its bound with several
// writers, and has the last lines.
func TestFileIsBounded(t *testing.T) {
	const limit = 4096
	path := filepath.Join(t.TempDir(), "coracle.log")
	var writers sync.WaitGroup
	for w := range 4 { // as separate processes do
		writers.Go(func() {
			moved := 0
			l, err := openFile(path, limit, func(*os.File) error { moved++; return nil })
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
	if err != nil || len(files) != 1+oldFiles {
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

// TestTrim trims a log while its writer goes on writing.
func TestTrim(t *testing.T) {
	const limit = 4096
	path := filepath.Join(t.TempDir(), "containerd.log")
	if err := trim(path, limit); err != nil {
		t.Errorf("without a log: %v", err)
	}
	writer, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	for i := range 3000 {
		if _, err := fmt.Fprintf(writer, "line %04d %s\n", i, strings.Repeat("x", 30)); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			if err := trim(path, limit); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 1+oldFiles {
		t.Fatalf("there are %v, %v", files, err)
	}
	var all string
	for _, file := range []string{path + ".3", path + ".2", path + ".1", path} {
		raw, err := os.ReadFile(file)
		if err != nil || len(raw) > limit+10*50 {
			t.Errorf("%s has %d bytes, %v", file, len(raw), err)
		}
		all += string(raw)
	}
	if !strings.HasSuffix(all, "line 2999 "+strings.Repeat("x", 30)+"\n") || !strings.Contains(all, "line 2800 ") {
		t.Errorf("the last lines are not there:\n%s", all)
	}
}
