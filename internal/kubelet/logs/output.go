package logs

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// chunk is the number of bytes after which output writes.
const chunk = 32 << 10

// errFull ends reading when Options.Limit is reached.
var errFull = errors.New("the limit is reached")

func ignoreFull(err error) error {
	if errors.Is(err, errFull) {
		return nil
	}
	return err
}

// output parses lines of a log and writes the selected ones in order.
type output struct {
	options        *Options
	stdout, stderr io.Writer

	fresh  bool // the next piece begins a line of the container
	sent   int64
	to     io.Writer // destination of queued
	queued []byte
}

// line processes one line of the file. It skips a line that is not in the CRI
// format: a runtime that is killed leaves truncated lines.
func (o *output) line(raw []byte) error {
	at, stream, piece, ok := parse(raw)
	if !ok {
		return nil
	}
	fresh := o.fresh
	o.fresh = len(piece) == 0 || piece[len(piece)-1] == '\n'
	to := o.stdout
	if stream == "stderr" {
		to = o.stderr
	}
	if to == nil || at.Before(o.options.Since) {
		return nil
	}
	if to != o.to || len(o.queued) >= chunk {
		if err := o.flush(); err != nil {
			return err
		}
		o.to = to
	}
	before := len(o.queued)
	if o.options.Timestamps && fresh {
		o.queued = append(at.AppendFormat(o.queued, "2006-01-02T15:04:05.000000000Z07:00"), ' ')
	}
	o.queued = append(o.queued, piece...)
	if limit := o.options.Limit; limit != nil {
		if added := int64(len(o.queued) - before); o.sent+added >= *limit {
			o.queued = o.queued[:before+int(*limit-o.sent)]
			return errors.Join(o.flush(), errFull)
		}
		o.sent += int64(len(o.queued) - before)
	}
	return nil
}

// flush writes the queued bytes.
func (o *output) flush() error {
	if len(o.queued) == 0 {
		return nil
	}
	_, err := o.to.Write(o.queued)
	o.queued = o.queued[:0]
	return err
}

// Text returns the output of containers in the lines of raw. It skips truncated
// lines.
func Text(raw []byte) []byte {
	var text []byte
	for line := range bytes.Lines(raw) {
		if _, _, piece, ok := parse(line); ok {
			text = append(text, piece...)
		}
	}
	return text
}

// parse splits a line into time, stream, tags and content, which are separated
// by spaces. For a partial line (tag P) it removes the line break, which is not
// part of the content.
//
// Source:
// https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
func parse(raw []byte) (at time.Time, stream string, piece []byte, ok bool) {
	stamp, raw, _ := bytes.Cut(raw, []byte(" "))
	name, raw, _ := bytes.Cut(raw, []byte(" "))
	tags, piece, ok := bytes.Cut(raw, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if stream = string(name); !ok || err != nil || stream != "stdout" && stream != "stderr" {
		return at, "", nil, false
	}
	if tag, _, _ := bytes.Cut(tags, []byte(":")); string(tag) == "P" {
		piece = bytes.TrimSuffix(piece, []byte("\n"))
	}
	return at, stream, piece, true
}
