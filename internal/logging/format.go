package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Format is the form of the lines of a component, as in --logging-format.
type Format string

// The formats. JSON is that of upstream's components.
const (
	Text Format = "text"
	JSON Format = "json"
)

// SetFormat sets the form of the lines of a component, also for the loggers that it
// has: of the component whose logger is in ctx. Of a component that runs for several
// nodes of a process, it sets the form for all of them. It does nothing if the logger
// is not of this package.
func SetFormat(ctx context.Context, f Format) {
	if s, ok := klog.FromContext(ctx).GetSink().(*sink); ok {
		s.json.Store(f == JSON)
	}
}

// writeJSON writes a line as an object:
//
//	{"ts":1795232332123.456,"logger":"scheduler","caller":"scheduler/bind.go:12","msg":"Bound pod","v":1,"pod":{"name":"web","namespace":"default"}}
//
// ts is in milliseconds since 1970. An error has no v, and what happened as err.
// Upstream's lines have a logger only where that has a name; here it begins with the
// component.
func writeJSON(b *bytes.Buffer, at time.Time, e *line) {
	b.WriteString(beginJSON)
	b.Write(strconv.AppendFloat(b.AvailableBuffer(), float64(at.UnixNano())/float64(time.Millisecond), 'f', -1, 64))
	writeMember(b, "logger", e.logger)
	if e.caller != "" {
		writeMember(b, "caller", e.caller)
	}
	writeMember(b, "msg", cut(e.msg))
	if !e.isError {
		writeMember(b, "v", e.level)
	}
	for i := 0; i+1 < len(e.values); i += 2 {
		writeMember(b, fmt.Sprint(e.values[i]), shown(e.values[i+1]))
	}
	if e.err != nil {
		writeMember(b, "err", cut(e.err.Error()))
	}
	b.WriteByte('}')
}

// beginJSON is what each line in JSON begins with.
const beginJSON = `{"ts":`

// shown returns what a line has in the place of a value, which may have a text or a
// form of its own.
func shown(value any) any {
	if v, ok := value.(logr.Marshaler); ok {
		value = v.MarshalLog()
	}
	switch v := value.(type) {
	case error:
		return cut(v.Error())
	case fmt.Stringer:
		return cut(v.String())
	case string:
		return cut(v)
	}
	return value
}

// writeMember writes a member of an object that has others before it.
func writeMember(b *bytes.Buffer, name string, value any) {
	b.WriteByte(',')
	_ = encode(b, name) // a text always has a form
	b.WriteByte(':')
	before := b.Len()
	if err := encode(b, value); err != nil { // such as a function
		_ = encode(b, cut(fmt.Sprintf("%+v", value)))
	} else if _, text := value.(string); !text && b.Len()-before > maxText {
		long := cut(string(b.Bytes()[before:]))
		b.Truncate(before)
		_ = encode(b, long)
	}
}

// encode writes a value in JSON. If it returns an error, it has written nothing.
func encode(b *bytes.Buffer, value any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the end of the line
	return nil
}

// caller returns the file and the line of the code that logs, such as
// "scheduler/bind.go:12", or "". Only sink.write may call it. depth is the number of
// calls between that code and the logger.
func caller(depth int) string {
	// caller, sink.write, sink.Info, Logger.Info
	_, file, number, ok := runtime.Caller(4 + depth)
	if !ok {
		return ""
	}
	return path.Join(path.Base(path.Dir(file)), path.Base(file)) + ":" + strconv.Itoa(number)
}

// headerJSON is header for a line in JSON.
func headerJSON(text string) (at time.Time, component string, ok bool) {
	var head struct {
		Milliseconds float64 `json:"ts"`
		Logger       string  `json:"logger"`
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&head); err != nil {
		return time.Time{}, "", false
	}
	return time.UnixMicro(int64(math.Round(head.Milliseconds * 1000))), head.Logger, true
}
