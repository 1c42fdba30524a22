package metricsserver

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The bounds of a kubelet's answer. A container takes about 800 bytes of it, and at most
// maxContainer. A pod may have hundreds: each that the API knows of adds to the bound, so
// that pods with very many do not hide what others use.
const (
	maxAnswer    = 16 << 20
	maxContainer = 4 << 10
	maxLine      = 16 << 10
	maxNumber    = 64 // bytes
)

// The greatest values that are believed. Rates of such values over a second fit
// an int64 of nanocores.
const (
	maxSeconds = 9e9
	maxBytes   = 1 << 60
	maxMillis  = 9e12
)

// sample holds the measurements from one response of a kubelet.
type sample struct {
	node   point
	pods   map[types.NamespacedName][]measured
	failed bool // the kubelet could not measure
}

// measured is a container with its last measurement.
type measured struct {
	name string
	point
}

// point is one measurement of a node or of a container.
type point struct {
	at     int64  // in Unix nanoseconds, by the node's clock; 0 if the CPU was not measured
	start  int64  // of the container, in Unix nanoseconds; 0 if it is unknown
	cpu    uint64 // nanoseconds used since the start
	memory uint64 // bytes of the working set
}

// complete reports whether both resources were measured.
func (p *point) complete() bool { return p.at != 0 && p.memory != 0 }

// read reads the answer of a kubelet to /metrics/resource, in Prometheus' text
// format. It keeps only containers that known accepts, and skips lines that it
// does not understand. An answer beyond the bounds is an error. received is the
// time of measurements that have none.
func read(from io.Reader, received time.Time, known func(pod types.NamespacedName, container string) bool) (*sample, error) {
	limited := &io.LimitedReader{R: from, N: maxAnswer}
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	s := &sample{pods: map[types.NamespacedName][]measured{}}
	for lines.Scan() {
		if l, ok := parse(lines.Bytes(), received.UnixNano()); ok && s.add(&l, known) {
			limited.N += maxContainer
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if n, _ := io.CopyN(io.Discard, from, 1); n > 0 {
		return nil, errors.New("the answer is longer than the containers of the node account for")
	}
	if s.failed {
		return nil, errors.New("the kubelet cannot read what is used: resource_scrape_error is 1")
	}
	return s, nil
}

// add records a line, and reports whether it is the first one of a container.
func (s *sample) add(l *line, known func(pod types.NamespacedName, container string) bool) (first bool) {
	switch string(l.metric) {
	case "resource_scrape_error":
		s.failed = l.value != 0
	case "node_cpu_usage_seconds_total", "node_memory_working_set_bytes":
		s.node.set(l)
	case "container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds":
		if len(l.namespace) == 0 || len(l.pod) == 0 || len(l.container) == 0 {
			return false
		}
		pod := types.NamespacedName{Namespace: string(l.namespace), Name: string(l.pod)}
		all := s.pods[pod]
		for i := range all {
			if all[i].name == string(l.container) {
				all[i].set(l)
				return false
			}
		}
		if name := string(l.container); known(pod, name) {
			added := measured{name: name}
			added.set(l)
			s.pods[pod] = append(all, added)
			return true
		}
	}
	return false
}

// set sets the part of a point that a line is about. Values that are not
// plausible leave it unset.
func (p *point) set(l *line) {
	switch {
	case bytes.HasSuffix(l.metric, []byte("_cpu_usage_seconds_total")) && l.value >= 0 && l.value <= maxSeconds:
		p.cpu, p.at = uint64(math.Round(l.value*float64(time.Second))), l.at
	case bytes.HasSuffix(l.metric, []byte("_memory_working_set_bytes")) && l.value >= 0 && l.value <= maxBytes:
		p.memory = uint64(l.value)
	case bytes.HasSuffix(l.metric, []byte("_start_time_seconds")) && l.value > 0 && l.value <= maxSeconds:
		p.start = int64(l.value * float64(time.Second))
	}
}

// line is a line of the text format:
//
//	container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"} 4.2 1633253812125
type line struct {
	metric, container, namespace, pod []byte
	value                             float64
	at                                int64
}

// parse parses a line. It returns false for comments and for what it does not
// understand. Values of labels with escapes are no names of objects.
func parse(text []byte, received int64) (l line, ok bool) {
	end := bytes.IndexAny(text, "{ ")
	if end <= 0 || text[0] == '#' {
		return l, false
	}
	l.metric = text[:end]
	if !wanted(l.metric) {
		return l, false
	}
	rest := text[end:]
	if rest[0] == '{' {
		if rest, ok = l.labels(rest[1:]); !ok {
			return l, false
		}
	}
	rest = bytes.TrimSpace(rest)
	value, at := rest, []byte(nil)
	if space := bytes.IndexAny(rest, " \t"); space >= 0 {
		value, at = rest[:space], bytes.TrimSpace(rest[space:])
	}
	if len(value) > maxNumber || len(at) > maxNumber {
		return l, false
	}
	var err error
	if l.value, err = strconv.ParseFloat(string(value), 64); err != nil || math.IsNaN(l.value) {
		return l, false
	}
	l.at = received
	if len(at) > 0 {
		millis, err := strconv.ParseInt(string(at), 10, 64)
		if err != nil || millis <= 0 || millis > maxMillis {
			return l, false
		}
		l.at = millis * int64(time.Millisecond)
	}
	return l, true
}

// wanted reports whether a metric is one that is read. Lines of others cost no
// more than this.
func wanted(metric []byte) bool {
	switch string(metric) {
	case "node_cpu_usage_seconds_total", "node_memory_working_set_bytes", "resource_scrape_error",
		"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds":
		return true
	}
	return false
}

// labels parses labels up to the closing brace, and returns what follows it.
func (l *line) labels(text []byte) (rest []byte, ok bool) {
	for {
		text = bytes.TrimLeft(text, ", ")
		if len(text) > 0 && text[0] == '}' {
			return text[1:], true
		}
		name, after, found := bytes.Cut(text, []byte(`="`))
		if !found {
			return nil, false
		}
		value, after, found := bytes.Cut(after, []byte(`"`))
		if !found || bytes.IndexByte(value, '\\') >= 0 {
			return nil, false
		}
		switch string(name) {
		case "container":
			l.container = value
		case "namespace":
			l.namespace = value
		case "pod":
			l.pod = value
		}
		text = after
	}
}
