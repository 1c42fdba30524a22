package logging

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

func TestOneFormPerComponentAndLevel(t *testing.T) {
	levels, err := ParseLevels("1,kubelet=4")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	l := New(&out, levels)
	l.now = func() time.Time { return time.Date(2026, 11, 21, 3, 38, 52, 123456000, time.UTC) }

	klog.FromContext(l.Context(context.Background(), "scheduler")).V(2).Info("too deep for the scheduler")
	klog.FromContext(l.Context(context.Background(), "scheduler")).V(1).Info("Bound pod", "pod", klog.KRef("default", "web"))
	l.Component("kubelet").V(4).WithName("volumes").WithValues("pod", "a/b").Error(errors.New("no space"), "Mount failed")

	want := `I1121 03:38:52.123456 scheduler  Bound pod  pod="default/web"
E1121 03:38:52.123456 kubelet/volumes  Mount failed  err="no space"  pod="a/b"
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestParseLevelsNamesTheBadPart(t *testing.T) {
	for _, bad := range []string{"11", "-1", "x", "2,kubelet=high"} {
		if _, err := ParseLevels(bad); err == nil {
			t.Errorf("ParseLevels(%q) accepted", bad)
		}
	}
}

// stuck is a writer that blocks until it is released.
type stuck struct{ line, letGo chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	s.line <- struct{}{}
	<-s.letGo
	return len(p), nil
}

func TestCheckFindsABlockedLog(t *testing.T) {
	out := stuck{make(chan struct{}), make(chan struct{})}
	ctx := New(out, Levels{}).Context(t.Context(), "test")
	if err := Check(ctx); err != nil {
		t.Errorf("nothing is being written: %v", err)
	}
	go klog.FromContext(ctx).Info("a line")
	<-out.line
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	if err := Check(impatient); err == nil {
		t.Error("a line is stuck, and the check passes")
	}
	close(out.letGo)
	if err := Check(ctx); err != nil {
		t.Errorf("the line was written: %v", err)
	}
}

func TestLibrariesLogLessThanComponents(t *testing.T) {
	for given, want := range map[string][2]int{"": {0, 0}, "1": {1, 0}, "4": {4, 3}, "4,lib=4": {4, 4}, "lib=2": {0, 2}} {
		levels, err := ParseLevels(given)
		if got := [2]int{levels.of("apiserver"), levels.of(Libraries)}; err != nil || got != want {
			t.Errorf("levels %q of apiserver and lib are %v (%v), want %v", given, got, err, want)
		}
	}
}

// A line is bounded, whatever clients send, and keeps its end.
func TestLinesAreBounded(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, Levels{})
	long := strings.Repeat("x", 3<<20)
	l.Component("apiserver").Error(errors.New(long), long, "uri", long, "list", []string{long}, "verb", "create")
	if line := out.String(); len(line) > 5*maxText || !strings.HasSuffix(line, "  verb=\"create\"\n") || strings.Count(line, "more bytes)") != 4 {
		t.Errorf("%d bytes, which end with %q", len(line), line[max(0, len(line)-100):])
	}
	if kept := l.buf.Cap(); kept > maxText {
		t.Errorf("%d bytes are kept for the next line", kept)
	}
}
