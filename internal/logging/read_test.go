package logging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// logged writes lines at times, each "component text", into a log that is
// rotated after limit bytes.
func logged(t *testing.T, path string, limit int64, lines map[time.Time]string, order []time.Time) {
	t.Helper()
	file, err := openFile(path, limit, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	l := New(file, Levels{})
	for _, at := range order {
		l.now = func() time.Time { return at }
		component, text, _ := strings.Cut(lines[at], " ")
		l.write(&line{logger: component, msg: text}, writeText)
	}
}

func texts(out string) string {
	var all []string
	for line := range strings.Lines(out) {
		_, text, _ := strings.Cut(line, "  ")
		all = append(all, strings.TrimSpace(text))
	}
	return strings.Join(all, ",")
}

// Read selects by component, time and number, from the rotated files too. A line
// break in a message belongs to its line.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	now := time.Now()
	lines, order := map[time.Time]string{}, []time.Time(nil)
	for i, text := range []string{"apiserver one", "controller-manager/job two", "scheduler three", "controller-manager four\nmore", "scheduler five"} {
		at := now.Add(time.Duration(i-5) * time.Minute).Truncate(time.Microsecond)
		lines[at], order = text, append(order, at)
	}
	logged(t, path, 110, lines, order)
	if _, err := os.Stat(path + ".1"); err != nil {
		t.Fatal("the log is not rotated")
	}
	for _, test := range []struct {
		query Query
		want  string
	}{
		{Query{Last: All}, "one,two,three,four,,five"},
		{Query{Last: All, Components: []string{"controller-manager"}}, "two,four,"},
		{Query{Last: All, Components: []string{"controller-manager/job", "apiserver"}}, "one,two"},
		{Query{Last: All, Components: []string{"controller"}}, ""},
		{Query{Last: All, Since: order[3]}, "four,,five"},
		{Query{Last: 1}, "five"},
		{Query{Last: 1, Components: []string{"apiserver"}}, "one"},
		{Query{Last: 0}, ""},
	} {
		var out strings.Builder
		if err := Read(path, test.query, &out); err != nil || texts(out.String()) != test.want {
			t.Errorf("%+v: got %s, %v, want %s", test.query, texts(out.String()), err, test.want)
		}
	}
}

// TestReadNodes selects the components of further nodes.
func TestReadNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := openFile(path, maxFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	l := New(file, Levels{})
	l.Component("kubelet").Info("one")
	for _, node := range []string{"m-2", "m-3"} {
		l.Of(node).Component("kubelet").Info(node)
		l.Of(node).Component("kubelet").WithName("pleg").Info(node + "-pleg")
		l.Of(node).Component("proxy").Info(node + "-proxy")
	}
	for name, want := range map[string]string{
		"kubelet": "one,m-2,m-2-pleg,m-3,m-3-pleg", "kubelet@m-2": "m-2,m-2-pleg", "@m-3": "m-3,m-3-pleg,m-3-proxy", "proxy": "m-2-proxy,m-3-proxy", "kubelet@m": "",
	} {
		var out strings.Builder
		if err := Read(path, Query{Components: []string{name}, Last: All}, &out); err != nil || texts(out.String()) != want {
			t.Errorf("%s: %s, %v; want %s", name, texts(out.String()), err, want)
		}
	}
}

func TestReadNoLog(t *testing.T) {
	var out strings.Builder
	if err := Read(filepath.Join(t.TempDir(), "log"), Query{Last: All}, &out); err != nil || out.Len() != 0 {
		t.Errorf("got %q, %v", out.String(), err)
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, Query{Last: All}, &out); err == nil {
		t.Error("Read follows a symbolic link")
	}
}

// A line of December that is read in January is of the year before.
func TestHeaderOfLastYear(t *testing.T) {
	now := time.Date(2027, 1, 2, 0, 0, 0, 0, time.Local)
	at, component, ok := header("E1231 23:59:59.000001 kubelet  text\n", now)
	if !ok || component != "kubelet" || at.Year() != 2026 {
		t.Errorf("got %v, %s, %v", at, component, ok)
	}
	for _, line := range []string{"", "\n", "panic: x", "I99", "X1231 23:59:59.000001 kubelet  text", "I1331 23:59:59.000001 kubelet  text"} {
		if _, _, ok := header(line, now); ok {
			t.Errorf("%q has a header", line)
		}
	}
}

// Follow prints what is logged later, in a file that comes later, and across
// rotations, no line twice.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		ctx, cancel := context.WithCancel(t.Context())
		var out lockedBuilder
		ended := make(chan error, 1)
		go func() { ended <- Follow(ctx, path, Query{Last: All, Components: []string{"scheduler"}}, &out) }()
		time.Sleep(time.Second)
		file, err := openFile(path, 80, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := New(file, Levels{})
		var want []string
		for i := range 9 {
			l.write(&line{logger: "scheduler", msg: fmt.Sprint(i)}, writeText)
			l.write(&line{logger: "kubelet", msg: "other"}, writeText)
			want = append(want, fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := texts(out.String()); got != strings.Join(want, ",") {
			t.Errorf("got %s, want %s", got, strings.Join(want, ","))
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
}

type lockedBuilder struct {
	mu sync.Mutex
	strings.Builder
}

func (b *lockedBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.Write(p)
}

// WriteString is used by io.WriteString.
func (b *lockedBuilder) WriteString(s string) (int, error) { return b.Write([]byte(s)) }
