package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// helper logs for its caller.
func helper(log logr.Logger) { log.WithCallDepth(1).Info("for another") }

// Lines in JSON have what upstream's have. Other components keep their form.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, Levels{Default: 1})
	l.now = func() time.Time { return time.Date(2026, 11, 21, 3, 38, 52, 123456000, time.UTC) }
	ctx := l.Context(t.Context(), "scheduler")
	log := klog.FromContext(ctx)
	SetFormat(ctx, JSON) // of the loggers that there are, too
	log.V(2).Info("too deep")
	log.V(1).Info("Bound <pod>", "pod", klog.KRef("default", "web"), "node", "n1", "took", time.Second, "count", 3, "names", []string{"a", "b"})
	log.Error(nil, "Failed")
	log.Error(errors.New("no\nspace"), "Mount failed", "cause", errors.New("full"), "odd", func() {}, "alone")
	l.Of("n2").Component("scheduler").WithName("queue").WithValues("pod", "a/b").Info("Waits")
	helper(log)
	klog.FromContext(l.Context(t.Context(), "kubelet")).Info("text")
	SetFormat(ctx, Text)
	log.Info("text again")
	SetFormat(t.Context(), JSON) // no logger of this package
	const ts = `{"ts":1795232332123.456,"logger":"scheduler`
	want := ts + `","caller":"HERE","msg":"Bound <pod>","v":1,"pod":{"name":"web","namespace":"default"},"node":"n1","took":"1s","count":3,"names":["a","b"]}
` + ts + `","caller":"HERE","msg":"Failed"}
` + ts + `","caller":"HERE","msg":"Mount failed","cause":"full","odd":"FUNCTION","err":"no\nspace"}
` + ts + `@n2/queue","caller":"HERE","msg":"Waits","v":0,"pod":"a/b"}
` + ts + `","caller":"HERE","msg":"for another","v":0}
I1121 03:38:52.123456 kubelet  text
I1121 03:38:52.123456 scheduler  text again
`
	got := regexp.MustCompile(`"0x[0-9a-f]+"`).ReplaceAllString(out.String(), `"FUNCTION"`)
	if got = regexp.MustCompile(`logging/format_test\.go:\d+`).ReplaceAllString(got, "HERE"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// The line of a helper names the line of its caller.
func TestCaller(t *testing.T) {
	var out bytes.Buffer
	ctx := New(&out, Levels{}).Context(t.Context(), "scheduler")
	SetFormat(ctx, JSON)
	log := klog.FromContext(ctx)
	log.Info("one")
	helper(log)
	var callers []int
	for text := range strings.Lines(out.String()) {
		var e struct{ Caller string }
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		_, number, _ := strings.Cut(e.Caller, ":")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		callers = append(callers, n)
	}
	if len(callers) != 2 || callers[1] != callers[0]+1 {
		t.Errorf("the callers are in the lines %v, want two that follow each other", callers)
	}
}

// A line in JSON is bounded and stays an object, whatever clients send.
func TestLinesInJSONAreBounded(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, Levels{})
	ctx := l.Context(t.Context(), "apiserver")
	SetFormat(ctx, JSON)
	long := strings.Repeat("\"", 3<<20)
	klog.FromContext(ctx).Error(errors.New(long), long, "uri", long, "list", []string{long}, "verb", "create")
	if text := out.Bytes(); len(text) > 20*maxText || !json.Valid(text) || bytes.Count(text, []byte("more bytes)")) != 4 {
		t.Errorf("%d bytes, which end with %q", len(text), text[max(0, len(text)-100):])
	}
	if kept := l.buf.Cap(); kept > maxText {
		t.Errorf("%d bytes are kept for the next line", kept)
	}
}

// Read selects lines in JSON like others.
func TestReadJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := OpenFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	l, now := New(file, Levels{}), time.Now().Truncate(time.Microsecond)
	ctx := l.Context(t.Context(), "scheduler")
	SetFormat(ctx, JSON)
	for i, text := range []string{"one", "two", "three"} {
		l.now = func() time.Time { return now.Add(time.Duration(i-5) * time.Minute) }
		klog.FromContext(ctx).Info(text)
		l.Component("kubelet").Info(text)
	}
	for _, test := range []struct {
		query Query
		want  string
	}{
		{Query{Last: All, Components: []string{"scheduler"}}, "one two three"},
		{Query{Last: All, Components: []string{"scheduler"}, Since: now.Add(-4 * time.Minute)}, "two three"},
		{Query{Last: All, Components: []string{"kubelet"}}, ""},
	} {
		var out strings.Builder
		if err := Read(path, test.query, &out); err != nil {
			t.Fatal(err)
		}
		var got []string
		for text := range strings.Lines(out.String()) {
			var e struct{ Msg string }
			if json.Unmarshal([]byte(text), &e) == nil {
				got = append(got, e.Msg)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%+v: got %s, want %s", test.query, got, test.want)
		}
	}
}

// described is logged as a text or an error of its own.
type described struct{ as any }

func (d described) MarshalLog() any { return d.as }

// What a value is logged as is bounded and shown like other values.
func TestValuesThatDescribeThemselves(t *testing.T) {
	var out bytes.Buffer
	ctx := New(&out, Levels{}).Context(t.Context(), "scheduler")
	SetFormat(ctx, JSON)
	klog.FromContext(ctx).Info("line", "long", described{strings.Repeat("a", 2*maxText)}, "cause", described{errors.New("full")})
	if text := out.String(); len(text) > 2*maxText || !strings.Contains(text, `"cause":"full"`) {
		t.Errorf("%d bytes, which end with %s", len(text), text[max(0, len(text)-100):])
	}
}
